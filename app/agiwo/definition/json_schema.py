"""The form of a definition as a JSON Schema for editors, made from the very checks that read definitions.

It says what a document may look like; what its parts mean together only the service's own judgement says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from agiwo.definition import model
from agiwo.definition.compiled import Kind
from agiwo.definition.shape import (
    ByKind,
    Check,
    Duration,
    Many,
    Named,
    Number,
    Only,
    Record,
    Text,
    Words,
    anything,
    expression,
    flag,
    schema,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Form = dict[str, Any]
#: As `durations` reads them.
_DURATION = r"^(?=.)(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m(?!s))?(\d{1,9}s)?(\d{1,12}ms)?$"


@cache
def _made() -> Form:
    definition = _form(model.WORKFLOW)
    return {
        "$schema": DIALECT,
        "title": "A workflow definition of Agiwo",
        "if": {"type": "object", "required": ["workflow"]},
        "then": {"properties": {"workflow": {"$ref": "#/$defs/workflow"}}, "additionalProperties": False},
        "else": {"$ref": "#/$defs/workflow"},
        "$defs": {"workflow": definition, "step": _step(), **{kind.value: _kind(kind) for kind in Kind}},
    }


def json_schema() -> Form:
    """A JSON Schema (2020-12) of a definition, with and without the `workflow:` wrapper."""
    return _made()


def _form(check: Check) -> Form:
    of_kind = _KINDS.get(type(check))
    return _FUNCTIONS[check]() if of_kind is None else of_kind(check)


def _step() -> Form:
    known = [kind.value for kind in Kind] + list(model.ALIASES)
    chosen = []
    for kind in Kind:
        names = [kind.value, *(alias for alias, meant in model.ALIASES.items() if meant is kind)]
        this = {"properties": {"type": {"enum": names}}, "required": ["type"]}
        chosen.append({"if": this, "then": {"$ref": f"#/$defs/{kind.value}"}})
    return {"type": "object", "required": ["id", "type"], "properties": {"type": {"enum": known}}, "allOf": chosen}


def _kind(kind: Kind) -> Form:
    return _form(model.STEP[kind])


def _text(check: Text) -> Form:
    # A plain scalar counts as it was written, so an editor may see a number where we see text.
    pattern = check.pattern or ""
    types = ["string", *(name for name, example in (("number", "1.0"), ("boolean", "true")) if re.fullmatch(pattern or ".*", example))]
    out: Form = {"type": types if len(types) > 1 else "string", "maxLength": check.longest}
    if pattern:
        # Not every editor's regular expressions have `(?s)`.
        plain = pattern.removeprefix("(?s)").replace(".", r"[\s\S]") if pattern.startswith("(?s)") else pattern
        out["pattern"] = f"^(?:{plain})$"
    if check.expected != "a text":
        out["description"] = check.expected
    return out


def _many(check: Many) -> Form:
    items: Form = {"type": "array", "items": _form(check.item), "minItems": check.least}
    return {"anyOf": [_form(check.item), items]} if check.single else items


def _named(check: Named) -> Form:
    out: Form = {"type": "object", "additionalProperties": _form(check.item), "minProperties": check.least}
    return out if check.key is None else {**out, "propertyNames": {"pattern": f"^(?:{check.key})$"}}


def _record(check: Record) -> Form:
    return {
        "type": "object",
        "description": check.what,
        "properties": {name: _form(part) for name, part in check.keys.items()},
        "required": list(check.required),
        "additionalProperties": False,
    }


def _by_kind(check: ByKind) -> Form:
    forms: list[Form] = []
    for kind, part in check.kinds.items():
        form = {"allOf": [{"type": kind}, _form(part)]}
        forms += [form] if form not in forms else []
    return {"description": check.expected, "anyOf": forms}


def _number(check: Number) -> Form:
    return {"type": "integer" if check.whole else "number", "minimum": check.least, "maximum": check.most}


def _duration(check: Duration) -> Form:
    least: Form = {"minimum": 0} if check.zero else {"exclusiveMinimum": 0}
    return {"anyOf": [{"type": "number", **least}, {"type": "string", "pattern": _DURATION}]}


def _error_route() -> Form:
    return {"if": {"type": "object"}, "then": _form(model.narrowed_route), "else": _form(model.target)}


_KINDS: Mapping[type, Callable[[Any], Form]] = {
    Text: _text,
    Words: lambda check: {"enum": list(check.allowed)},
    Number: _number,
    Duration: _duration,
    Many: _many,
    Named: _named,
    Record: _record,
    ByKind: _by_kind,
    Only: lambda check: {"const": check.value},
}
_FUNCTIONS: Mapping[Any, Callable[[], Form]] = {
    anything: dict,
    flag: lambda: {"type": "boolean"},
    schema: lambda: {"type": "object", "description": "a JSON Schema"},
    expression: lambda: {"type": ["string", "boolean"], "minLength": 1, "description": "an expression, bare or as one {{ }}"},
    model.error_route: _error_route,
    model.step: lambda: {"$ref": "#/$defs/step"},
}
