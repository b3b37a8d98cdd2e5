"""A value of the form that a schema asks for, made up where nobody has the real one.

It tries no more than the plain parts of a schema; whether the value fits is for the schema itself to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.values import JSON

_DEEPEST, _LONGEST, _MOST = 8, 20, 1000
_TEXTS = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "email": "somebody@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-7000-8000-000000000000",
}


def sample(schema: Any, text: str = "…") -> JSON:
    """A made-up value for `schema`; `text` stands where any text will do."""
    return _Making(schema, text).value(schema, 0)


class _Making:
    """One value under way; what nests or branches without end is cut off by a count of parts."""

    def __init__(self, root: Any, text: str) -> None:
        self._root = root
        self._text = text
        self._left = _MOST

    def value(self, schema: Any, depth: int) -> JSON:
        self._left -= 1
        if not isinstance(schema, Mapping) or depth > _DEEPEST or self._left < 0:
            return None if isinstance(schema, Mapping) else self._text
        for key in ("const", "default"):
            if key in schema:
                given: JSON = schema[key]
                return given
        for key in ("examples", "enum"):
            if isinstance(schema.get(key), list) and schema[key]:
                first: JSON = schema[key][0]
                return first
        if isinstance(reference := schema.get("$ref"), str):
            return self.value(_found(self._root, reference), depth + 1)
        for key in ("oneOf", "anyOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.value({**_without(schema, key), **_mapping(schema[key][0])}, depth + 1)
        if isinstance(schema.get("allOf"), list) and schema["allOf"]:
            return self.value(_merged([_without(schema, "allOf"), *schema["allOf"]], self._root), depth + 1)
        return self._typed(schema, depth)

    def _typed(self, schema: Mapping[str, Any], depth: int) -> JSON:
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind is None:
            kind = "object" if "properties" in schema or "required" in schema else "array" if "items" in schema else "string"
        if kind == "object":
            properties = _mapping(schema.get("properties"))
            # What nests without end ends where nothing more is required.
            wanted = properties if depth < _DEEPEST - 2 else ()
            names = dict.fromkeys([*wanted, *schema.get("required", ())])
            return {name: self.value(properties.get(name, {}), depth + 1) for name in names}
        if kind == "array":
            count = min(max(int(schema.get("minItems", 1)), 1), int(schema.get("maxItems", _LONGEST)), _LONGEST)
            return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]
        if kind in ("integer", "number"):
            return _number(schema)
        if kind == "boolean":
            return True
        return None if kind == "null" else _made_text(schema, self._text)


def _number(schema: Mapping[str, Any]) -> JSON:
    least = schema.get("minimum")
    if least is None and "exclusiveMinimum" in schema:
        least = schema["exclusiveMinimum"] + 1
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    number: JSON = least if least is not None else min(1, most) if most is not None else 1
    return number


def _made_text(schema: Mapping[str, Any], text: str) -> str:
    made = _TEXTS.get(str(schema.get("format")), text)
    longest = schema.get("maxLength")
    made = made if longest is None else made[: int(longest)]
    return made.ljust(min(int(schema.get("minLength", 0)), 10_000), ".")


def _found(root: Any, reference: str) -> Any:
    here = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        here = here.get(name, {}) if isinstance(here, Mapping) else {}
    return here if reference.startswith("#") else {}


def _merged(parts: list[Any], root: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for part in parts:
        part = _mapping(part)
        if isinstance(reference := part.get("$ref"), str):
            part = _mapping(_found(root, reference))
        required = [*out.get("required", ()), *part.get("required", ())]
        properties = {**_mapping(out.get("properties")), **_mapping(part.get("properties"))}
        out |= part
        out |= {"properties": properties} if properties else {}
        out |= {"required": required} if required else {}
    return out


def _without(schema: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: part for name, part in schema.items() if name != key}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
