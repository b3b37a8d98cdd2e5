"""Context, state and reducers; the order of writes that meet; what a step hands on (LANGUAGE 4)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agiwo.definition.compiled import StateKey
from agiwo.errors import ValidationError
from agiwo.machine.reducers import ABSENT, initial, reduce, written
from agiwo.machine.reports import Outcome, Succeeded
from kit.machine import failing
from kit.words import data, flow


@pytest.mark.parametrize(
    ("reducer", "writes", "gives"),
    [
        ("replace", [1, 2], 2),
        ("append", [1, [2]], [1, [2]]),
        ("extend", [[1], [2, 3]], [1, 2, 3]),
        ("union", [[1, 2], [2, 1.0, True, "1"]], [1, 2, 1.0, True, "1"]),
        ("add", [1, 2.5], 3.5),
        ("add", [10**60, 1], 10**60 + 1),
        ("merge", [{"a": 1, "b": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ("min", [3, 1, 2], 1),
        ("max", ["a", "c", "b"], "c"),
        ("first", [1, 2], 1),
    ],
)
def test_each_reducer_joins_writes(reducer: str, writes: list[Any], gives: Any) -> None:
    key = StateKey(reducer)
    value: Any = initial({"k": key}).get("k", ABSENT)
    for write in writes:
        value = reduce(key, value, write)
    assert value == gives
    assert type(value) is type(gives)


def test_union_tells_values_apart_as_json_does() -> None:
    assert reduce(StateKey("union"), [1], [True, "1", None, None]) == [1, True, "1", None]


@pytest.mark.parametrize(
    ("reducer", "start"), [("append", []), ("extend", []), ("union", []), ("merge", {}), ("add", 0), ("min", None), ("replace", None)]
)
def test_what_a_key_without_default_starts_as(reducer: str, start: Any) -> None:
    found = initial({"k": StateKey(reducer)})
    assert found == ({} if start is None else {"k": start})


@pytest.mark.parametrize(
    ("reducer", "old", "new"),
    [
        ("add", 1, "2"),
        ("add", 1, True),
        ("add", "x", 1),
        ("append", "x", 1),
        ("extend", [], 1),
        ("merge", {}, [1]),
        ("min", 1, "a"),
        ("max", 1, None),
    ],
)
def test_a_write_that_a_reducer_cannot_take_is_refused(reducer: str, old: Any, new: Any) -> None:
    with pytest.raises(ValidationError):
        reduce(StateKey(reducer), old, new)


def test_a_reducer_never_changes_what_it_was_given() -> None:
    for reducer, old, new in (("append", [1], 2), ("extend", [1], [2]), ("union", [1], [2]), ("merge", {"a": 1}, {"b": 2})):
        kept = repr(old)
        reduce(StateKey(reducer), old, new)
        assert repr(old) == kept


def test_writes_that_meet_fold_in_the_order_of_the_graph() -> None:
    keys = {"append": ["0.1", "0.2", "1.1", "2.1"], "first": "0.1", "replace": "2.1", "min": "0.1", "max": "2.1"}
    for reducer, expected in keys.items():
        for order in itertools.permutations([(2, 1), (0, 1), (0, 2), (1, 1)]):
            if order.index((0, 2)) < order.index((0, 1)):
                continue  # iterations of one step never overlap
            value, overlap = ABSENT, None
            for step, iteration in order:
                value, overlap = written(StateKey(reducer), overlap, value, step, f"{step}.{iteration}")
            assert value == expected


def test_what_a_key_had_before_stands_before_all_writes_that_meet() -> None:
    value, overlap = written(StateKey("append"), None, ["old"], 5, "late")
    value, overlap = written(StateKey("append"), overlap, value, 1, "early")
    assert value == ["old", "early", "late"]
    assert overlap.base == ["old"]


def test_two_writes_of_one_step_to_one_key_are_checked_one_after_the_other() -> None:
    good = flow("id: a, type: set, values: {n: 1}, writes: {n: 2}", head="state: {n: {reducer: add}}")
    assert good.instance.values["n"] == 3
    bad = flow("id: a, type: set, values: {n: 1}, writes: {n: null}", head="state: {n: {reducer: min}}")
    assert bad.instance.status == "FAILED"


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_concurrent_writes_reduce_in_the_order_of_the_graph_and_not_of_arrival(order: tuple[str, ...]) -> None:
    lines = [f"id: {id}, run_parallel: true, writes: {{seen: {id}}}" for id in "abc"]
    drive = flow(*lines, "id: d, parameters: {seen: '{{ state.seen }}'}", head="state: {seen: {reducer: append}}")
    for id in order:
        drive.finish(id)
    assert drive.calls[-1].arguments == {"seen": ["a", "b", "c"]}


def test_writes_one_after_the_other_keep_their_order_in_a_loop() -> None:
    drive = flow(
        "id: b, on_success: a, writes: {seen: 'b{{ steps.b.iteration }}'}",
        "id: a, writes: {seen: 'a{{ steps.a.iteration }}'}, route: {cases: [{when: 'steps.a.iteration < 3', goto: b}], default: end}",
        head="state: {seen: {reducer: append}}\noutput: '{{ state.seen }}'",
    ).to_end()
    assert drive.instance.ending is not None
    assert drive.instance.ending.output == ["b1", "a1", "b2", "a2", "b3", "a3"]


def test_a_step_beside_a_writer_sees_what_was_written_so_far() -> None:
    drive = flow(
        "id: s, on_success: [a, b]",
        "id: a, writes: {n: 1}",
        "id: b, on_success: c",
        "id: c, parameters: {n: '{{ state.n }}'}, on_success: e",
        "id: e, type: wait, duration: 1",
        head="state: {n: {reducer: add}}",
    )
    drive.finish("s")
    drive.finish("a")
    drive.finish("b")
    assert drive.calls[-1].arguments == {"n": 1}


def test_a_write_in_an_order_that_its_reducer_cannot_take_fails_its_step_and_nothing_else() -> None:
    """Null came first in time; in the order of the graph it comes behind a number, with which it cannot be compared."""

    def world(path: str, attempt: int) -> Outcome:
        return Succeeded({"a": 5, "b": None}.get(path))

    lines = [f"id: {id}, run_parallel: true, writes: {{low: '{{{{ result }}}}'}}" for id in "ab"]
    for order in ("ab", "ba"):
        drive = flow(*lines, head="state: {low: {reducer: min}}", world=world)
        for id in order:
            drive.finish(id)
        assert drive.instance.status == "FAILED"
        assert drive.statuses()[order[1]] == "FAILED", "the later in time is the one that does not fit"


def test_a_sum_that_json_cannot_hold_is_refused() -> None:
    def world(path: str, attempt: int) -> Outcome:
        return Succeeded(1e308)

    drive = flow(
        "id: a, writes: {n: '{{ result }}'}", "id: b, writes: {n: '{{ result }}'}", head="state: {n: {reducer: add}}", world=world
    ).to_end()
    assert drive.statuses() == {"a": "SUCCESS", "b": "FAILED"}
    assert drive.instance.runs["b"].error is not None
    assert drive.instance.runs["b"].error["type"] == "ValidationError"


def test_a_write_is_checked_against_the_schema_of_what_the_key_then_has() -> None:
    head = "state: {seen: {reducer: append, schema: {type: array, maxItems: 2}}}"
    drive = flow(*(f"id: {id}, writes: {{seen: 1}}" for id in "abc"), head=head).to_end()
    assert drive.statuses() == {"a": "SUCCESS", "b": "SUCCESS", "c": "FAILED"}
    assert list(drive.instance.values["seen"]) == [1, 1]


def test_context_is_rendered_from_the_input_and_what_the_trigger_gives_wins() -> None:
    head = "context: {to: 'x-{{ input.n }}', other: 2}"
    line = "id: a, parameters: {to: '{{ context.to }}', other: '{{ context.other }}'}"
    assert flow(line, head=head, input={"n": 1}).calls[0].arguments == {"to": "x-1", "other": 2}
    assert flow(line, head=head, input={"n": 1}, context={"to": "me"}).calls[0].arguments == {"to": "me", "other": 2}


def test_set_writes_to_context_and_state() -> None:
    drive = flow(
        "id: a, type: set, values: {n: 2, note: 'n is {{ state.n }}'}", head="context: {note: ''}\nstate: {n: {reducer: add, default: 1}}"
    )
    assert dict(drive.instance.values) == {"n": 3, "note": "n is 1"}
    assert data(drive, "step.succeeded", "a")["writes"] == [("n", 2), ("note", "n is 1")], "values see what was before the step"


def test_a_failed_step_writes_nothing() -> None:
    drive = flow(
        "id: a, writes: {n: 1}, on_failure: continue", "id: b", head="state: {n: {reducer: add}}", world=failing(a="ToolError")
    ).to_end()
    assert drive.instance.values["n"] == 0


def test_output_replaces_what_a_step_hands_on_and_writes_and_route_see_both() -> None:
    drive = flow(
        "id: a, output: {short: '{{ result.path }}'}, writes: {n: '{{ steps.a.output.short ~ result.path }}'},"
        " route: {cases: [{when: \"steps.a.output.short == 'a'\", goto: b}]}",
        "id: b, parameters: {x: '{{ steps.a.output }}', n: '{{ context.n }}'}",
        head="context: {n: ''}",
    ).to_end()
    assert drive.calls[-1].arguments == {"x": {"short": "a"}, "n": "aa"}


def test_a_value_handed_on_keeps_its_type() -> None:
    values = [0, False, None, "", "007", [], {}, 10**80, 1.5]

    def world(path: str, attempt: int) -> Outcome:
        return Succeeded(values)

    drive = flow("id: a", "id: b, parameters: {x: '{{ steps.a.output }}'}", world=world)
    drive.finish("a")
    found = drive.calls[-1].arguments["x"]
    assert found == values
    assert [type(x) for x in found] == [type(x) for x in values]


def test_a_step_reads_the_status_attempts_and_iteration_of_any_other_at_any_time() -> None:
    see = "parameters: {s: '{{ steps.b.status }}', n: '{{ steps.b.attempts }}', i: '{{ steps.b.iteration }}', a: '{{ steps.a.status }}'}"
    drive = flow(f"id: a, {see}", "id: b")
    assert drive.calls[0].arguments == {"s": "PENDING", "n": 0, "i": 0, "a": "PENDING"}


def test_the_arguments_are_frozen_for_all_attempts() -> None:
    drive = flow(
        "id: s, on_success: [a, b]",
        "id: a, parameters: {n: '{{ state.n }}'}, retry_policy: {max_attempts: 2, delay: 1}",
        "id: b, writes: {n: 1}",
        head="state: {n: {reducer: add}}",
    )
    drive.finish("s")
    drive.finish("b")
    from_first = drive.calls[1].arguments
    drive.finish("a", failing(a="NetworkError")("a", 1))
    drive.pass_time()
    assert drive.calls[-1].attempt == 2
    assert drive.calls[-1].arguments is from_first
    assert drive.calls[-1].arguments == {"n": 0}
