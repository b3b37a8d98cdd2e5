"""A JSON tree whose strings hold templates: compiled once with the definition, rendered once for each step run.

What is rendered is data from then on; nothing in it is ever looked at as a template again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from agiwo.errors import TemplateError
from agiwo.template.absent import Scope, described
from agiwo.template.expression import TemplateErrors, TextTemplate, compile_text, located_error
from agiwo.template.marks import SecretSlot
from agiwo.template.meter import Meter
from agiwo.template.parse import is_template
from agiwo.template.reads import Read
from agiwo.values import JSON, encode, pointer

USES = frozenset({"sql", "html", "command", "url"})
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered value, fit to be recorded: where a secret belongs it holds `***`, and a slot says how to fill it in."""

    value: JSON
    secrets: tuple[SecretSlot, ...] = ()


@dataclass(slots=True)
class _Run:
    scope: Scope
    meter: Meter
    lenient: bool
    slots: list[SecretSlot]


Builder = Callable[[_Run], JSON]


@dataclass(frozen=True, slots=True)
class ValueTemplate:
    """A compiled tree; `constant` if it holds no template, so that it always renders to the same value.

    `texts` are its strings with templates one by one, each with its own reads and its pointer `at`.
    """

    source: JSON
    reads: tuple[Read, ...]
    constant: bool
    secrets: frozenset[str]
    texts: tuple[TextTemplate, ...]
    _build: Builder = field(repr=False, compare=False)

    def render(self, scope: Scope, *, open_as_null: bool = False) -> Rendered:
        """The value over a scope, its constant parts shared with the source and its data shared with the scope.

        `open_as_null`: a `{{ }}` whose name is not there gives null (the `output` of a workflow) instead of an error.
        Raises TemplateError that names the template, its place, the missing name and what exists there.
        """
        run = _Run(scope, Meter(), open_as_null, [])
        value = self._build(run)
        return Rendered(value, tuple(run.slots))


def compile_value(
    source: JSON,
    *,
    uses: Mapping[str, str] | None = None,
    place: str = "",
    allow_secrets: bool = False,
    names: Collection[str] = (),
) -> ValueTemplate:
    """Compile a JSON tree whose strings may hold templates.

    `uses` says of top-level keys how their text is used (sql, html, command, url); `place` is how messages call the tree;
    `names` are roots that hold here besides `ROOTS`. Raises TemplateErrors with everything that is wrong in the whole tree.
    """
    compiling = _Compiling(place, allow_secrets, tuple(names))
    uses = {key: use for key, use in (uses or {}).items() if use in USES}
    if uses and isinstance(source, dict):
        build = compiling.members(source, (), uses)
    else:
        bound = sorted(key for key, use in uses.items() if use != "url")
        if bound and isinstance(source, str) and is_template(source):
            hint = f"`{bound[0]}` is used as {uses[bound[0]]}: write the parameters as a mapping, so that its text stands here"
            compiling.refuse(hint, source, ())
        build = compiling.value(source, (), "")
    if compiling.errors:
        raise TemplateErrors(compiling.errors)
    reads = tuple(dict.fromkeys(read for text in compiling.texts for read in text.reads))
    secrets = frozenset[str]().union(*(text.secrets for text in compiling.texts))
    constant = not compiling.texts
    return ValueTemplate(source, reads, constant, secrets, tuple(compiling.texts), build or (lambda run: source))


class _Compiling:
    """One walk over a tree. A builder of None stands for a part that is constant."""

    def __init__(self, place: str, allow_secrets: bool, names: Collection[str]) -> None:
        self._place, self._allow_secrets, self._names = place, allow_secrets, names
        self.errors: list[TemplateError] = []
        self.texts: list[TextTemplate] = []

    def refuse(self, message: str, source: JSON, at: Path) -> None:
        text = source if isinstance(source, str) else encode(source)
        self.errors.append(located_error(message, text, offset=0, place=self._place, at=pointer(*at)))

    def value(self, source: JSON, at: Path, use: str) -> Builder | None:
        if isinstance(source, str):
            return self._text(source, at, use)
        if use == "sql" or (use == "command" and len(at) == 1 and not isinstance(source, list | tuple)):
            self.refuse(f"{'SQL is a text' if use == 'sql' else 'a command is a list of arguments'}, found {described(source)}", source, at)
            return None
        if use == "command" and len(at) > 1 and (source is None or isinstance(source, dict | list | tuple)):
            self.refuse(f"an argument of a command is one text or number, found {described(source)}", source, at)
            return None
        if isinstance(source, dict):
            return self.members(source, at, dict.fromkeys(source, use))
        if isinstance(source, list | tuple):
            return self._elements(source, at, use)
        return None

    def members(self, source: dict[str, JSON], at: Path, uses: Mapping[str, str]) -> Builder | None:
        parts: list[tuple[str, Builder]] = []
        for key, item in source.items():
            if is_template(key):
                self.refuse("a key is no template; only values are rendered", key, (*at, key))
            if (build := self.value(item, (*at, key), uses.get(key, ""))) is not None:
                parts.append((key, build))
        if not parts:
            return None

        def build_object(run: _Run) -> JSON:
            out = dict(source)
            for key, build in parts:
                out[key] = build(run)
            return out

        return build_object

    def _elements(self, source: list[JSON] | tuple[JSON, ...], at: Path, use: str) -> Builder | None:
        parts: list[tuple[int, Builder]] = []
        for index, item in enumerate(source):
            if (build := self.value(item, (*at, index), use)) is not None:
                parts.append((index, build))
        if not parts:
            return None

        def build_list(run: _Run) -> JSON:
            out = list(source)
            for index, build in parts:
                out[index] = build(run)
            return out

        return build_list

    def _text(self, source: str, at: Path, use: str) -> Builder | None:
        if use == "command" and len(at) == 1:
            self.refuse("a command is a list of arguments, each an element of its own, not one text", source, at)
            return None
        if not is_template(source):
            # Each rendering gets a statement of its own: what is handed out may be filled in by its owner.
            return (lambda run: {"statement": source, "values": {}}) if use == "sql" else None
        where = pointer(*at)
        try:
            text = compile_text(source, use, self._place, where, self._allow_secrets, self._names)
        except TemplateErrors as exc:
            self.errors.extend(exc.errors)
            return None
        self.texts.append(text)

        def build(run: _Run) -> JSON:
            value, slots = text.render(run.scope, run.meter, run.lenient)
            for below, parts in slots:
                run.slots.append(SecretSlot(where + below, parts))
            return value

        return build
