"""Compiling schemas, the lossless conversions, the words of a misfit, and schemas that feed schemas."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiwo.errors import InvalidInput, ValidationError
from agiwo.schema import Schema, check_schema, compatible

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "t": {"type": "string"},
        "o": {"type": "object", "properties": {"k": {"$ref": "#/$defs/whole"}}, "additionalProperties": False},
        "l": {"type": "array", "items": {"type": "integer"}},
    },
    "$defs": {"whole": {"type": "integer"}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("type_", "found", "made"),
    [
        ("integer", "42", 42),
        ("integer", "-42", -42),
        ("integer", "9" * 100, int("9" * 100)),
        ("integer", 4.0, 4),
        ("number", "3.14", 3.14),
        ("number", "10", 10),
        ("number", "1e3", 1000.0),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("string", 7, "7"),
        ("string", 7.5, "7.5"),
        ("string", 10**40, "1" + "0" * 40),
        ("string", True, "true"),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("array", " [1, null]", [1, None]),
    ],
)
def test_a_lossless_conversion_is_made(type_: str, found: Any, made: Any) -> None:
    got = Schema.compile({"type": type_}).coerce(found)
    assert got == made
    assert type(got) is type(made)


@pytest.mark.parametrize(
    ("type_", "found"),
    [
        ("integer", "007"),
        ("integer", "4.0"),
        ("integer", "1_000"),
        ("integer", "+1"),
        ("integer", " 1"),
        ("integer", "١"),
        ("integer", "9" * 101),
        ("integer", 4.5),
        ("integer", True),
        ("integer", None),
        ("number", "1,2"),
        ("number", "0.1000000000000000055511151231257827"),
        ("number", "1e999"),
        ("number", "NaN"),
        ("boolean", "True"),
        ("boolean", 1),
        ("boolean", "yes"),
        ("string", None),
        ("string", [1]),
        ("object", "[1]"),
        ("object", '{"a": 1, "a": 2}'),
        ("array", "1,2"),
        ("null", "null"),
        ("null", ""),
    ],
)
def test_whatever_would_lose_or_guess_is_refused(type_: str, found: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Schema.compile({"type": type_}).coerce(found)
    (problem,) = caught.value.data["problems"]
    assert problem["expected"] == type_
    assert problem["pointer"] == ""


def test_conversions_reach_into_properties_items_references_and_alternatives() -> None:
    schema = Schema.compile(
        {**OBJECT, "properties": {**OBJECT["properties"], "u": {"anyOf": [{"type": "integer"}, OBJECT["properties"]["l"]]}}}
    )
    given_ = {"n": "42", "x": "3.14", "b": "true", "t": 4, "o": '{"k": "7"}', "l": ["1", 2.0], "u": ["3"]}
    before = copy.deepcopy(given_)
    assert schema.coerce(given_) == {"n": 42, "x": 3.14, "b": True, "t": "4", "o": {"k": 7}, "l": [1, 2], "u": [3]}
    assert given_ == before


def test_a_value_that_fits_an_alternative_is_left_as_it_is() -> None:
    schema = Schema.compile({"oneOf": [{"type": "integer"}, {"type": "string"}]})
    assert schema.coerce("5") == "5"
    assert schema.coerce(5) == 5


def test_a_conversion_that_two_of_oneof_would_take_is_not_made() -> None:
    schema = Schema.compile({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 0}]})
    with pytest.raises(ValidationError):
        schema.coerce("5")


def test_nothing_is_copied_when_nothing_changes() -> None:
    value = {"l": [1, 2], "o": {"k": 1}}
    assert Schema.compile(OBJECT).coerce(value) is value


def test_every_misfit_is_named_with_place_expected_found_and_nearest_name() -> None:
    with pytest.raises(ValidationError) as caught:
        Schema.compile({**OBJECT, "required": ["n", "t"]}).coerce({"n": "007", "o": {"kk": 1}, "l": [1, "x"]})
    found = {p["pointer"]: p for p in caught.value.data["problems"]}
    assert set(found) == {"/n", "/t", "/o/kk", "/l/1"}
    assert found["/n"]["found"] == '"007"'
    assert found["/o/kk"]["nearest"] == "k"
    assert "parameter /n: expected integer, found string" in caught.value.message


def test_a_hundred_digits_and_the_bits_of_a_float_survive() -> None:
    schema = Schema.compile({"type": "object", "properties": {"i": {"type": "integer", "minimum": 10**98}, "f": {"type": "number"}}})
    value = {"i": 10**99 + 1, "f": 5e-324}
    assert schema.coerce(value) == value
    assert schema.problems({"i": 10**97})[0].pointer == "/i"


def test_problems_convert_nothing() -> None:
    assert Schema.compile({"type": "integer"}).problems("42")[0].expected == "integer"


def test_the_same_content_is_compiled_once() -> None:
    assert Schema.compile({"type": "integer", "minimum": 1}) is Schema.compile({"minimum": 1, "type": "integer"})


def test_a_later_change_of_the_source_changes_nothing() -> None:
    source: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema = Schema.compile(source)
    source["properties"]["a"]["type"] = "string"
    assert not schema.fits({"a": "x"})


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "strin"}, "/type"),
        ({"properties": {"a": {"type": 5}}}, "/properties/a/type"),
        ({"$ref": "http://127.0.0.1:1/x"}, "/$ref"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "/items/$ref"),
        ({"pattern": "("}, "/pattern"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema"),
        ({"$ref": "#/$defs/nowhere"}, ""),
        ({1: {}}, ""),
        ({"const": float("nan")}, "/const"),
        ([1], ""),
    ],
)
def test_what_is_no_usable_schema_is_refused_with_its_place(schema: Any, place: str) -> None:
    assert [p.pointer for p in check_schema(schema)] == [place]
    with pytest.raises(InvalidInput):
        Schema.compile(schema)


def test_a_reference_to_itself_ends() -> None:
    schema = Schema.compile({"$ref": "#"})
    assert schema.coerce("x") == "x"
    tree = Schema.compile({"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}})
    assert tree.coerce({"n": "1", "next": {"n": "2", "next": '{"n": "3"}'}}) == {"n": 1, "next": {"n": 2, "next": {"n": 3}}}


def test_a_deep_nest_of_alternatives_costs_little() -> None:
    schema = Schema.compile({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]})
    value: Any = "no number"
    for _ in range(90):
        value = [value]
    assert schema.problems(schema.convert(value))


ALTERNATIVES = {"anyOf": [{"type": "integer"}, *({"type": "array", "items": {"$ref": "#"}, "minItems": n} for n in (1, 1, 1))]}
DOUBLED = {
    "$ref": "#/$defs/a0",
    "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)} | {"a60": {"type": "null"}},
}


@pytest.mark.parametrize("as_text", [False, True])
def test_alternatives_that_multiply_are_refused_before_they_are_tried(as_text: bool) -> None:
    value: Any = "no number"
    for _ in range(60):
        value = [value]
    for given_ in (json.dumps(value) if as_text else value, 5 if as_text else {"a": 1}):
        for schema in (Schema.compile(ALTERNATIVES), Schema.compile(DOUBLED)):
            if not schema.fits(given_):
                with pytest.raises(ValidationError):
                    schema.coerce(given_)
    assert Schema.compile(ALTERNATIVES).coerce([["7"], [1, 2.0]]) == [[7], [1, 2]]


@pytest.mark.parametrize(
    ("producer", "consumer", "severities"),
    [
        ({"type": "object"}, {"type": "integer"}, ["error"]),
        ({"type": "array"}, {"type": "string"}, ["error"]),
        ({"type": "string"}, {"type": "integer"}, ["warning"]),
        ({"type": ["integer", "null"]}, {"type": "integer"}, ["warning"]),
        ({"type": "integer"}, {"type": "string"}, []),
        ({"type": "integer"}, {"type": "number"}, []),
        ({}, {"type": "integer"}, []),
        ({"type": "string"}, {"enum": [1, 2]}, ["warning"]),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"type": "object", "required": ["a"]}, ["error"]),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, {"type": "object", "additionalProperties": False}, ["error"]),
        ({"type": "object", "properties": {"a": {}}}, {"type": "object", "additionalProperties": False}, ["warning"]),
        ({"type": "array", "items": {"type": "object"}}, {"type": "array", "items": {"type": "integer"}}, ["warning"]),
        ({"type": "array", "minItems": 1, "items": {"type": "object"}}, {"type": "array", "items": {"type": "integer"}}, ["error"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, {"type": "integer"}, ["error"]),
    ],
)
def test_what_a_schema_gives_is_held_against_what_another_takes(producer: Any, consumer: Any, severities: list[str]) -> None:
    assert [p.severity for p in compatible(producer, consumer)] == severities


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**99), 10**99) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("nxbtol"), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_converting_twice_is_converting_once_and_never_changes_the_original(value: Any) -> None:
    schema = Schema.compile(OBJECT)
    before = json.dumps(value)
    once = schema.convert(value)
    assert json.dumps(value) == before
    assert json.dumps(schema.convert(once)) == json.dumps(once)


@given(JSON_VALUES)
def test_what_fits_keeps_fitting_when_converted(value: Any) -> None:
    schema = Schema.compile(OBJECT)
    if schema.fits(value):
        assert schema.fits(schema.convert(value))


@given(st.integers(-(10**99), 10**99))
def test_an_integer_survives_the_way_through_text(number: int) -> None:
    text = Schema.compile({"type": "string"}).coerce(number)
    assert Schema.compile({"type": "integer"}).coerce(text) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives_the_way_through_text(number: float) -> None:
    text = Schema.compile({"type": "string"}).coerce(number)
    assert Schema.compile({"type": "number"}).coerce(text) == number


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"pattern": "^[0-9]{4}-W[0-9]{2}$"}, "x", 'expected a text that matches ^[0-9]{4}-W[0-9]{2}$, found string "x"'),
        ({"format": "email"}, "x", 'expected a text of the form email, found string "x"'),
        ({"minLength": 3}, "a", 'expected a text of at least 3 characters, found string "a"'),
        ({"maximum": 2}, 3, "expected at most 2, found integer 3"),
        ({"exclusiveMinimum": 3}, 3, "expected more than 3, found integer 3"),
        ({"multipleOf": 2}, 3, "expected a multiple of 2, found integer 3"),
        ({"maxItems": 1}, [1, 2], "expected a list of at most 1 items, found array [1,2]"),
        ({"uniqueItems": True}, [1, 1], "expected a list of different items, found array [1,1]"),
        ({"not": {"type": "string"}}, "a", 'expected anything that does not fit {"type":"string"}, found string "a"'),
        ({"propertyNames": {"pattern": "^a"}}, {"b": 1}, 'expected names of which each is a text that matches ^a, found object {"b":1}'),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 1, "expected what fits exactly one of the allowed forms, found integer 1"),
        ({"contains": {"const": 1}}, [2], "expected a list with an item of the wanted form, found array [2]"),
        (False, 1, "expected nothing in this place, found integer 1"),
        ({"additionalProperties": False}, {"a": 1, "b": 2}, "there is no name here; expected an empty object"),
    ],
)
def test_a_misfit_says_what_was_expected_and_never_the_opposite(schema: Any, value: Any, said: str) -> None:
    assert [problem.message for problem in Schema.compile(schema).problems(value)] == [said]


@pytest.mark.parametrize(
    ("schema", "value", "places"),
    [
        ({"items": {"type": "string"}}, [1] * 300, [f"/{n}" for n in range(300)]),
        ({"items": {"type": "string"}}, [1] * 1_000_000, ["/0"]),
        ({"properties": {"l": {"items": {"type": "string"}}}}, {"l": ["a"] * 9_999 + [1] * 9}, ["/l/9999"]),
        ({"required": ["a", "b"]}, {"x": "y" * 600_000}, ["/a"]),
        ({"required": ["a", "b"]}, {"x": "y" * 60_000}, ["/a", "/b"]),
        ({"type": "string"}, [[0] * 100] * 100, [""]),
        ({"properties": {"a": {}}, "additionalProperties": False}, {str(n): 1 for n in range(4_000)}, [f"/{n}" for n in range(1000)]),
        ({"properties": {"a": {}}, "additionalProperties": False}, {str(n): 1 for n in range(40_000)}, ["/0"]),
        ({"additionalProperties": False}, {str(n): 1 for n in range(40_000)}, [""]),
        ({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, [None] * 20_000 + [1], ["/20000"]),
        ({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, [None] * 300_000 + [1], [""]),
    ],
)
def test_of_a_large_value_the_first_misfit_is_told_and_never_a_million(schema: Any, value: Any, places: list[str]) -> None:
    assert sorted(problem.pointer for problem in Schema.compile(schema).problems(value)) == sorted(places)
