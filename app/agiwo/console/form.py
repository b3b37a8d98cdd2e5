"""The form of an approval: fields from a JSON Schema, and what was typed into them back as values.

Knows text in, values out; whether the values fit is the service's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.console.texts import Texts
from agiwo.errors import ValueRefused
from agiwo.values import decode_strict, encode

PREFIX = "field."


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `control` is text, long, number, boolean, choice or json; `options` are (submitted text, shown text)."""

    name: str
    label: str
    hint: str
    control: str
    required: bool
    typed: str
    options: tuple[tuple[str, str], ...] = ()
    problem: str | None = None

    @property
    def key(self) -> str:
        return PREFIX + self.name


def fields(schema: Mapping[str, Any] | None, typed: Mapping[str, str], problems: Mapping[str, str]) -> list[Field]:
    """The fields of a form with what was typed so far and what is wrong with it (by name)."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping):
        return []
    required = (schema or {}).get("required", ())
    return [_field(name, _object(part), name in required, typed, problems.get(name)) for name, part in properties.items()]


def _object(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else {}


def _field(name: str, part: Mapping[str, Any], required: bool, typed: Mapping[str, str], problem: str | None) -> Field:
    control = _control(part)
    options = tuple((str(index), _shown(value)) for index, value in enumerate(part["enum"])) if control == "choice" else ()
    given = typed.get(PREFIX + name)
    if given is None:
        given = _initial(part, control)
    return Field(name, str(part.get("title", name)), str(part.get("description", "")), control, required, given, options, problem)


def _control(part: Mapping[str, Any]) -> str:
    if isinstance(part.get("enum"), list):
        return "choice"
    kind = part.get("type")
    if kind == "string":
        return "long" if part.get("maxLength", 0) > 200 else "text"
    if kind in ("integer", "number"):
        return "number"
    return "boolean" if kind == "boolean" else "json"


def _initial(part: Mapping[str, Any], control: str) -> str:
    if "default" not in part:
        return ""
    default = part["default"]
    if control == "choice":
        return str(part["enum"].index(default)) if default in part["enum"] else ""
    return _shown(default)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else encode(value)


def values(schema: Mapping[str, Any] | None, typed: Mapping[str, str], texts: Texts) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that were typed, and what cannot be read (by name). A field that was left empty has no value."""
    out: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for field in fields(schema, typed, {}):
        text = typed.get(field.key, "")
        if text == "":
            if field.required:
                problems[field.name] = texts["missing"]
            continue
        part = _object((schema or {})["properties"][field.name])
        try:
            out[field.name] = _value(field, part, text)
        except (ValueRefused, ValueError, IndexError):
            problems[field.name] = texts["not_number" if field.control == "number" else "not_json"]
    return out, problems


def _value(field: Field, part: Mapping[str, Any], text: str) -> Any:
    if field.control in ("text", "long"):
        return text
    if field.control == "choice":
        if not text.isascii() or not text.isdigit():
            raise ValueError(text)
        return part["enum"][int(text)]
    value = decode_strict(text.strip().encode())
    if field.control == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(text)
    return value
