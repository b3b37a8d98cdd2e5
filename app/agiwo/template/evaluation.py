"""An expression's tree to Python closures that evaluate it over a scope, counting all work; nothing else is ever executed.

It knows no Python attribute, method or global: a template reaches JSON values, namespaces and the tables of `catalog`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import nodes

from agiwo.errors import TemplateError
from agiwo.template import operators as op
from agiwo.template.absent import Absent, Scope, described, nearest, path_text, step_into
from agiwo.template.catalog import FILTERS, FUNCTIONS, TESTS
from agiwo.template.marks import Marked, SecretName
from agiwo.template.meter import Meter
from agiwo.template.reads import ROOTS, constant_path
from agiwo.template.sinks import Sink
from agiwo.template.tables import html_table


class Frame:
    """One rendering under way: its scope, the names that it set, its meter, where its text goes, and what absent names give."""

    __slots__ = ("lenient", "locals", "meter", "scope", "sink")

    def __init__(self, scope: Scope, meter: Meter, sink: Sink, lenient: bool = False) -> None:
        self.scope = scope
        self.meter = meter
        self.locals: dict[str, object] = {}
        self.sink = sink
        self.lenient = lenient


Eval = Callable[[Frame], Any]
_PLAIN = frozenset({str, int, float, bool, type(None), list, dict})
_MISSING = object()

_BINARY: dict[type[nodes.Node], Callable[[Meter, Any, Any], object]] = {
    nodes.Add: op.add,
    nodes.Sub: op.subtract,
    nodes.Mul: op.multiply,
    nodes.Div: op.divide,
    nodes.FloorDiv: op.floor_divide,
    nodes.Mod: op.modulo,
    nodes.Pow: op.power,
}
_COMPARE: dict[str, Callable[[Meter, Any, Any], bool]] = {
    "eq": op.same,
    "ne": lambda m, a, b: not op.same(m, a, b),
    "lt": lambda m, a, b: op.less(m, a, b, "<"),
    "gt": lambda m, a, b: op.less(m, b, a, ">"),
    "lteq": lambda m, a, b: not op.less(m, b, a, "<="),
    "gteq": lambda m, a, b: not op.less(m, a, b, ">="),
    "in": op.contains,
    "notin": lambda m, a, b: not op.contains(m, a, b),
}
_METHODS = {"items": "items", "keys": "keys", "values": "values", "upper": "upper", "lower": "lower", "strip": "trim", "split": "split",
            "replace": "replace", "get": "default", "join": "join", "title": "title"}  # fmt: skip
Complain = Callable[[str, nodes.Node], None]


def never(frame: Frame) -> Any:
    raise TemplateError("the template has errors")  # a tree with complaints is never run


@dataclass(slots=True)
class ExpressionCompiler:
    """Compiles the expressions of one template; complaints are collected, so that all errors are found in one go."""

    complain: Complain
    use: str = ""
    allow_secrets: bool = False
    secrets: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)

    def strict(self, node: nodes.Node) -> Eval:
        """An expression whose value is used: an absent name, a group of names or a secret is an error."""
        value = self.loose(node)
        place = constant_path(node)
        source = path_text(str(place[0]), place[1:]) if place else "the expression"

        def run(frame: Frame) -> Any:
            found = value(frame)
            return found if type(found) in _PLAIN else op.admit(found, source)

        return run

    def loose(self, node: nodes.Node, *, root: bool = False) -> Eval:
        """An expression whose value may be absent; `root`: it stands for a whole `{{ }}`, where a secret may stand."""
        if (place := constant_path(node)) is not None and place[0] == "secrets" and "secrets" not in self.assigned:
            return self._secret(node, place, root)
        if isinstance(node, nodes.Const):
            constant = node.value
            return lambda frame: constant
        if type(node) in _BINARY:
            assert isinstance(node, nodes.BinExpr)
            left, right, apply = self.strict(node.left), self.strict(node.right), _BINARY[type(node)]
            return lambda frame: apply(frame.meter, left(frame), right(frame))
        return self._made(node, place, root)

    def _made(self, node: nodes.Node, place: tuple[str | int, ...] | None, root: bool) -> Eval:
        match node:
            case nodes.Name() | nodes.Getattr() | nodes.Getitem():
                return self._path(node, place)
            case nodes.List() | nodes.Tuple():
                return self._list(node)
            case nodes.Dict():
                return self._dict(node)
            case nodes.And() | nodes.Or() | nodes.Not() | nodes.CondExpr():
                return self._logic(node, root)
            case nodes.Concat():
                return self._concat(node, root)
            case nodes.Compare():
                return self._compare(node)
            case nodes.Filter() | nodes.Test() | nodes.Call():
                return self._call(node)
            case nodes.Neg() | nodes.Pos():
                value, negative = self.strict(node.node), isinstance(node, nodes.Neg)
                return lambda frame: op.negate(value(frame)) if negative else op.negate(op.negate(value(frame)))
        self.complain(f"`{type(node).__name__.lower()}` is not allowed in an expression", node)
        return never

    def _secret(self, node: nodes.Node, place: tuple[str | int, ...], root: bool) -> Eval:
        if len(place) != 2 or not isinstance(place[1], str):
            self.complain("a secret is written as secrets.NAME; nothing can be looked up in it", node)
        elif not self.allow_secrets:
            self.complain(f"`secrets.{place[1]}` may stand only in parameters, prompts and tool configuration", node)
        elif not root:
            self.complain(f"`secrets.{place[1]}` may only stand alone or be joined to text; nothing else can be done with it", node)
        else:
            self.secrets.add(place[1])
            mark = Marked((SecretName(place[1]),))
            return lambda frame: mark
        return never

    def _path(self, node: nodes.Expr, place: tuple[str | int, ...] | None) -> Eval:
        if place is not None:
            return constant_reader(str(place[0]), place[1:], str(place[0]) in self.assigned)
        assert isinstance(node, nodes.Getattr | nodes.Getitem)
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return self._slice(node.node, node.arg)
        holder = self.loose(node.node)
        key = self.strict(node.arg) if isinstance(node, nodes.Getitem) else None
        attribute = node.attr if isinstance(node, nodes.Getattr) else ""
        inner = constant_path(node.node)
        where = path_text(str(inner[0]), inner[1:]) if inner else "(…)"

        def run(frame: Frame) -> object:
            value = holder(frame)
            part = attribute if key is None else key(frame)
            if type(value) is Absent:
                return value
            return step_into(op.admit(value, where) if isinstance(value, Marked) else value, part, where)

        return run

    def _slice(self, holder_node: nodes.Node, node: nodes.Slice) -> Eval:
        holder = self.strict(holder_node)
        bounds = [None if part is None else self.strict(part) for part in (node.start, node.stop, node.step)]

        def run(frame: Frame) -> object:
            value = holder(frame)
            if not isinstance(value, str | list | tuple):
                raise TemplateError(f"only a list or a text can be cut, found {described(value)}")
            numbers = [None if b is None or (n := b(frame)) is None else op.whole(n, "a bound of a cut") for b in bounds]
            if numbers[2] == 0:
                raise TemplateError("the step of a cut is 0")
            cut = slice(*numbers)
            frame.meter.walk(1 + len(range(*cut.indices(len(value)))))
            return value[cut] if isinstance(value, str) else list(value[cut])

        return run

    def _list(self, node: nodes.List | nodes.Tuple) -> Eval:
        items = [self.strict(item) for item in node.items]

        def run(frame: Frame) -> list[Any]:
            frame.meter.walk(1 + len(items))
            return [item(frame) for item in items]

        return run

    def _dict(self, node: nodes.Dict) -> Eval:
        pairs = [(self.strict(pair.key), self.strict(pair.value)) for pair in node.items]

        def run(frame: Frame) -> dict[str, Any]:
            frame.meter.walk(1 + len(pairs))
            return {op.text(key(frame), "a key of an object"): value(frame) for key, value in pairs}

        return run

    def _logic(self, node: nodes.Expr, root: bool) -> Eval:
        if isinstance(node, nodes.Not):
            value = self.strict(node.node)
            return lambda frame: not value(frame)
        if isinstance(node, nodes.And | nodes.Or):
            left, right = self.strict(node.left), self.strict(node.right)
            if isinstance(node, nodes.And):
                return lambda frame: left(frame) and right(frame)
            return lambda frame: left(frame) or right(frame)
        assert isinstance(node, nodes.CondExpr)
        test, then = self.strict(node.test), self.loose(node.expr1, root=root)
        if node.expr2 is not None:
            otherwise = self.loose(node.expr2, root=root)
        else:
            nothing = Absent("the expression", "its `if` does not hold and it has no `else`")

            def otherwise(frame: Frame) -> object:
                return nothing

        return lambda frame: then(frame) if test(frame) else otherwise(frame)

    def _concat(self, node: nodes.Concat, root: bool) -> Eval:
        parts = [self.loose(part, root=root) for part in node.nodes]

        def run(frame: Frame) -> object:
            texts: list[str | SecretName] = []
            marked = False
            for part in parts:
                value = part(frame)
                if type(value) is Marked:
                    marked = True
                    texts.extend(value.parts)
                    continue
                if type(value) is Absent and frame.lenient and root:
                    value = None
                text = op.write(op.admit(value, "the expression"), frame.meter.units)
                frame.meter.walk(len(text))
                texts.append(text)
            return Marked(tuple(texts)) if marked else "".join(texts)  # type: ignore[arg-type]

        return run

    def _compare(self, node: nodes.Compare) -> Eval:
        first = self.strict(node.expr)
        rest = [(_COMPARE[operand.op], self.strict(operand.expr)) for operand in node.ops]

        def run(frame: Frame) -> bool:
            left = first(frame)
            for holds, operand in rest:
                right = operand(frame)
                if not holds(frame.meter, left, right):
                    return False
                left = right
            return True

        return run

    def _call(self, node: nodes.Filter | nodes.Test | nodes.Call) -> Eval:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            self.complain("arguments are written out; * and ** are not allowed", node)
        args, names = list(node.args), {str(pair.key): pair.value for pair in node.kwargs}
        if isinstance(node, nodes.Call):
            name, kind, table = (node.node.name if isinstance(node.node, nodes.Name) else ""), "function", FUNCTIONS
            subject = args.pop(0) if args else None
        else:
            name, subject = node.name, node.node
            kind, table = ("filter", FILTERS) if isinstance(node, nodes.Filter) else ("test", TESTS)
        entry = table.get(name)
        if entry is None or subject is None:
            self.complain(self._no_such(node, name, kind, table), node)
            return never
        problem = entry.accepts(len(args), tuple(names)) or self._inner_name(name, args)
        if problem:
            self.complain(f"the {kind} `{name}`: {problem}", node)
            return never
        if name in ("default", "d"):
            fallback, boolean = [*args, None, None][:2]
            return self._default(subject, fallback or names.get("default_value"), boolean or names.get("boolean"))
        value = self.loose(subject) if name in ("defined", "undefined") else self.strict(subject)
        run = html_table if name == "table" and self.use == "html" else entry.run
        return _invocation(run, value, [self.strict(arg) for arg in args], {key: self.strict(arg) for key, arg in names.items()}, name)

    @staticmethod
    def _no_such(node: nodes.Node, name: str, kind: str, table: Collection[str]) -> str:
        if isinstance(node, nodes.Call) and name in table:
            return f"the function `{name}` needs an argument"
        if isinstance(node, nodes.Call) and not isinstance(node.node, nodes.Name):
            method = node.node.attr if isinstance(node.node, nodes.Getattr) else ""
            hint = f"; write `| {_METHODS[method]}`" if method in _METHODS else ""
            return f"methods cannot be called{f': `.{method}()`' if method else ''}{hint}"
        near = nearest(name, table)
        also = f"; there is a filter `{name}`: write `value | {name}`" if isinstance(node, nodes.Call) and name in FILTERS else ""
        return f"there is no {kind} `{name}`{f' (did you mean `{near}`?)' if near else ''}{also}"

    @staticmethod
    def _inner_name(name: str, args: Sequence[nodes.Node]) -> str | None:
        """The filter or test that `map`, `select` and the like name must be written out and must exist."""
        index = 1 if name in ("selectattr", "rejectattr") else 0
        if name not in ("map", "select", "reject", "selectattr", "rejectattr") or len(args) <= index:
            return None
        inner = args[index]
        table, kind = (FILTERS, "filter") if name == "map" else (TESTS, "test")
        if not isinstance(inner, nodes.Const) or not isinstance(inner.value, str):
            return f"the {kind}'s name must be written out as text"
        if inner.value not in table:
            near = nearest(inner.value, table)
            return f"there is no {kind} `{inner.value}`{f' (did you mean `{near}`?)' if near else ''}"
        return table[inner.value].accepts(len(args) - index - 1, ())

    def _default(self, subject: nodes.Node, fallback: nodes.Node | None, boolean: nodes.Node | None) -> Eval:
        value = self.loose(subject)
        other = self.loose(fallback) if fallback is not None else (lambda frame: "")
        empty_too = self.strict(boolean) if boolean is not None else None

        def run(frame: Frame) -> object:
            found = value(frame)
            if type(found) is Absent or (empty_too is not None and not found and empty_too(frame)):
                return other(frame)
            return op.admit(found, "the value") if isinstance(found, Marked) else found

        return run


def constant_reader(root: str, path: tuple[str | int, ...], maybe_local: bool) -> Eval:
    """The read of a path that is written out; the commonest expression by far, so it does nothing but look up."""

    def run(frame: Frame) -> object:
        value = frame.locals.get(root, _MISSING) if maybe_local else _MISSING
        if value is _MISSING:
            value = frame.scope.get(root, _MISSING)
            if value is _MISSING:
                known = tuple(sorted(frame.scope)) if root in ROOTS else ()
                return Absent(root, "it is not given here" if root in ROOTS else "it was not set", known)
        for depth, part in enumerate(path):
            if type(value) is dict and part in value:
                value = value[part]
            else:
                value = step_into(value, part, path_text(root, path[:depth]))
                if type(value) is Absent:
                    return value
        return value

    return run


def _invocation(run: Callable[..., Any], value: Eval, args: list[Eval], names: dict[str, Eval], name: str) -> Eval:
    if not args and not names:
        return lambda frame: run(frame.meter, value(frame))

    def call(frame: Frame) -> Any:
        return run(frame.meter, value(frame), *(arg(frame) for arg in args), **{key: arg(frame) for key, arg in names.items()})

    return call
