"""`join: any` and `join: {at_least: n}`: met as soon as enough succeeded, tolerant as long as they can be met, and `cancel_rest`."""

from __future__ import annotations

import itertools

import pytest

from agiwo.machine import InstanceStatus, StepStatus
from kit.machine import failing
from kit.words import data, failed, flow, order, records

START = "depends_on: []"
ABC = [f"id: {id}, {START}" for id in "abc"]
ANY = "id: j, depends_on: [a, b, c], join: any"
TWO = "id: j, depends_on: [a, b, c], join: {at_least: 2}"


@pytest.mark.parametrize("first", ["a", "b", "c"])
def test_any_starts_at_the_first_success_and_the_others_go_on(first: str) -> None:
    drive = flow(*ABC, ANY)
    drive.finish(first)
    assert sorted(drive.running) == sorted({"a", "b", "c", "j"} - {first})
    drive.to_end()
    assert drive.called().count("j") == 1
    assert [run for run in drive.statuses() if run.startswith("j")] == ["j"]
    assert set(drive.statuses().values()) == {"SUCCESS"}


@pytest.mark.parametrize("ends", list(itertools.permutations("abc")))
def test_late_losers_start_nothing_whatever_the_order(ends: tuple[str, ...]) -> None:
    drive = flow(*ABC, TWO, "id: k, depends_on: [j]")
    for number, id in enumerate(ends):
        drive.finish(id)
        assert ("j" in drive.called()) is (number >= 1)
        if number == 1:
            drive.finish("j")
            drive.finish("k")
    assert drive.instance.status is InstanceStatus.SUCCESS
    assert (drive.called().count("j"), drive.called().count("k")) == (1, 1)


def test_at_least_all_waits_for_all() -> None:
    drive = flow(*ABC, "id: j, depends_on: [a, b, c], join: {at_least: 3}")
    for id in "abc":
        assert "j" not in drive.running
        drive.finish(id)
    assert "j" in drive.running


def test_a_failure_that_the_join_can_do_without_is_handled() -> None:
    drive = flow(*ABC, TWO, world=failing(b="ToolError"))
    drive.finish("b")
    assert drive.instance.ending is None
    assert drive.instance.runs["b"].taken == "join"
    drive.to_end()
    assert drive.instance.status is InstanceStatus.SUCCESS
    assert drive.statuses() == {"a": "SUCCESS", "b": "FAILED", "c": "SUCCESS", "j": "SUCCESS"}


def test_a_failure_after_which_the_join_cannot_be_met_ends_the_instance() -> None:
    drive = flow(*ABC, TWO, world=failing(b="ToolError", c="NetworkError")).to_end([1, 0])
    assert drive.instance.status is InstanceStatus.FAILED
    assert drive.statuses()["b"] == "FAILED"
    assert "j" not in drive.called()


def test_the_failure_of_a_late_loser_changes_nothing() -> None:
    drive = flow(*ABC, ANY)
    drive.finish("a")
    drive.finish("b", failed("PermissionDenied"))
    drive.to_end()
    assert drive.instance.status is InstanceStatus.SUCCESS
    assert drive.instance.runs["b"].taken == "join"


@pytest.mark.parametrize("skip_first", [True, False])
def test_a_failure_that_only_a_join_allowed_counts_again_once_that_cannot_be_met(skip_first: bool) -> None:
    """In either order: the other source does not come any more, so nothing has taken the failure."""
    lines = [f"id: a, {START}", f"id: s, {START}", "id: b, depends_on: [s], when: '{{ false }}'", "id: j, depends_on: [a, b], join: any"]
    drive = flow(*lines)
    if skip_first:
        drive.finish("s")
        drive.finish("a", failed("PermissionDenied"))
    else:
        drive.finish("a", failed("PermissionDenied"))
        assert drive.instance.ending is None
        drive.finish("s")
    assert drive.instance.status is InstanceStatus.FAILED
    assert drive.instance.ending.error["step"] == "a"  # type: ignore[union-attr,index]


def test_a_failure_that_another_join_allows_too_stays_handled() -> None:
    lines = [f"id: a, {START}", f"id: b, {START}, when: '{{{{ false }}}}'", "id: j, depends_on: [a, b], join: any",
             "id: k, depends_on: [a], join: all_done"]  # fmt: skip
    drive = flow(*lines, world=failing(a="PermissionDenied")).to_end()
    assert drive.instance.status is InstanceStatus.SUCCESS
    assert drive.statuses() == {"a": "FAILED", "b": "SKIPPED", "j": "SKIPPED", "k": "SUCCESS"}


def test_a_join_that_cannot_be_met_is_skipped_at_once_and_names_the_source() -> None:
    lines = [f"id: a, {START}", f"id: b, {START}, when: '{{{{ false }}}}'", f"id: c, {START}, when: '{{{{ false }}}}'", TWO]
    drive = flow(*lines)
    assert drive.statuses()["j"] == "SKIPPED"  # a still runs, and cannot help any more
    skipped = data(drive, "step.skipped", "j")
    assert (skipped["reason"], skipped["evidence"]["sources"]) == ("join_not_met", ["b", "c"])
    drive.to_end()
    assert drive.instance.status is InstanceStatus.SUCCESS
    assert len(records(drive, "step.skipped", "j")) == 1


def test_a_source_that_does_not_come_is_not_waited_for() -> None:
    """Only one of the two is chosen; the join takes what comes."""
    route = f"id: r, {START}, route: {{choose: input.way, targets: {{x: a, y: b}}}}"
    for way in "xy":
        drive = flow(route, "id: a", "id: b", "id: j, depends_on: [a, b], join: any", input={"way": way}).to_end()
        assert drive.statuses()["j"] == "SUCCESS"


def test_a_second_pass_of_a_loop_fires_again() -> None:
    again = "route: {cases: [{when: steps.j.iteration < 2, goto: s}], default: end}"
    drive = flow("id: s", "id: a, depends_on: [s]", "id: b, depends_on: [s]", f"id: j, depends_on: [a, b], join: any, {again}")
    drive.to_end([0, 0, 1, 0, 0, 1, 0])
    assert (drive.called().count("j"), drive.called().count("j~2")) == (1, 1)
    assert "j~3" not in drive.instance.runs
    assert drive.instance.status is InstanceStatus.SUCCESS


# ---------------------------------------------------------------- cancel_rest


def test_cancel_rest_stops_running_calls_through_the_usual_way() -> None:
    drive = flow(*ABC, ANY + ", cancel_rest: true")
    drive.finish("b")
    assert drive.stopping == {"a", "c"}
    assert "j" in drive.running
    drive.to_end()
    assert drive.statuses() == {"a": "CANCELLED", "b": "SUCCESS", "c": "CANCELLED", "j": "SUCCESS"}
    assert "j has what it waits for" in (drive.instance.runs["a"].reason or "")
    assert drive.instance.status is InstanceStatus.SUCCESS


def test_cancel_rest_takes_back_timers_approvals_retries_and_signals() -> None:
    lines = [
        f"id: a, {START}, type: wait, duration: 60",
        f"id: b, {START}, type: approval, approval: {{}}",
        f"id: c, {START}, type: wait_for_signal, event: x, timeout: 60",
        f"id: d, {START}, retry_policy: {{max_attempts: 2, delay: 60}}",
        f"id: e, {START}",
        "id: j, depends_on: [a, b, c, d, e], join: any, cancel_rest: true",
    ]
    drive = flow(*lines)
    drive.finish("d", failed("NetworkError"))
    drive.finish("e")
    assert {drive.statuses()[id] for id in "abcd"} == {"CANCELLED"}
    assert not drive.instance.timers
    assert not drive.approvals
    drive.to_end()
    assert drive.instance.status is InstanceStatus.SUCCESS


def test_cancel_rest_reaches_what_still_leads_to_the_sources() -> None:
    lines = [f"id: a, {START}", f"id: s, {START}", "id: t, depends_on: [s]", "id: b, depends_on: [t]",
             "id: j, depends_on: [a, b], join: any, cancel_rest: true", "id: other, depends_on: [s]"]  # fmt: skip
    drive = flow(*lines)
    drive.finish("s")
    drive.finish("a")
    drive.to_end()
    assert drive.statuses() == {"a": "SUCCESS", "s": "SUCCESS", "t": "CANCELLED", "j": "SUCCESS", "other": "SUCCESS"}
    assert drive.instance.not_run == {"b": "not_chosen"}


def test_what_was_to_be_stopped_and_succeeds_all_the_same_starts_nothing() -> None:
    lines = [f"id: a, {START}", f"id: s, {START}", "id: t, depends_on: [s]", "id: b, depends_on: [t], join: all_done",
             "id: j, depends_on: [a, b], join: any, cancel_rest: true"]  # fmt: skip
    drive = flow(*lines)
    drive.finish("a")
    drive.finish("s", drive.world("s", 1))
    drive.to_end()
    assert drive.statuses() == {"a": "SUCCESS", "s": "SUCCESS", "j": "SUCCESS"}
    assert drive.called() == ["a", "s", "j"]


def test_an_unsafe_call_that_cancel_rest_stops_is_marked() -> None:
    drive = flow(f"id: a, {START}", f"id: b, {START}, tool: t.write", "id: j, depends_on: [a, b], join: any, cancel_rest: true")
    drive.finish("a")
    drive.to_end()
    assert (drive.statuses()["b"], drive.instance.runs["b"].marks) == ("CANCELLED", ("outcome_unknown",))


def test_after_cancel_rest_a_loop_may_run_the_same_steps_again() -> None:
    again = "route: {cases: [{when: steps.j.iteration < 2, goto: s}], default: end}"
    lines = ["id: s", "id: a, depends_on: [s]", "id: b, depends_on: [s]", "id: c, depends_on: [b]",
             f"id: j, depends_on: [a, c], join: any, cancel_rest: true, {again}"]  # fmt: skip
    drive = flow(*lines)
    for path in ("s", "a", "j"):
        drive.finish(path)
    assert drive.statuses()["b"] == "RUNNING"
    drive.finish("s~2") if "s~2" in drive.running else None
    drive.finish("b")
    drive.to_end([1])
    assert drive.called().count("j~2") == 1
    assert drive.statuses()["b~2"] in ("SUCCESS", "CANCELLED")
    assert drive.instance.status is InstanceStatus.SUCCESS


def test_a_row_does_not_go_on_from_what_was_called_off() -> None:
    drive = flow(f"id: a, {START}", f"id: b, {START}, on_success: x", "id: x", "id: j, depends_on: [a, b], join: any, cancel_rest: true")
    drive.finish("a")
    drive.finish("b", drive.world("b", 1))
    drive.to_end()
    assert drive.called() == ["a", "b", "j"]
    assert drive.instance.runs["b"].status is StepStatus.SUCCESS


def test_the_history_says_what_was_called_off_and_why() -> None:
    drive = flow(*ABC, ANY + ", cancel_rest: true")
    drive.finish("a")
    assert data(drive, "join.cut") == {"step": "j", "off": []}
    assert [r.data["off"] for r in records(drive, "step.stopping")] == ["j", "j"]  # type: ignore[index]
    assert order(drive, "join.cut", "step.stopping")[0] == "join.cut"
