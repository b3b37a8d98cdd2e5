"""A schema that is checked and compiled once, and what is wrong with a value by it.

It must not fetch anything and must not convert while it only looks (`problems`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import jsonschema
import jsonschema_rs

from agiwo.errors import InvalidInput, Problem, ValidationError, ValueRefused
from agiwo.schema.coercion import Conversion, resolve
from agiwo.schema.effort import Effort
from agiwo.values import canonical, check, decode, kind_of, pointer, shown

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Parts of a value above which its first misfit alone is told, and not even that where each alternative would copy the value.
_LARGE, _HUGE = 10_000, 200_000
MAX_PROBLEMS = 1000
_ROOT = "urn:agiwo:schema"
_META = jsonschema.Draft202012Validator(
    jsonschema.Draft202012Validator.META_SCHEMA, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
)
_REFERENCES = ("$ref", "$dynamicRef")
_SHOWN = 5
#: Of longer names, and among more of them, nothing is guessed: it would take longer than the check.
_LONGEST_NAME, _MOST_NAMES = 128, 200
_TOO_MUCH = Problem("schema_effort", "checking this value against its schema takes too much work: its alternatives multiply at every level")
_NOT_SAID = Problem("schema", "does not fit, and is too large to say in which place: the schema has alternatives")

Accepts = Callable[[Any], bool]


class Schema:
    """A compiled JSON Schema; make one with `Schema.compile`."""

    __slots__ = ("__dict__", "source")

    def __init__(self, source: Any) -> None:
        self.source = source

    @staticmethod
    def compile(schema: Mapping[str, Any] | bool) -> Schema:
        """The compiled form of `schema`; the same content gives the same object.

        Raises InvalidInput (code `schema_invalid`) with all problems if it is no JSON Schema of draft 2020-12 that stands on its own.
        """
        problems = check_schema(schema)
        if problems:
            raise InvalidInput(f"not a usable JSON Schema: {problems[0].message}", code="schema_invalid", problems=problems)
        return _compiled(_key(schema))

    def problems(self, value: Any) -> list[Problem]:
        """Everything in `value` that does not fit, each with its JSON Pointer; nothing is converted.

        Of a large value the first misfit alone: each costs a copy of what it is about, and there may be as many as the value has parts.
        """
        if self._effort.too_much(value):
            return [_TOO_MUCH]
        if self._validator.is_valid(value):
            return []
        if self._has_alternatives and is_large(value, _HUGE):
            return [_NOT_SAID]
        errors = [self._first_error(value)] if is_large(value) else self._validator.iter_errors(value)
        return list(islice((problem for error in errors for problem in _explained(error, self.source)), MAX_PROBLEMS))

    def _first_error(self, value: Any) -> jsonschema_rs.ValidationError:
        try:
            self._sparing.validate(value)
        except jsonschema_rs.ValidationError as exc:
            return exc
        raise AssertionError("both validators are made of one schema")

    def fits(self, value: Any) -> bool:
        """Whether nothing is wrong with `value`."""
        return not self._effort.too_much(value) and self._validator.is_valid(value)

    def convert(self, value: Any) -> Any:
        """`value` after the lossless conversions that this schema asks for; neither checked nor changed in place.

        A value that would take too much work is given back as it is, and is a misfit.
        """
        if self._effort.too_much(value):
            return value
        try:
            return self._conversion(value)
        except RecursionError:
            return value

    def coerce(self, value: Any, what: str = "parameter") -> Any:
        """`value` converted and found fitting.

        Raises ValidationError that names each misfit's place, what was expected and what was found; `what` names the thing in the message.
        """
        converted = self.convert(value)
        misfits = self.problems(converted)
        if misfits:
            raise misfit(misfits, what)
        return converted

    @cached_property
    def _validator(self) -> jsonschema_rs.Draft202012Validator:
        return _validator(self.source)

    @cached_property
    def _sparing(self) -> jsonschema_rs.Draft202012Validator:
        """The same, without a copy of the value in the words of its errors."""
        return jsonschema_rs.Draft202012Validator(self.source, offline=True, validate_formats=True, mask="…")

    @cached_property
    def _has_alternatives(self) -> bool:
        return _names_any(self.source, ("anyOf", "oneOf"))

    @cached_property
    def _effort(self) -> Effort:
        return Effort(self.source)

    @cached_property
    def _conversion(self) -> Conversion:
        return Conversion(self.source, self._part, self._effort.too_much)

    @cached_property
    def _registry(self) -> jsonschema_rs.Registry:
        return jsonschema_rs.Registry([(_ROOT, self.source)])

    def _part(self, at: str) -> Accepts:
        part = jsonschema_rs.Draft202012Validator({"$ref": f"{_ROOT}#{at}"}, registry=self._registry, offline=True, validate_formats=True)
        return part.is_valid


def _names_any(part: Any, words: tuple[str, ...]) -> bool:
    if isinstance(part, dict):
        return any(word in part for word in words) or any(_names_any(inner, words) for inner in part.values())
    return isinstance(part, list) and any(_names_any(inner, words) for inner in part)


def is_large(value: Any, parts: int = _LARGE) -> bool:
    """Whether a value has more parts, counting fifty characters as one, than one looks through for every misfit."""
    left, todo = parts, [value]
    while todo and left > 0:
        part = todo.pop()
        left -= 1
        if isinstance(part, dict):
            todo.extend(part.values())
            left -= len(part)
        elif isinstance(part, list | tuple):
            left -= len(part)
            # What is beyond the limit need not be looked at.
            todo.extend(part[: left + 1] if left > 0 else ())
        elif isinstance(part, str):
            left -= len(part) // 50
    return left <= 0


def misfit(problems: list[Problem], what: str) -> ValidationError:
    """The step's error for values that do not fit."""
    lines = [f"{what} {p.pointer or '(the whole)'}: {p.message}" for p in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines.append(f"and {len(problems) - _SHOWN} more")
    return ValidationError("; ".join(lines), details={"problems": [p.to_json() for p in problems[:100]]})


def check_schema(schema: Any) -> list[Problem]:
    """What keeps `schema` from being used; an empty list if nothing does."""
    try:
        check(schema if isinstance(schema, bool) else _plain(schema))
    except (ValueRefused, TypeError) as exc:
        return [Problem("schema_invalid", str(exc), pointer=getattr(exc, "pointer", ""))]
    return list(_problems_by_key(_key(schema)))


@lru_cache(maxsize=4096)
def _problems_by_key(key: bytes) -> tuple[Problem, ...]:
    source = decode(key)
    found: dict[str, Problem] = {}
    for error in _META.iter_errors(source):
        at = pointer(*error.absolute_path)
        found.setdefault(at, Problem("schema_invalid", f"{error.message[:200]} (at {at or 'the top'})", pointer=at))
    if found:
        return tuple(found.values())
    problems = [*_dialect(source), *_outside(source, ())]
    if not problems:
        try:
            _validator(source)
        except (ValueError, jsonschema_rs.ReferencingError) as exc:
            problems.append(Problem("schema_invalid", str(exc).split("\n", 1)[0][:300]))
    return tuple(problems)


@lru_cache(maxsize=4096)
def _compiled(key: bytes) -> Schema:
    return Schema(decode(key))


def _key(schema: Any) -> bytes:
    return canonical(schema if isinstance(schema, bool) else _plain(schema))


def _plain(value: Any) -> Any:
    """Mappings and sequences of any kind as plain ones; raises TypeError for keys that are not text."""
    if isinstance(value, Mapping):
        return {_text_key(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _text_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} of a schema is not text: quote it")
    return key


def _validator(source: Any) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(source, offline=True, validate_formats=True)


def _dialect(source: Any) -> Iterator[Problem]:
    named = source.get("$schema") if isinstance(source, dict) else None
    if named is not None and str(named).rstrip("#") != DIALECT:
        message = f"only draft 2020-12 is understood, not {shown(named)}"
        yield Problem("schema_dialect", message, "/$schema", found=shown(named), expected=DIALECT)


def _outside(part: Any, at: tuple[str | int, ...]) -> Iterator[Problem]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
                place = pointer(*at, key)
                yield Problem(
                    "schema_reference", f"a reference leads out of the schema: {shown(value)}", place, found=shown(value), expected="#/…"
                )
            elif key not in ("enum", "const", "default", "examples"):
                yield from _outside(value, (*at, key))
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from _outside(value, (*at, index))


def _explained(error: jsonschema_rs.ValidationError, source: Any) -> Iterator[Problem]:
    at = pointer(*error.instance_path)
    kind, facts = error.kind.name, error.kind.as_dict()
    if kind in ("additionalProperties", "unevaluatedProperties"):
        holder = resolve(source, "#" + pointer(*error.schema_path[:-1]))
        known = sorted(holder[0].get("properties", ())) if holder is not None and isinstance(holder[0], dict) else []
        for name in facts.get("unexpected", ()):
            expected = "one of " + ", ".join(known) if known else "no such name"
            yield Problem(
                "unknown_key", f"there is no such name here; expected {expected}", at + pointer(name), found=shown(name), expected=expected,
                nearest=nearest(name, known),
            )  # fmt: skip
    elif kind == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
        # An object that may have no names at all; the validator tells of its first value and not of the name.
        yield Problem("unknown_key", "there is no name here; expected an empty object", at, expected="an empty object")
    elif kind == "required":
        name = facts["property"]
        yield Problem("missing", "is required and not there", at + pointer(name), found="nothing", expected="a value")
    else:
        expected, found = _expected(error, kind, facts), shown(error.instance)
        message = f"expected {expected}, found {kind_of(error.instance)} {found}"
        yield Problem("schema", message, at, found=found, expected=expected)


def _expected(error: jsonschema_rs.ValidationError, kind: str, facts: Mapping[str, Any]) -> str:
    if kind == "type":
        return " or ".join(facts["types"])
    if kind == "enum":
        return "one of " + shown(facts["options"], 200)
    if kind == "const":
        return shown(facts["expected_value"], 200)
    if kind in ("anyOf", "oneOf"):
        ways = {_expected(e, e.kind.name, e.kind.as_dict()) for branch in facts.get("context", ()) for e in branch}
        inside = "; or ".join(sorted(ways)[:6])
        if kind == "oneOf":
            return f"exactly one of: {inside}" if inside else "what fits exactly one of the allowed forms"
        return inside or "one of the allowed forms"
    if kind == "required":
        return f"an object with {shown(facts['property'])}"
    if kind == "propertyNames":
        inner = facts["error"]
        return "names of which each is " + _expected(inner, inner.kind.name, inner.kind.as_dict())
    if kind in _RULES:
        return _RULES[kind].format(*(value[:200] if isinstance(value, str) else shown(value, 200) for value in facts.values()))
    # A rule without words of ours: the validator's, without the value, which `found` shows already.
    return f"the rule `{kind}` kept ({error.message.removeprefix(shown(error.instance, 10**6)).strip()[:200]})"


#: What each rule asks for, with its one fact filled in.
_RULES = {
    "pattern": "a text that matches {0}",
    "format": "a text of the form {0}",
    "minLength": "a text of at least {0} characters",
    "maxLength": "a text of at most {0} characters",
    "minimum": "at least {0}",
    "maximum": "at most {0}",
    "exclusiveMinimum": "more than {0}",
    "exclusiveMaximum": "less than {0}",
    "multipleOf": "a multiple of {0}",
    "minItems": "a list of at least {0} items",
    "maxItems": "a list of at most {0} items",
    "uniqueItems": "a list of different items",
    "contains": "a list with an item of the wanted form",
    "minProperties": "an object of at least {0} keys",
    "maxProperties": "an object of at most {0} keys",
    "not": "anything that does not fit {0}",
    "falseSchema": "nothing in this place",
}


def nearest(name: str, among: list[str]) -> str | None:
    """The name in `among` that `name` was most likely meant to be; of long lists and long names it guesses nothing."""
    if len(name) > _LONGEST_NAME or len(among) > _MOST_NAMES:
        return None
    close = difflib.get_close_matches(name, [other for other in among if len(other) <= _LONGEST_NAME], 1)
    return close[0] if close else None
