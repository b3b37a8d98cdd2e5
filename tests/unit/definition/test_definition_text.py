"""Reading text: values as they were written, and hostile text answered clearly."""

from __future__ import annotations

import json

import pytest

from agiwo.definition import check, content_hash, load, load_mapping
from agiwo.definition.yaml_text import read_text
from kit.definitions import CONTRACTS, HEAD, checked


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("NO", "NO"), ("True", "True"), ("NULL", "NULL"), ("0755", "0755"), ("010", "010"),
        ("1_000", "1_000"), ("12:30", "12:30"), ("12:30:45", "12:30:45"), ("2024-01-02", "2024-01-02"), ("+1", "+1"), (".5", ".5"),
        ("5.", "5."), ("0x10", "0x10"), ("0o7", "0o7"), (".inf", ".inf"), (".nan", ".nan"), ("1e", "1e"), ("true", True), ("false", False),
        ("null", None), ("~", None), ("", None), ("0", 0), ("-1", -1), ("1.10", 1.1), ("1e5", 1e5), ("1E+2", 100.0), ("-0.0", -0.0),
        ('"1"', "1"), ("'true'", "true"), ("!!str 7", "7"), ("=", "="), ("<", "<"),
    ],
)  # fmt: skip
def test_a_plain_scalar_is_what_json_says_and_everything_else_is_text(written: str, value: object) -> None:
    """REQ-24."""
    reading = read_text(f"k: {written}\n")
    assert reading.problems == []
    assert reading.value == {"k": value}
    assert type(reading.value["k"]) is type(value)


@pytest.mark.parametrize("key", ["on", "no", "2", "true", "null", "1.10", "2024-01-02", "y", "=", "~"])
def test_a_key_is_always_the_text_that_was_written(key: str) -> None:
    """REQ-24."""
    assert read_text(f"{key}: 1\n").value == {key: 1}


def test_a_document_is_read_back_as_it_was_written() -> None:
    text = HEAD + (
        "context: {country: no, code: 0755, at: 12:30, day: 2024-01-02, on: x, y: 1, 2: z}\n"
        "steps: [{id: a, type: tool_call, tool: debug.echo, parameters: {value: 1}}]\n"
    )
    document = load(text).document
    assert document["context"] == {"country": "no", "code": "0755", "at": "12:30", "day": "2024-01-02", "on": "x", "y": 1, "2": "z"}


@pytest.mark.parametrize("version", ["1.10", "1", "010", "1.0-rc.1", "2024"])
def test_a_version_stays_the_text_that_was_written(version: str) -> None:
    result = check(load(f"id: flow\nversion: {version}\nsteps: [{{id: a, type: wait, duration: 1}}]\n"), CONTRACTS)
    assert result.errors == ()
    assert result.document["version"] == version
    assert result.workflow is not None
    assert result.workflow.version == version


def test_an_id_that_looks_like_a_word_of_json_is_kept_as_text() -> None:
    result = checked("steps:\n  - {id: null_, type: wait, duration: 1, name: true}\n")
    assert result.errors == ()
    assert result.document["steps"][0]["name"] == "true" or result.document["steps"][0]["name"] is True
    assert result.workflow is not None
    assert result.workflow.body.steps[0].name == "true"


def test_a_fault_before_a_step_gives_it_no_other_steps_parameters() -> None:
    call = "{{id: {id}, type: tool_call, tool: mail.send, parameters: {{to: {to}, subject: s, body: b{more}}}}}"
    a, c = call.format(id="a", to="1.10", more=""), call.format(id="c", to="x", more=', copies: "{{ steps.a.outptu }}"')
    result = checked(f"steps:\n  - 5\n  - {a}\n  - {{id: b, type: wait, duration: x}}\n  - {c}\n")
    assert [problem.pointer for problem in result.errors] == [
        "/steps/0", "/steps/2/duration", "/steps/3/parameters/copies",
    ]  # fmt: skip


def test_a_text_parameter_keeps_the_text_as_written() -> None:
    result = checked("steps:\n  - {id: a, type: tool_call, tool: mail.send, parameters: {to: 1.10, subject: 1e3, body: true, copies: 2}}\n")
    assert result.errors == ()
    assert result.document["steps"][0]["parameters"] == {"to": "1.10", "subject": "1e3", "body": "true", "copies": 2}
    assert result.workflow is not None
    assert result.workflow.content_hash == content_hash(result.document)
    again = check(load_mapping(result.document), CONTRACTS)
    assert again.workflow is not None
    assert again.workflow.content_hash == result.workflow.content_hash


def test_anchors_and_merge_keys_work() -> None:
    reading = read_text("base: &b {a: 1, b: 2}\none: {<<: *b, b: 3}\ntwo: *b\nlist: [&x 1, *x]\n")
    assert reading.problems == []
    assert reading.value == {"base": {"a": 1, "b": 2}, "one": {"a": 1, "b": 3}, "two": {"a": 1, "b": 2}, "list": [1, 1]}


def test_the_wrapper_makes_no_difference_to_the_content() -> None:
    bare = load(HEAD + "steps: [{id: a, type: wait, duration: 1}]\n")
    wrapped = load('workflow:\n  id: flow\n  version: "1.0"\n  steps: [{id: a, type: wait, duration: 1}]\n')
    given = load_mapping({"workflow": bare.document})
    assert bare.document == wrapped.document == given.document
    assert content_hash(bare.document) == content_hash(wrapped.document)
    assert wrapped.prefix == ("workflow",)


def test_a_pointer_leads_into_the_text_that_was_sent() -> None:
    loaded = load("workflow:\n  id: flow\n  version: '1'\n  steps:\n    - {id: a, type: wait, duration: 1, wen: x}\n")
    (problem,) = loaded.problems
    assert (problem.pointer, problem.line, problem.column) == ("/workflow/steps/0/wen", 5, 40)
    assert problem.nearest == "when"


def test_json_text_is_taken_with_what_only_json_can_write() -> None:
    text = '{"id": "flow", "version": "1",\n\t"description": "\\ud83d\\ude00 \\/", "steps": [{"id": "a", "type": "wait", "duration": 1}]}'
    loaded = load(text)
    assert loaded.problems == ()
    assert loaded.document == json.loads(text)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "empty", 1),
        ("# nothing\n", "empty", 1),
        (b"\xef\xbb\xbf", "empty", 1),
        ("- a\n- b\n", "wrong_type", 1),
        ("just text", "wrong_type", 1),
        ("null", "wrong_type", 1),
        ("id: a\x00b\n", "bad_character", 1),
        ('id: "a\\0b"\n', "bad_character", 1),
        ("id: a\nx: \x07\n", "bad_character", 2),
        ("id: a\nx: \ud800\n", "bad_character", 2),
        (b"id: a\nb: \xff\xfe\n", "not_utf8", 2),
        ("id: a\n\tversion: 1\n", "not_yaml", 2),
        ("id: [a\n", "not_yaml", 2),
        ("id: a\n---\nid: b\n", "many_documents", 2),
        ("a: &a [*a]\n", "yaml_alias", 1),
        ("a: *b\n", "yaml_alias", 1),
        ("id: a\nid: b\n", "duplicate_key", 2),
        ("id: !!python/object:os.system x\n", "yaml_tag", 1),
        ("? [a, b]\n: 1\n", "key_not_text", 1),
        ("a: {<<: 1}\n", "yaml_merge", 1),
        ("id: " + "1" * 300 + "\n", "value_refused", 1),
        ("id: 1e999\n", "value_refused", 1),
        ("a: " + "[" * 70 + "]" * 70 + "\n", "too_deep", 1),
        ("[" * 100_000, "too_deep", 1),
        ("x: " + "a" * 1_000_001, "too_large", 1),
    ],
)
def test_text_that_is_no_definition_gets_a_clear_answer_with_its_place(text: str | bytes, code: str, line: int) -> None:
    loaded = load(text)
    first = next(p for p in loaded.problems if p.code == code)
    assert first.line == line
    assert first.column is not None
    assert check(loaded, CONTRACTS).workflow is None


def test_an_alias_bomb_is_refused_before_it_unfolds() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    loaded = load("\n".join(lines))
    assert "too_many_values" in [p.code for p in loaded.problems]
    assert check(loaded, CONTRACTS).workflow is None


def test_a_flat_document_with_too_many_values_is_refused() -> None:
    assert "too_many_values" in [p.code for p in load("a: [" + "1," * 100_001 + "]").problems]


@pytest.mark.parametrize(
    "value",
    [
        "{{ input.x }}",
        "{{ input.x | default('a') }}",
        "{{ steps.a.output['b'] }}",
        "{{ a }} text",
        '{{ a | default("x") }}',
        "{{ f(1, 2) }}",
    ],
)
def test_an_unquoted_template_is_told_to_be_quoted_with_its_line(value: str) -> None:
    loaded = load(HEAD + f"steps:\n  - id: a\n    type: tool_call\n    tool: debug.echo\n    parameters:\n      value: {value}\n")
    problem = next(p for p in loaded.problems if p.code == "unquoted_template")
    assert problem.line == 8
    assert "quote this template" in problem.message
    assert value.split(" }}")[0] in problem.message


def test_several_unquoted_templates_are_all_named() -> None:
    loaded = load(HEAD + "context:\n  a: {{ input.x }}\n  b: [{{ input.y }}]\n  c: fine\n")
    assert [p.line for p in loaded.problems if p.code == "unquoted_template"] == [4, 5]


def test_a_bom_and_windows_line_ends_do_no_harm() -> None:
    loaded = load(b"\xef\xbb\xbf" + (HEAD + "steps: [{id: a, type: wait, duration: 1}]\n").replace("\n", "\r\n").encode())
    assert loaded.problems == ()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "a\x00", "\ud800", 10**300, object(), {1: 2}])
def test_values_from_the_api_that_cannot_be_kept_are_refused(value: object) -> None:
    loaded = load_mapping({"id": "a", "context": {"x": value}})
    assert [p.code for p in loaded.problems] == ["value_refused"]
    assert check(loaded, CONTRACTS).workflow is None


def test_values_from_the_api_that_are_too_deep_or_too_large_are_refused() -> None:
    deep: object = 1
    for _ in range(80):
        deep = [deep]
    assert [p.code for p in load_mapping({"a": deep}).problems] == ["too_deep"]
    assert [p.code for p in load_mapping({"a": "x" * 1_000_001}).problems] == ["too_large"]


def test_only_workflow_may_stand_at_the_top_when_it_is_there() -> None:
    loaded = load("workflow: {id: a, version: '1', steps: [{id: a, type: wait, duration: 1}]}\nextra: 1\n")
    (problem,) = loaded.problems
    assert (problem.code, problem.pointer) == ("unknown_key", "/extra")


@pytest.mark.parametrize("number", ["1" * 100, "-" + "9" * 100])
def test_an_integer_of_100_digits_is_kept(number: str) -> None:
    loaded = load(f"id: w\nversion: '1'\ncontext: {{n: {number}}}\nsteps: [{{id: a, type: set, values: {{n: 1}}}}]\n")
    assert loaded.problems == ()
    assert loaded.document["context"] == {"n": int(number)}


@pytest.mark.parametrize("number", ["1" * 101, "-" + "9" * 101, "1" * 300])
def test_a_longer_integer_is_refused_at_its_place(number: str) -> None:
    loaded = load(f"id: w\nversion: '1'\ncontext: {{n: {number}}}\nsteps: [{{id: a, type: set, values: {{n: 1}}}}]\n")
    assert [(p.code, p.line) for p in loaded.problems] == [("value_refused", 3)]
