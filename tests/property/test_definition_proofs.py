# ruff: noqa: E501 - a step a line reads best
"""What publishing proves holds when the machine runs it; and no text and no document brings the checks down."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given, note
from hypothesis import strategies as st

from agiwo.definition import Checked, check, content_hash, graph_json, graph_mermaid, load, load_mapping, seconds, version_key
from agiwo.definition.durations import worded
from agiwo.errors import Failure
from agiwo.machine.reports import Failed, Outcome, Succeeded
from kit.definitions import CONTRACTS
from kit.machine import CONTRACTS as TOOLS
from kit.machine import Drive

NAMES = ("a", "b", "c", "d", "e", "f")
TARGET = st.sampled_from(NAMES)
TARGETS = st.one_of(TARGET, st.lists(TARGET, min_size=2, max_size=3, unique=True))


@st.composite
def flows(draw: st.DrawFn) -> dict[str, Any]:
    """A list of steps with links of every kind; most are sound, the others are refused."""
    names = NAMES[: draw(st.integers(2, len(NAMES)))]
    graph = draw(st.booleans())
    steps: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        step: dict[str, Any] = {"id": name, "type": "tool_call", "tool": "t.pure", "retry_policy": {"max_attempts": 1}, "max_iterations": 3}
        later = names[number + 1 :]
        if draw(st.integers(0, 3)) == 0:
            step["when"] = f"input.{name}"
        if graph and later and draw(st.booleans()):
            step["on_success"] = draw(st.lists(st.sampled_from(later), min_size=1, max_size=2, unique=True))
        elif graph and later and draw(st.integers(0, 3)) == 0:
            step["route"] = {
                "choose": f"input.r{name}",
                "targets": {"x": draw(st.sampled_from(later))},
                "default": draw(st.sampled_from(names)),
            }
        elif not graph and draw(st.integers(0, 2)) == 0:
            step["run_parallel"] = True
        if graph and number and draw(st.booleans()):
            step["depends_on"] = draw(st.lists(st.sampled_from(names[:number]), min_size=1, max_size=3, unique=True))
            step["join"] = draw(st.sampled_from(("none_failed", "all_success", "all_done", "any", {"at_least": 2})))
            if step["join"] == "any" and draw(st.booleans()):
                step["cancel_rest"] = True
        if draw(st.integers(0, 3)) == 0:
            step["on_failure"] = draw(st.sampled_from((*names, "continue", "end", "next")))
        if "when" in step and later and draw(st.integers(0, 3)) == 0:
            step["on_skip"] = draw(st.sampled_from((*later, "end")))
        steps.append(step)
    return {"id": "flow", "version": "1", "steps": steps}


def with_reads(document: dict[str, Any]) -> Checked:
    """The document with every read of an output in a step's parameters that the proof calls certain."""
    names = [step["id"] for step in document["steps"]]
    for step in document["steps"]:
        step["parameters"] = {name: f"{{{{ steps.{name}.output }}}}" for name in names}
    for problem in check(load_mapping(document), TOOLS).problems:
        if problem.code == "open_read":
            _, _, number, _, name = problem.pointer.split("/")
            document["steps"][int(number)]["parameters"].pop(name, None)
    return check(load_mapping(document), TOOLS)


@given(flows(), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 7), max_size=30))
def test_a_read_that_was_proved_certain_never_fails(document: dict[str, Any], seed: int, choices: list[int]) -> None:
    checked = with_reads(document)
    assume(checked.workflow is not None)
    assert checked.workflow is not None
    note(json.dumps(document, indent=1))

    def world(path: str, attempt: int) -> Outcome:
        fails = hash_of(seed, path) % 4 == 0
        return Failed(Failure("NetworkError", "no")) if fails else Succeeded(path)

    given_input: dict[str, Any] = {name: hash_of(seed, name) % 2 == 0 for name in NAMES}
    given_input |= {f"r{name}": "x" if hash_of(seed, "r" + name) % 2 else "y" for name in NAMES}
    drive = Drive(checked.workflow, world, input=given_input)
    drive.to_end(choices)
    for run in drive.instance.runs.values():
        assert run.error is None or run.error["type"] != "TemplateError", (run.path, run.error)


def hash_of(seed: int, text: str) -> int:
    """A number that depends on seed and text alone."""
    value = seed
    for char in text:
        value = (value * 31 + ord(char)) % 1_000_003
    return value >> 3


def test_the_proof_calls_many_reads_certain() -> None:
    document = {"id": "f", "version": "1", "steps": [{"id": n, "type": "tool_call", "tool": "t.pure"} for n in "abcd"]}
    checked = with_reads(document)
    assert [sorted(step["parameters"]) for step in checked.document["steps"]] == [[], ["a"], ["a", "b"], ["a", "b", "c"]]


@given(flows())
def test_what_is_sound_compiles_again_and_shows_its_graph(document: dict[str, Any]) -> None:
    checked = check(load_mapping(document), TOOLS)
    again = check(load(json.dumps(document)), TOOLS)
    assert [p.code for p in checked.problems] == [p.code for p in again.problems] or {p.code for p in checked.problems} == {
        p.code for p in again.problems
    }
    if checked.workflow is None:
        assert checked.errors
        return
    assert again.workflow is not None
    assert checked.workflow.content_hash == again.workflow.content_hash == content_hash(document)
    edges = graph_json(checked.workflow)["edges"]
    assert len(edges) == len(checked.workflow.body.edges)
    assert graph_mermaid(checked.workflow).count("\n") >= len(edges) + len(document["steps"])


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200)))
def test_any_text_gets_an_answer(text: str | bytes) -> None:
    loaded = load(text)
    checked = check(loaded, CONTRACTS)
    assert checked.workflow is None
    assert checked.errors


WORDS = st.sampled_from(
    ["id", "version", "steps", "type", "tool", "tool_call", "set", "values", "when", "on_success", "on_failure", "depends_on", "route", "cases",
     "goto", "errors", "approval", "end", "next", "a", "b", "{{ steps.a.output }}", "{{", "1.0", "5m", "context", "state", "input_schema", "finally"]
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        WORDS,
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=20,
)
SOUND: dict[str, Any] = {
    "id": "flow", "version": "1.0", "context": {"k": 1}, "state": {"s": {"reducer": "append"}}, "output": "{{ steps.a.output }}", "finally": ["z"],
    "defaults": {"retry_policy": {"max_attempts": 2}},
    "steps": [
        {"id": "a", "type": "tool_call", "tool": "debug.echo", "parameters": {"value": 1}, "on_success": ["b"],
         "on_failure": [{"errors": ["Timeout"], "goto": "c"}], "retry_policy": {"max_attempts": 2, "delay": "1s"}},
        {"id": "b", "type": "branch", "cases": [{"when": "input.x", "goto": "d"}], "default": "end"},
        {"id": "c", "type": "set", "values": {"k": "{{ error.type }}"}},
        {"id": "d", "type": "llm_task", "task_prompt": "{{ steps.a.output }}", "approval": {"title": "t", "on_reject": "d", "approvers": ["role:x"]},
         "route": {"choose": "result", "targets": {"x": "e"}, "default": "end"}},
        {"id": "e", "type": "wait", "duration": "5s", "when": "input.y"},
        {"id": "f", "type": "end", "depends_on": ["e"], "join": "all_done"},
        {"id": "z", "type": "fail", "error": {"message": "m"}},
    ],
}  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, part in inside for place in places(part, (*at, key)))]


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    if isinstance(value, dict):
        return {key: replaced(part, at[1:], new) if key == at[0] else part for key, part in value.items()}
    return [replaced(part, at[1:], new) if index == at[0] else part for index, part in enumerate(value)]


def test_the_document_that_is_mutated_is_sound() -> None:
    assert check(load_mapping(SOUND), CONTRACTS).errors == ()


@given(st.sampled_from(places(SOUND)[1:]), VALUES, st.booleans())
def test_a_document_with_any_value_anywhere_gets_an_answer(at: tuple[Any, ...], value: Any, as_text: bool) -> None:
    document = replaced(SOUND, at, value)
    checked = check(load(json.dumps(document, ensure_ascii=False)) if as_text else load_mapping(document), CONTRACTS)
    assert (checked.workflow is None) == bool(checked.errors)
    for problem in checked.problems:
        assert problem.message
        assert (problem.line is not None) == as_text


@given(st.integers(0, 10**11).map(lambda n: n / 1000))
def test_a_duration_that_is_written_out_is_the_same_again(value: float) -> None:
    assume(value <= 3650 * 86_400)
    assert abs(seconds(worded(value)) - value) < 0.001


@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=2, max_size=5))
def test_versions_are_ordered_as_lists_of_numbers(parts: list[list[int]]) -> None:
    def bare(part: list[int]) -> list[int]:
        while len(part) > 1 and part[-1] == 0:
            part = part[:-1]
        return part

    texts = [".".join(map(str, part)) for part in parts]
    assert [version_key(t) for t in sorted(texts, key=version_key)] == sorted(version_key(t) for t in texts)
    for one, two in zip(parts, parts[1:], strict=False):
        a, b = (version_key(".".join(map(str, part))) for part in (one, two))
        assert (a < b, a == b) == (bare(one) < bare(two), bare(one) == bare(two))
