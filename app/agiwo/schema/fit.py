"""Whether what one schema produces can be what another one takes, asked before anything runs.

It must not guess: an error is a mismatch that no value escapes, a warning one that depends on the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.errors import Problem
from agiwo.schema.coercion import resolve
from agiwo.values import kind_of, pointer

_ALL = ("null", "boolean", "integer", "number", "string", "array", "object")
#: What a value of the first type can become by a lossless conversion: always, or only if its text or value allows it.
_ALWAYS = {("integer", "number"), ("integer", "string"), ("number", "string"), ("boolean", "string")}
_PERHAPS = {("number", "integer")} | {("string", kind) for kind in ("integer", "number", "boolean", "object", "array")}
_MAX_DEPTH = 32


def compatible(producer: Mapping[str, Any] | bool, consumer: Mapping[str, Any] | bool) -> list[Problem]:
    """Where values of `producer` do not fit `consumer`, by type and by required and forbidden names.

    Each Problem's pointer leads into the value; `severity` is `error` if no value can fit, else `warning`. Both schemas are valid ones.
    """
    out: list[Problem] = []
    _compare(_Side(producer, producer), _Side(consumer, consumer), (), True, out)
    return out


class _Side:
    """A part of a schema together with the whole that its references lead into."""

    __slots__ = ("part", "root")

    def __init__(self, part: Any, root: Any) -> None:
        for _ in range(_MAX_DEPTH):
            if not isinstance(part, Mapping) or set(part) & {"type", "properties", "items"} or not isinstance(part.get("$ref"), str):
                break
            found = resolve(root, part["$ref"])
            part = True if found is None else found[0]
        self.part = part if isinstance(part, Mapping) else {}
        self.root = root

    def types(self) -> tuple[str, ...]:
        """The types that a value may have; all of them where the schema does not say plainly."""
        if isinstance(named := self.part.get("type"), str):
            return (named,)
        if isinstance(named, list | tuple):
            return tuple(named)
        if "const" in self.part:
            return (kind_of(self.part["const"]),)
        if isinstance(values := self.part.get("enum"), list | tuple):
            return tuple(dict.fromkeys(kind_of(v) for v in values))
        for word in ("anyOf", "oneOf"):
            if isinstance(branches := self.part.get(word), list | tuple):
                return tuple(dict.fromkeys(t for branch in branches for t in _Side(branch, self.root).types()))
        return _ALL

    def child(self, part: Any) -> _Side:
        return _Side(part, self.root)

    @property
    def plain(self) -> bool:
        """Whether the schema has no alternatives, so that its names and items say all."""
        return not set(self.part) & {"anyOf", "oneOf", "allOf", "if", "$ref", "patternProperties", "dependentSchemas"}


def _compare(made: _Side, taken: _Side, at: tuple[str | int, ...], certain: bool, out: list[Problem]) -> None:
    if len(at) > _MAX_DEPTH:
        return
    sources, targets = made.types(), taken.types()
    worst = [_best(source, targets) for source in sources]
    if min(worst, default=2) < 2 or max(worst, default=2) < 2:
        severity = "error" if certain and max(worst) == 0 else "warning"
        found, expected = " or ".join(sources), " or ".join(targets)
        if set(sources) != set(_ALL):
            message = f"gives {found}, expected {expected}"
            out.append(_mismatch(message, at, found, expected, severity == "error"))
        if max(worst) == 0:
            return
    if sources == ("object",) and "object" in targets and made.plain and taken.plain:
        _compare_objects(made, taken, at, certain, out)
    if sources == ("array",) and "array" in targets and made.plain and taken.plain and "prefixItems" not in {*made.part, *taken.part}:
        filled = certain and made.part.get("minItems", 0) > 0
        _compare(made.child(made.part.get("items", True)), taken.child(taken.part.get("items", True)), (*at, 0), filled, out)


def _best(source: str, targets: tuple[str, ...]) -> int:
    """2: always fits, 1: depends on the value, 0: never fits."""
    if source in targets or any((source, target) in _ALWAYS for target in targets):
        return 2
    return 1 if any((source, target) in _PERHAPS for target in targets) else 0


def _compare_objects(made: _Side, taken: _Side, at: tuple[str | int, ...], certain: bool, out: list[Problem]) -> None:
    given, wanted = made.part.get("properties", {}), taken.part.get("properties", {})
    always = set(made.part.get("required", ()))
    for name in taken.part.get("required", ()):
        if name not in given and made.part.get("additionalProperties") is False:
            message = f"never gives {name}, which is required"
            out.append(_mismatch(message, (*at, name), "nothing", "a value", certain))
    for name, part in given.items():
        sure = certain and name in always
        if name in wanted:
            _compare(made.child(part), taken.child(wanted[name]), (*at, name), sure, out)
        elif taken.part.get("additionalProperties") is False:
            out.append(_mismatch(f"gives {name}, for which there is no place", (*at, name), name, "a known name", sure))


def _mismatch(message: str, at: tuple[str | int, ...], found: str, expected: str, certain: bool) -> Problem:
    severity = "error" if certain else "warning"
    return Problem("schema_mismatch", message, pointer(*at), found=found, expected=expected, severity=severity)
