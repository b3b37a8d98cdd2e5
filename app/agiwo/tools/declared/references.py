"""References inside an OpenAPI document, and its schemas as JSON Schema 2020-12 that stand on their own.

No reference leads out of the document; a schema that refers to itself stays one, by name, and what a document can make us do is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.values import shown

_SCHEMAS = "#/components/schemas/"
MAX_PARTS = 20_000
MAX_HOPS = 8
_ONE = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_ELSEWHERE = ("$defs", "definitions", "$dynamicRef")
#: What OpenAPI adds to a schema, and what would give a part of it another root; neither says anything about values.
_DROPPED = ("nullable", "discriminator", "xml", "externalDocs", "example", "$schema", "$id", "$anchor", "$dynamicAnchor", "$comment")


class Refused(Exception):
    """An operation cannot be imported; the message says why."""


class References:
    """The references of one document as one operation uses them."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._asked: dict[str, None] = {}
        self._parts = 0

    def followed(self, value: Any) -> Mapping[str, Any]:
        """What a part of the document is once its references are followed. Raises Refused."""
        for _ in range(MAX_HOPS):
            if not isinstance(value, Mapping):
                raise Refused("a part of it is no object")
            if "$ref" not in value:
                return value
            value = self._target(value["$ref"])
        raise Refused(f"its references go round, or over more than {MAX_HOPS} steps")

    def schema(self, value: Any) -> Any:
        """A schema of the document as JSON Schema, whose references lead to `definitions`. Raises Refused."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise Refused(f"its schemas have more than {MAX_PARTS:,} parts")
        if isinstance(value, bool):
            return value
        if not isinstance(value, Mapping):
            raise Refused(f"a schema is {shown(value)}")
        out: dict[str, Any] = {key: self._part(key, part) for key, part in value.items() if key not in _DROPPED}
        return _of_3_0(out, value.get("nullable") is True)

    def _part(self, key: str, part: Any) -> Any:
        if key == "$ref":
            return self._definition(part)
        if key in _ONE:
            return self.schema(part)
        if key in _LISTED and isinstance(part, list):
            return [self.schema(one) for one in part]
        if key in _NAMED and isinstance(part, Mapping):
            return {name: self.schema(one) for name, one in part.items()}
        if key in _ELSEWHERE:
            raise Refused(f"a schema has `{key}`; its parts have to stand under components/schemas")
        return part

    def definitions(self) -> dict[str, Any]:
        """The schemas that were referred to, by name, and those that these refer to. Raises Refused."""
        out: dict[str, Any] = {}
        while todo := [name for name in self._asked if name not in out]:
            for name in todo:
                out[name] = self.schema(self._target(_SCHEMAS + name))
        return out

    def _definition(self, reference: Any) -> str:
        if not isinstance(reference, str) or not reference.startswith(_SCHEMAS) or "/" in (name := reference.removeprefix(_SCHEMAS)):
            raise Refused(f"the reference {shown(reference)} is not one to {_SCHEMAS}NAME; no other is followed in a schema")
        self._target(reference)
        self._asked[name] = None
        return f"#/$defs/{name}"

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise Refused(f"the reference {shown(reference)} leads out of the document")
        found: Any = self._document
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                raise Refused(f"the reference {shown(reference)} leads nowhere")
            found = found[key]
        return found


def used_definitions(schema: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the definitions that a schema needs, by the names under which they stand in `$defs`."""
    used: dict[str, Any] = {}
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            reference = part.get("$ref")
            if isinstance(reference, str) and (name := reference.removeprefix("#/$defs/")) in definitions:
                plain = name.replace("~1", "/").replace("~0", "~")
                if plain not in used:
                    used[plain] = definitions[name]
                    todo.append(definitions[name])
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    return used


def _of_3_0(schema: dict[str, Any], nullable: bool) -> dict[str, Any]:
    """The older spellings: bounds that exclude by a flag, and null by another."""
    for bound, excluding in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        flag = schema.get(excluding)
        if isinstance(flag, bool):
            del schema[excluding]
            if flag and bound in schema:
                schema[excluding] = schema.pop(bound)
    if not nullable:
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}
