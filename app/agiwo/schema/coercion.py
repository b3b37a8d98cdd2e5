"""The lossless conversions, guided by a schema, at any depth.

An integer from "42" or 4.0, a number from "3.14", a boolean from "true"/"false", text from a number or boolean, an object or list from
JSON text; nothing else. It must not judge whether the outcome fits, and never changes what it was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from agiwo.errors import ValueRefused
from agiwo.values import MAX_DIGITS, decode_strict, encode, kind_of, pointer

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?", re.ASCII)
_TOO_LONG = 10**MAX_DIGITS
_MAX_HOPS = 64
_MAX_TRIALS = 10_000
_NOT = object()


class Conversion:
    """The conversions of one schema; call it with a value.

    `accepts` gives, for a JSON Pointer into the schema, whether a value fits the part that stands there; `too_much` says whether a value
    that was made from text would take too much work against a part.
    """

    def __init__(self, root: Any, accepts: Callable[[str], Callable[[Any], bool]], too_much: Callable[[Any, Any], bool]) -> None:
        self.root = root
        self.too_much = too_much
        self._accepts_at = accepts
        self._accepts: dict[str, Callable[[Any], bool]] = {}

    def __call__(self, value: Any) -> Any:
        return _Walk(self).part(value, self.root, (), 0)

    def fits(self, at: tuple[str | int, ...], value: Any) -> bool:
        place = pointer(*at)
        accepts = self._accepts.get(place)
        if accepts is None:
            accepts = self._accepts[place] = self._accepts_at(place)
        return accepts(value)


class _Walk:
    """One conversion of one value; counts the alternatives that were tried, so that a hostile value costs little."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._trials = 0

    def part(self, value: Any, schema: Any, at: tuple[str | int, ...], hops: int) -> Any:
        if not isinstance(schema, dict) or hops > _MAX_HOPS:
            return value
        if (ref := schema.get("$ref")) is not None:
            found = resolve(self._conversion.root, ref)
            if found is not None:
                value = self.part(value, found[0], found[1], hops + 1)
        if (types := schema.get("type")) is not None:
            made = _to_type(value, [types] if isinstance(types, str) else types)
            if isinstance(value, str) and isinstance(made, dict | list) and self._conversion.too_much(made, schema):
                return value
            value = made
        if isinstance(value, dict):
            value = self._object(value, schema, at)
        elif isinstance(value, list | tuple):
            value = self._array(value, schema, at)
        return self._combined(value, schema, at, hops + 1)

    def _combined(self, value: Any, schema: dict[str, Any], at: tuple[str | int, ...], hops: int) -> Any:
        for index, branch in enumerate(schema.get("allOf", ())):
            value = self.part(value, branch, (*at, "allOf", index), hops)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                value = self._branch(value, schema[word], (*at, word), hops)
        return value

    def _object(self, value: dict[str, Any], schema: dict[str, Any], at: tuple[str | int, ...]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        # Which names a pattern takes is the validator's business; beside patterns the other names are left as they are.
        others = True if "patternProperties" in schema else others
        changed: dict[str, Any] = {}
        for name, item in value.items():
            if name in properties:
                new = self.part(item, properties[name], (*at, "properties", name), 0)
            elif isinstance(others, dict):
                new = self.part(item, others, (*at, "additionalProperties"), 0)
            else:
                continue
            if new is not item:
                changed[name] = new
        return {**value, **changed} if changed else value

    def _array(self, value: Any, schema: dict[str, Any], at: tuple[str | int, ...]) -> Any:
        first, rest = schema.get("prefixItems", ()), schema.get("items", True)
        if not first and not isinstance(rest, dict):
            return value
        out = []
        for index, item in enumerate(value):
            if index < len(first):
                out.append(self.part(item, first[index], (*at, "prefixItems", index), 0))
            else:
                out.append(self.part(item, rest, (*at, "items"), 0))
        return value if all(new is old for new, old in zip(out, value, strict=True)) else out

    def _branch(self, value: Any, branches: list[Any], at: tuple[str | int, ...], hops: int) -> Any:
        fits = self._conversion.fits
        for index, branch in enumerate(branches):
            if fits((*at, index), value):
                new = self.part(value, branch, (*at, index), hops)
                return new if fits((*at, index), new) else value
        hits = []
        for index, branch in enumerate(branches):
            self._trials += 1
            if self._trials > _MAX_TRIALS:
                return value
            new = self.part(value, branch, (*at, index), hops)
            if new is not value and fits((*at, index), new):
                hits.append(new)
        exactly_one = at[-1] == "oneOf"
        return hits[0] if len(hits) == 1 or (hits and not exactly_one) else value


def resolve(root: Any, ref: str) -> tuple[Any, tuple[str | int, ...]] | None:
    """The part of `root` that a reference inside it means; None for an anchor, which is only checked."""
    if ref == "#":
        return root, ()
    if not ref.startswith("#/"):
        return None
    here, path = root, []
    for raw in ref[2:].split("/"):
        name = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        elif isinstance(here, dict) and name in here:
            here = here[name]
        else:
            return None
        path.append(name)
    return here, tuple(path)


def _to_type(value: Any, types: list[str]) -> Any:
    kind = kind_of(value)
    if kind in types or (kind == "integer" and "number" in types):
        return value
    if kind == "number":
        if "integer" in types and value.is_integer() and -_TOO_LONG < value < _TOO_LONG:
            return int(value)
    elif kind == "string":
        for wanted in types:
            if (made := _from_text(value, wanted)) is not _NOT:
                return made
        return value
    if "string" in types and kind in ("integer", "number", "boolean"):
        return encode(value)
    return value


def _from_text(text: str, wanted: str) -> Any:
    if wanted == "integer":
        return _integer(text)
    if wanted == "number":
        whole = _integer(text)
        return _float(text) if whole is _NOT else whole
    if wanted == "boolean" and text in ("true", "false"):
        return text == "true"
    if wanted in ("object", "array") and text.lstrip()[:1] in "{[" and text:
        try:
            made = decode_strict(text.encode("utf-8"))
        except (ValueRefused, UnicodeEncodeError):
            return _NOT
        return made if kind_of(made) == wanted else _NOT
    return _NOT


def _integer(text: str) -> Any:
    return int(text) if len(text) <= MAX_DIGITS + 1 and _INTEGER.fullmatch(text) and -_TOO_LONG < int(text) < _TOO_LONG else _NOT


def _float(text: str) -> Any:
    """The number that a text writes; only if a float can hold just that number."""
    if len(text) > 400 or not _NUMBER.fullmatch(text):
        return _NOT
    number = float(text)
    exact = number not in (float("inf"), float("-inf")) and Decimal(repr(number)) == Decimal(text)
    return number if exact else _NOT
