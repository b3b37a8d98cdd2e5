"""The schema that is sent: the author's schema reduced to what endpoints that enforce a schema take.

It never widens or replaces the author's own schema, against which every answer is checked; what cannot be sent is said in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.values import JSON, encode, kind_of

# Kept as they are by every endpoint that enforces a schema.
_KEPT = ("type", "title", "description", "enum", "$ref")
# Only narrow a value further: may be said in words, since the answer is checked again.
_SAID = (
    "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "minProperties", "maxProperties", "propertyNames",
    "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "default", "examples",
)  # fmt: skip
_DROPPED = ("$schema", "$id", "$comment", "$anchor", "readOnly", "writeOnly", "deprecated", "additionalProperties", "required")
_HANDLED = ("properties", "items", "anyOf", "oneOf", "const", "$defs", "definitions")
WRAP = "value"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a kind of endpoint takes as a schema that it enforces.

    With `nullable` an optional property is sent as a required one that may be null, else it stays optional. `most_optional` and
    `most_unions` bound optional properties and places with several types; None: no bound.
    """

    nullable: bool = True
    recursion: bool = True
    most_optional: int | None = None
    most_unions: int | None = None


OPENAI = Dialect()
ANTHROPIC = Dialect(nullable=False, recursion=False, most_optional=24, most_unions=16)
DIALECTS: Mapping[str, Dialect] = {"openai": OPENAI, "anthropic": ANTHROPIC}


@dataclass(frozen=True, slots=True)
class SentSchema:
    """What goes over the wire: `strict` if the endpoint may enforce it; `wrapped` if the value stands under the key `value`."""

    schema: Mapping[str, JSON]
    strict: bool
    wrapped: bool = False


class NotStrict(Exception):
    """The schema says something that the strict form cannot say; the text says what."""


def sent_schema(schema: Mapping[str, JSON], dialect: Dialect = OPENAI, *, always_object: bool = False) -> SentSchema:
    """The form of `schema` that is sent.

    Strict where every object is closed and every property known: optional properties become nullable where the dialect wants it
    (`without_added_nulls` takes those nulls away again), narrowing keywords go into the description. Else the schema as it is, not strict.
    An answer that is no object is wrapped in one in the strict form, since endpoints take only objects at the top; with `always_object` in
    the other one too.
    """
    try:
        return strict_schema(schema, dialect)
    except NotStrict:
        return object_schema(schema) if always_object else SentSchema(dict(schema), strict=False)


def object_schema(schema: Mapping[str, JSON]) -> SentSchema:
    """The schema as it is, wrapped in an object if it is none."""
    if _is_object(schema):
        return SentSchema(dict(schema), strict=False)
    return SentSchema(_wrapped(dict(schema)), strict=False, wrapped=True)


def strict_schema(schema: Mapping[str, JSON], dialect: Dialect = OPENAI) -> SentSchema:
    """The form of `schema` that an endpoint of this dialect can enforce. Raises NotStrict, which says why there is none."""
    wrapped = not _is_object(schema)
    try:
        body = _strict(schema, dialect)
    except RecursionError:
        raise NotStrict("it is nested too deep") from None
    _bounded(body, dialect)
    return SentSchema(_wrapped(body) if wrapped else body, strict=True, wrapped=wrapped)


def _wrapped(body: dict[str, JSON]) -> dict[str, JSON]:
    definitions: dict[str, JSON] = {key: body.pop(key) for key in ("$defs", "definitions") if key in body}
    return {**_object({WRAP: body}), **definitions}


def _bounded(body: Mapping[str, JSON], dialect: Dialect) -> None:
    if not dialect.recursion and _recursive(body):
        raise NotStrict("it refers to itself")
    optional = unions = 0
    for part in _parts(body):
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            optional += len(properties) - len(part.get("required", ()))
        unions += "anyOf" in part or isinstance(part.get("type"), list)
    if dialect.most_optional is not None and optional > dialect.most_optional:
        raise NotStrict(f"it has {optional} optional properties, and {dialect.most_optional} are taken")
    if dialect.most_unions is not None and unions > dialect.most_unions:
        raise NotStrict(f"it has {unions} places with several types, and {dialect.most_unions} are taken")


def _parts(schema: JSON) -> Iterator[Mapping[str, Any]]:
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key in ("properties", "$defs", "definitions"):
        for inner in (schema.get(key) or {}).values():
            yield from _parts(inner)
    for inner in schema.get("anyOf", ()):
        yield from _parts(inner)
    yield from _parts(schema.get("items"))


def _recursive(body: Mapping[str, JSON]) -> bool:
    """Whether following its references may come back to a place."""
    clear: set[str] = set()

    def comes_back(schema: JSON, way: frozenset[str]) -> bool:
        for part in _parts(schema):
            reference = str(part["$ref"]) if "$ref" in part else None
            if reference is None or reference in clear:
                continue
            if reference in way or not reference.startswith("#/") or comes_back(_resolved(reference, body), way | {reference}):
                return True
            clear.add(reference)
        return False

    return comes_back({key: part for key, part in body.items() if key not in ("$defs", "definitions")}, frozenset())


def _is_object(schema: Mapping[str, JSON]) -> bool:
    return schema.get("type") == "object" and "anyOf" not in schema and "oneOf" not in schema


def _object(properties: dict[str, JSON]) -> dict[str, JSON]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _strict(schema: Any, dialect: Dialect) -> dict[str, JSON]:
    if not isinstance(schema, Mapping):
        raise NotStrict("a schema in it is no object")
    unknown = [key for key in schema if key not in (*_KEPT, *_SAID, *_DROPPED, *_HANDLED) and not key.startswith("x-")]
    if unknown:
        raise NotStrict(f"`{unknown[0]}` cannot be said in it")
    out: dict[str, JSON] = {key: schema[key] for key in _KEPT if key in schema}
    _choices(schema, out, dialect)
    for key in ("$defs", "definitions"):
        if key in schema:
            out[key] = {name: _strict(inner, dialect) for name, inner in schema[key].items()}
    kinds = _kinds(out)
    if "object" in kinds:
        _close(schema, out, dialect)
    if "array" in kinds:
        out["items"] = _strict(schema.get("items"), dialect)
    if not kinds and "anyOf" not in out and "$ref" not in out:
        raise NotStrict("a place in it names no type")
    said = [f"{key}: {encode(schema[key])}" for key in _SAID if key in schema]
    if said:
        out["description"] = "\n".join([*([str(out["description"])] if out.get("description") else []), *said])
    return out


def _choices(schema: Mapping[str, JSON], out: dict[str, JSON], dialect: Dialect) -> None:
    if "const" in schema:
        out["enum"] = [schema["const"]]
    if "anyOf" in schema and "oneOf" in schema:
        raise NotStrict("`anyOf` stands beside `oneOf`")
    for key in ("anyOf", "oneOf"):
        if key in schema:
            out["anyOf"] = [_strict(inner, dialect) for inner in schema[key]]
    if "enum" in out and "type" not in out:
        kinds = sorted({kind_of(value) for value in out["enum"]})
        out["type"] = kinds[0] if len(kinds) == 1 else kinds
    if "enum" in out and any(isinstance(value, list | dict) for value in out["enum"]):
        raise NotStrict("an `enum` holds lists or objects")


def _kinds(schema: Mapping[str, JSON]) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _close(schema: Mapping[str, JSON], out: dict[str, JSON], dialect: Dialect) -> None:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties", False) not in (False, True):
        raise NotStrict("an object in it does not name its properties")
    required = schema.get("required", [])
    if any(name not in properties for name in required):
        raise NotStrict("it requires a property that it does not name")
    made = {name: _strict(inner, dialect) for name, inner in properties.items()}
    if dialect.nullable:
        made = {name: inner if name in required else _nullable(inner) for name, inner in made.items()}
    closed = _object(made)
    if not dialect.nullable:
        closed["required"] = [name for name in properties if name in required]
    out.update({key: value for key, value in closed.items() if key != "type"})


def _nullable(schema: dict[str, JSON]) -> dict[str, JSON]:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    out = dict(schema)
    kinds = _kinds(schema)
    if kinds and "null" not in kinds:
        out["type"] = [*kinds, "null"]
    if "enum" in schema and None not in schema["enum"]:
        out["enum"] = [*schema["enum"], None]
    if "anyOf" in schema and {"type": "null"} not in schema["anyOf"]:
        out["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return out


def without_added_nulls(value: JSON, schema: Mapping[str, JSON], accepts_null: Callable[[Mapping[str, JSON]], bool]) -> JSON:
    """`value` without the nulls that stand for an optional property which the author's `schema` does not let be null.

    `accepts_null` tells of a subschema (its references resolved against the root) whether it takes null. Nothing else is changed.
    """
    return _strip(value, schema, schema, accepts_null, 0)


def _strip(value: JSON, schema: Any, root: Mapping[str, JSON], accepts_null: Callable[[Mapping[str, JSON]], bool], depth: int) -> JSON:
    if not isinstance(schema, Mapping) or depth > 100:
        return value
    if "$ref" in schema:
        value = _strip(value, _resolved(schema["$ref"], root), root, accepts_null, depth + 1)
    for key in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(key, ()):
            value = _strip(value, inner, root, accepts_null, depth + 1)
    if isinstance(value, list) and "items" in schema:
        return [_strip(item, schema["items"], root, accepts_null, depth + 1) for item in value]
    properties = schema.get("properties")
    if isinstance(value, dict) and isinstance(properties, Mapping):
        required = schema.get("required", ())
        out: dict[str, JSON] = {}
        for name, item in value.items():
            inner = properties.get(name)
            if item is None and inner is not None and name not in required and not accepts_null(_rooted(inner, root)):
                continue
            out[name] = item if inner is None else _strip(item, inner, root, accepts_null, depth + 1)
        return out
    return value


def _resolved(reference: JSON, root: Mapping[str, JSON]) -> Any:
    here: Any = root
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(here, Mapping) or name not in here:
            return None
        here = here[name]
    return here


def _rooted(schema: Any, root: Mapping[str, JSON]) -> Mapping[str, JSON]:
    if not isinstance(schema, Mapping):
        return {"not": {}} if schema is False else {}
    return {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **schema}
