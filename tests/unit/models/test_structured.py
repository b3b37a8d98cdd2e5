"""What an answer says: its end before its text, the first fitting value, never one out of a model's thinking."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiwo.models.protocol import ModelReply
from agiwo.models.strict import sent_schema
from agiwo.models.structured import End, OutputProblem, Parsed, after_thinking, balanced, end_of, expect, parse_reply

SCHEMA = {
    "type": "object",
    "required": ["a"],
    "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "string", "maxLength": 5}},
    "additionalProperties": False,
}


def reply(text: str | None, finish_reason: str = "stop", refusal: str | None = None) -> ModelReply:
    return ModelReply(text, finish_reason, refusal, None, None, "m", None, 0.0)


def parsed(text: str, schema: dict[str, Any] | None = None) -> Parsed | OutputProblem:
    return parse_reply(reply(text), expect(SCHEMA if schema is None else schema))


def problem(text: str | None, finish_reason: str = "stop", refusal: str | None = None, max_tokens: int | None = None) -> OutputProblem:
    answer = parse_reply(reply(text, finish_reason, refusal), expect(SCHEMA), max_tokens)
    assert isinstance(answer, OutputProblem)
    return answer


@pytest.mark.parametrize("text", ['{"a": 1, "b": "cu', '{"a": 1}', "", None])
def test_a_cut_answer_is_truncated_whatever_it_holds(text: str | None) -> None:
    answer = problem(text, "length", max_tokens=800)
    assert (answer.type, answer.message, answer.askable) == ("Truncated", "truncated: raise max_tokens (now 800)", False)


def test_a_refusal_wins_over_a_fitting_text() -> None:
    assert problem('{"a": 1}', refusal="I cannot do that").type == "Refused"
    assert problem('{"a": 1}', "content_filter").type == "Refused"


def test_a_tool_call_is_no_output() -> None:
    assert problem(None, "tool_calls").reason == "tool_call"


def test_an_end_that_nobody_knows_proves_nothing() -> None:
    assert problem('{"a": 1}', "error").type == "Unavailable"
    assert end_of("STOP") is End.COMPLETE


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ('{"a": 1}', "text"),
        (' \n{"a": 1}\n', "text"),
        ('"{\\"a\\": 1}"', "text"),
        ('<think>{"a": 2}</think>{"a": 1}', "after_thinking"),
        ('Sure!\n```json\n{"a": 1}\n```\nAnything else?', "fence"),
        ('```\nnot json\n```\n```JSON\n{"a": 1}\n```', "fence"),
        ('Let us think step by step {so}. [1] {"a": 1} done', "balanced"),
        ('{"a": 0} no, {"a": 1}', "balanced"),
        ('<think>{"a": 2}\n```json\n{"a": 3}\n```</think> It is {"a": 1}', "balanced"),
    ],
)
def test_the_first_fitting_value_wins(text: str, source: str) -> None:
    assert parsed(text) == Parsed({"a": 1}, source)


def test_a_value_inside_thinking_is_never_taken() -> None:
    assert isinstance(parsed('<think>{"a": 1}</think> I do not know'), OutputProblem)
    assert isinstance(parsed('<think>{"a": 1} and so on without an end'), OutputProblem)
    assert after_thinking("x <think> y") == "x "


def test_a_double_encoded_value_is_decoded_once_and_no_more() -> None:
    assert parsed(json.dumps(json.dumps({"a": 1}))) == Parsed({"a": 1}, "text")
    assert isinstance(parsed(json.dumps(json.dumps(json.dumps({"a": 1})))), OutputProblem)


def test_a_text_that_is_wanted_stays_a_text() -> None:
    assert parsed('"{}"', {"type": "string"}) == Parsed("{}", "text")


def test_the_schema_itself_is_no_answer() -> None:
    answer = parsed(json.dumps({"type": "object", "properties": {}}), {"type": "object", "properties": {}})
    assert isinstance(answer, OutputProblem)
    assert "schema itself" in answer.message


def test_an_answer_without_json_says_so_and_can_be_asked_again() -> None:
    answer = parsed("The number is one.")
    assert isinstance(answer, OutputProblem)
    assert (answer.type, answer.reason, answer.askable) == ("OutputInvalid", "parse", True)


def test_a_misfit_names_at_most_five_places() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    answer = parsed(json.dumps(["x"] * 20), schema)
    assert isinstance(answer, OutputProblem)
    assert answer.reason == "schema"
    assert len(answer.problems) == 5
    assert answer.problems[0].startswith("at /0: ")


@pytest.mark.parametrize("text", ['{"a": 1, "b": "x\\u0000y"}', '{"a": 1, "b\\u0000": "x"}', '{"a": 1, "b": "\\ud800"}'])
def test_an_answer_that_cannot_be_stored_fails_at_once(text: str) -> None:
    answer = parsed(text)
    assert isinstance(answer, OutputProblem)
    assert (answer.reason, answer.askable) == ("not_storable", False)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1, "a": 2}', '{"a": ' + "9" * 5000 + "}", "[" * 100_000, '{"a":' * 50_000])
def test_a_text_that_is_no_clean_json_is_a_parse_problem(text: str) -> None:
    answer = parsed(text)
    assert isinstance(answer, OutputProblem)
    assert answer.reason == "parse"


def test_without_a_schema_the_output_is_the_text_to_the_letter() -> None:
    for text in ('{"a": 1}\n', "  goto send_email ", "<think>x</think>y"):
        assert parse_reply(reply(text), None) == Parsed(text, "text")


@pytest.mark.parametrize("text", ["", None])
def test_nothing_is_no_text(text: str | None) -> None:
    answer = parse_reply(reply(text), None)
    assert isinstance(answer, OutputProblem)
    assert answer.reason == "empty"


def test_a_text_with_a_nul_cannot_be_stored() -> None:
    answer = parse_reply(reply("a\x00b"), None)
    assert isinstance(answer, OutputProblem)
    assert answer.reason == "not_storable"


def test_an_optional_property_is_sent_as_nullable_and_its_null_taken_away() -> None:
    sent = sent_schema(SCHEMA)
    assert sent.strict
    assert sent.schema["required"] == ["a", "b"]
    assert sent.schema["properties"]["b"] == {"type": ["string", "null"], "description": "maxLength: 5"}
    assert parsed('{"a": 1, "b": null}') == Parsed({"a": 1}, "text")


def test_a_null_that_the_author_allows_stays() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "string"}}, "additionalProperties": False}
    assert parsed('{"a": null, "b": null}', schema) == Parsed({"a": None}, "text")


def test_an_answer_that_is_no_object_travels_in_one() -> None:
    sent = sent_schema({"type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "integer"}}})
    assert sent.wrapped
    assert sent.schema["properties"]["value"] == {"type": "array", "items": {"$ref": "#/$defs/x"}}
    assert sent.schema["$defs"] == {"x": {"type": "integer"}}
    assert parsed('{"value": [1, 2]}', {"type": "array", "items": {"type": "integer"}}) == Parsed([1, 2], "text")
    assert parsed("[1, 2]", {"type": "array", "items": {"type": "integer"}}) == Parsed([1, 2], "text")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "number"}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {}, "patternProperties": {"^x": {"type": "string"}}},
        {"type": "object", "properties": {}, "required": ["elsewhere"]},
        {"type": "object", "properties": {"a": True}},
        {"allOf": [{"type": "object"}]},
    ],
)
def test_what_the_strict_form_cannot_say_is_sent_as_written(schema: dict[str, Any]) -> None:
    sent = sent_schema(schema)
    assert (sent.strict, sent.schema) == (False, schema)


def test_balanced_values_are_found_left_to_right() -> None:
    assert list(balanced('a {"x": [1]} b [2] c {no}')) == [{"x": [1]}, [2]]


SCALARS = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["x", "y"]}, {"const": 3}, {"type": ["integer", "null"]}]
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from("abc"), st.tuples(inner, st.booleans()), min_size=1).map(
        lambda fields: {
            "type": "object",
            "properties": {name: schema for name, (schema, _) in fields.items()},
            "required": [name for name, (_, needed) in fields.items() if needed],
            "additionalProperties": False,
        }
    )


SCHEMAS = st.recursive(SCALARS, lambda inner: objects(inner) | inner.map(lambda schema: {"type": "array", "items": schema}), max_leaves=6)


def instances(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema in the sent form."""
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return st.one_of(*(instances({**schema, "type": kind}) for kind in kinds))
    if kinds == "null":
        return st.none()
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if kinds == "object":
        return st.fixed_dictionaries({name: instances(inner) for name, inner in schema["properties"].items()})
    if kinds == "array":
        return st.lists(instances(schema["items"]), max_size=2)
    return {
        "string": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
        "integer": st.integers(-9, 9),
        "boolean": st.booleans(),
    }[kinds]


@given(st.data(), SCHEMAS)
def test_whatever_fits_the_sent_form_gives_an_output_that_fits_the_authors(data: st.DataObject, schema: dict[str, Any]) -> None:
    sent = sent_schema(schema)
    assert sent.strict
    value = data.draw(instances(dict(sent.schema)))
    jsonschema.validate(value, sent.schema)
    answer = parsed(json.dumps(value), schema)
    assert isinstance(answer, Parsed), answer
    jsonschema.validate(answer.value, schema)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    for candidate in (text, f"<think>{text}</think>{text}", f"```json\n{text}\n```", f'{{"a": {text}'):
        assert isinstance(parsed(candidate), Parsed | OutputProblem)
