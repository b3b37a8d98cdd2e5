"""Compiled templates: one expression that gives a value with its type, or one text with templates in it.

Compiling finds every error at once; evaluating only reads the scope, and the same scope always gives the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from jinja2 import nodes

from agiwo.errors import TemplateError
from agiwo.template import operators as op
from agiwo.template.absent import Absent, Scope, described
from agiwo.template.compiler import Compiler, Exec
from agiwo.template.evaluation import Eval, Frame, constant_reader
from agiwo.template.marks import SecretName
from agiwo.template.meter import Meter
from agiwo.template.parse import Broken, Parsed, parse_expression, parse_template
from agiwo.template.reads import Place, Read, Reader, constant_path
from agiwo.template.sinks import NoSink, Sink, SqlSink, TextSink
from agiwo.template.sql import SqlCheck, colon_names
from agiwo.values import JSON, shown

_NO_SINK = NoSink()
Slots = tuple[tuple[str, tuple[str | SecretName, ...]], ...]  # a pointer below the template's own place, and the parts


class TemplateErrors(TemplateError):
    """Everything that is wrong with one or many templates; `errors` has them one by one."""

    def __init__(self, errors: Sequence[TemplateError]) -> None:
        super().__init__("; ".join(error.message for error in errors), details={"errors": [error.data for error in errors]})
        self.errors = tuple(errors)


def located_error(message: str, source: str, *, offset: int | None = None, place: str = "", at: str = "") -> TemplateError:
    """A TemplateError with its place: `at` is the pointer inside the value that was compiled, `place` how its owner calls the whole."""
    where = f"{place}{at}"
    details: dict[str, JSON] = {"template": source[:2000], "pointer": at}
    if place:
        details["place"] = place
    if offset is not None:
        details["offset"] = offset
        details["line"] = source.count("\n", 0, offset) + 1
    text = f"{where}: {message}" if where else message
    return TemplateError(f"{text} (in {shown(source)})", details=details)


class _Complaints:
    """Collects what is wrong with one template, each thing once, with its offset."""

    def __init__(self, source: str, place: str, at: str, spans: Sequence[tuple[int, int]] = (), body: Sequence[nodes.Node] = ()) -> None:
        self._source, self._place, self._at = source, place, at
        self.errors: list[TemplateError] = []
        self._seen: set[str] = set()
        holes = [child for node in body for out in _outputs(node) for child in out.nodes if not isinstance(child, nodes.TemplateData)]
        # Jinja keeps lines, not columns: each {{ }} is found again by its number in the text.
        self._spans: dict[int, tuple[int, int]] = {}
        for hole, span in zip(holes, spans, strict=False):
            for part in (hole, *hole.find_all(nodes.Node)):
                self._spans.setdefault(id(part), span)

    def span_of(self, node: nodes.Node) -> tuple[int, int] | None:
        return self._spans.get(id(node))

    def __call__(self, message: str, node: nodes.Node) -> None:
        if message not in self._seen:
            self._seen.add(message)
            span = self.span_of(node)
            self.add(message, span[0] if span else _line_start(self._source, node.lineno or 1))

    def add(self, message: str, offset: int) -> None:
        self.errors.append(located_error(message, self._source, offset=offset, place=self._place, at=self._at))

    def settle(self) -> None:
        if self.errors:
            raise TemplateErrors(self.errors)


def _outputs(node: nodes.Node) -> list[nodes.Output]:
    return [node] if isinstance(node, nodes.Output) else list(node.find_all(nodes.Output))


def _line_start(source: str, line: int) -> int:
    return min(len(source), sum(len(text) + 1 for text in source.split("\n")[: max(0, line - 1)]))


@dataclass(frozen=True, slots=True)
class Expression:
    """One typed expression.

    `conjuncts` are the parts that `and` joins at its top, each in one written form, so that two conditions can be compared.
    `path` is the root and path that the expression is, if it is nothing but one path.
    """

    source: str
    reads: tuple[Read, ...]
    conjuncts: tuple[str, ...]
    path: Place | None
    place: str = ""
    _run: Eval = field(default=lambda frame: None, repr=False, compare=False)
    _handed: bool = field(default=False, repr=False)

    def evaluate(self, scope: Scope) -> JSON | Absent:
        """The value, itself where the expression only hands it on, or an Absent if a whole path is not there.

        Raises TemplateError for any other use of an absent name, a wrong type, and too much work.
        """
        try:
            return _value(self._run, self.source, self._handed, Frame(scope, Meter(), _NO_SINK))
        except TemplateError as exc:
            raise located_error(exc.message, self.source, place=self.place) from None
        except RecursionError:
            raise located_error("a value is nested too deep", self.source, place=self.place) from None


def _value(run: Eval, source: str, handed: bool, frame: Frame) -> object:
    value = run(frame)
    kind = type(value)
    if handed and kind is not Absent:
        # Only a group of names can be wrong here, and it is neither of the two commonest kinds.
        return value if kind is dict or kind is str or kind is list else op.admit(value, source)
    if kind is Absent:
        return value
    op.admit(value, source)
    if kind is dict or kind is list or kind is str:
        frame.meter.result_holds(value)
    return value


def compile_expression(source: str, *, place: str = "", names: Collection[str] = ()) -> Expression:
    """Compile one expression, bare or exactly one `{{ }}`.

    `place` is how messages call the place; `names` are roots that hold here besides `ROOTS` (the `as` of a foreach).
    Raises TemplateErrors with everything that is wrong.
    """
    complaints = _Complaints(source, place, "")
    try:
        tree = parse_expression(source)
    except Broken as exc:
        complaints.add(str(exc), exc.offset)
        raise TemplateErrors(complaints.errors) from None
    reader = Reader(names, complaints)
    reader.expression(tree, set())
    run = Compiler(complaints).loose(tree)
    complaints.settle()
    conjuncts = tuple(dict.fromkeys(repr(part) for part in _conjuncts(tree)))
    return Expression(source, reader.reads, conjuncts, constant_path(tree), place, run, _hands_on(tree))


def _conjuncts(node: nodes.Node) -> list[nodes.Node]:
    return [*_conjuncts(node.left), *_conjuncts(node.right)] if isinstance(node, nodes.And) else [node]


def _hands_on(node: nodes.Node) -> bool:
    """Whether an expression only chooses and hands on a value that is there already, so that nothing is made."""
    if constant_path(node) is not None or isinstance(node, nodes.Const):
        return True
    match node:
        case nodes.Getitem(arg=nodes.Slice()):
            return False
        case nodes.Getitem() | nodes.Getattr():
            return _hands_on(node.node)
        case nodes.CondExpr():
            return _hands_on(node.expr1) and (node.expr2 is None or _hands_on(node.expr2))
        case nodes.And() | nodes.Or():
            return _hands_on(node.left) and _hands_on(node.right)
        case nodes.Filter(name="default" | "d" | "first" | "last") if node.node is not None:
            return all(_hands_on(part) for part in (node.node, *node.args, *(k.value for k in node.kwargs)))
    return False


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """One string with templates in it; renders to a value and the slots of its secrets below it.

    `at` is its pointer in the tree, `path` the root and path that it is, if it is exactly one `{{ path }}`.
    """

    source: str
    reads: tuple[Read, ...]
    secrets: frozenset[str]
    place: str
    at: str
    path: Place | None
    _render: Callable[[Frame], tuple[JSON, Slots]] = field(repr=False)

    def render(self, scope: Scope, meter: Meter, lenient: bool) -> tuple[JSON, Slots]:
        """Raises TemplateError with template and place."""
        try:
            return self._render(Frame(scope, meter, _NO_SINK, lenient))
        except TemplateError as exc:
            raise located_error(exc.message, self.source, place=self.place, at=self.at) from None
        except RecursionError:
            raise located_error("a value is nested too deep", self.source, place=self.place, at=self.at) from None


def compile_text(source: str, use: str, place: str, at: str, allow_secrets: bool, names: Collection[str]) -> TextTemplate:
    """Compile one string. Raises TemplateErrors with everything that is wrong with it."""
    complaints = _Complaints(source, place, at)
    try:
        parsed = parse_template(source)
    except Broken as exc:
        complaints.add(str(exc), exc.offset)
        raise TemplateErrors(complaints.errors) from None
    complaints = _Complaints(source, place, at, parsed.spans, parsed.body)
    reader = Reader(names, complaints)
    reader.statements(parsed.body, set())
    compiler = Compiler(complaints, use, allow_secrets)
    compiler.prepare(parsed.body)
    single = parsed.single
    if use == "sql":
        render = _sql(parsed, compiler, complaints)
    elif single is not None and use in ("", "url", "command"):
        render = _single(single, source, compiler, one_argument=use == "command")
    else:
        render = _text(compiler.body(parsed.body), use if use in ("html", "url") else "")
    complaints.settle()
    path = constant_path(single) if single is not None else None
    return TextTemplate(source, reader.reads, frozenset(compiler.secrets), place, at, path, render)


def _single(tree: nodes.Expr, source: str, compiler: Compiler, *, one_argument: bool) -> Callable[[Frame], tuple[JSON, Slots]]:
    place = constant_path(tree)
    secret = place is not None and place[0] == "secrets"
    run = constant_reader(str(place[0]), place[1:], False) if place is not None and not secret else compiler.loose(tree, root=True)
    handed = _hands_on(tree)

    def render(frame: Frame) -> tuple[JSON, Slots]:
        value = run(frame)
        kind = type(value)
        if handed and not one_argument and (kind is dict or kind is str or kind is list):
            return value, ()
        if kind is Absent:
            if not frame.lenient:
                raise TemplateError(value.message())
            return None, ()
        if hasattr(value, "hidden"):
            return value.hidden(), (("", value.parts),)
        op.admit(value, source)
        if one_argument:
            if value is None or isinstance(value, dict | list | tuple):
                raise TemplateError("an argument of a command is one text or number, found " + described(value))
            return op.write(value, frame.meter.result), ()
        if not handed and (kind is dict or kind is list or kind is str):
            frame.meter.result_holds(value)
        return value, ()

    return render


def _text(body: Exec, form: str) -> Callable[[Frame], tuple[JSON, Slots]]:
    def render(frame: Frame) -> tuple[JSON, Slots]:
        sink = TextSink(frame.meter, form)
        _write(body, frame, sink)
        text, parts = sink.finish()
        return text, ((("", parts),) if parts else ())

    return render


def _sql(parsed: Parsed, compiler: Compiler, complaints: _Complaints) -> Callable[[Frame], tuple[JSON, Slots]]:
    if parsed.single is not None:
        complaints("the whole statement cannot come from data; write the SQL here, with {{ }} where its values stand", parsed.body[0])
    SqlCheck(parsed.source, complaints.span_of, complaints).run(parsed.body)
    body, taken = compiler.body(parsed.body), colon_names(parsed.body)

    def render(frame: Frame) -> tuple[JSON, Slots]:
        sink = SqlSink(frame.meter, taken)
        _write(body, frame, sink)
        return sink.finish(), tuple((f"/values/{name}", parts) for name, parts in sink.slots)

    return render


def _write(body: Exec, frame: Frame, sink: Sink) -> None:
    frame.sink = sink
    body(frame)
