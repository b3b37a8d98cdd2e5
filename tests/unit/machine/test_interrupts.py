"""Stops before and after steps that the trigger asked for, and how the instance goes on."""

from __future__ import annotations

import pytest

from agiwo.machine import InstanceStatus, StepStatus, restore, snapshot
from agiwo.machine.interrupts import interrupted
from agiwo.machine.reports import Resumed
from kit.machine import ID, Drive, failing
from kit.words import data, failed, flow, records


def at(drive: Drive) -> list[str]:
    return [run.path for run in interrupted(drive.instance)]


def test_a_step_interrupted_before_is_queued_and_nothing_of_it_was_evaluated() -> None:
    drive = flow("id: a", "id: b, when: steps.a.output.path == 'nowhere'", "id: c", interrupt_before=("b",))
    drive.finish("a")
    run = drive.instance.runs["b"]
    assert (run.status, run.reason, at(drive)) == (StepStatus.QUEUED, "interrupt", ["b"])
    assert not drive.running
    drive.resume()
    assert (drive.statuses()["b"], list(drive.running)) == ("SKIPPED", ["c"])
    drive.to_end()
    assert data(drive, "instance.resumed") == {"reason": "looked at it", "paths": ["b"]}
    assert records(drive, "instance.resumed")[0].by == "user:op@example.com"


def test_a_step_interrupted_after_has_ended_and_nothing_follows_until_somebody_resumes() -> None:
    drive = flow("id: a, writes: {n: 1}", "id: b", head="context: {n: 0}", interrupt_after=("a",))
    drive.finish("a")
    assert drive.statuses() == {"a": "SUCCESS"}
    assert (drive.instance.values["n"], at(drive)) == (1, ["a"])
    drive.resume()
    assert list(drive.running) == ["b"]
    assert drive.to_end().instance.status is InstanceStatus.SUCCESS


def test_after_the_last_step_the_instance_waits_too() -> None:
    drive = flow("id: a", interrupt_after=("a",))
    drive.finish("a")
    assert not drive.instance.ended
    drive.resume()
    assert drive.instance.status is InstanceStatus.SUCCESS


@pytest.mark.parametrize("follows", ["on_success: b", "route: {cases: [{when: 'true', goto: b}], default: end}", "on_success: [b, c]"])
def test_jumps_and_routes_wait(follows: str) -> None:
    drive = flow(f"id: a, {follows}", "id: b", *(["id: c"] if "[b, c]" in follows else []), interrupt_after=("a",))
    drive.finish("a")
    assert "b" not in drive.running
    drive.resume()
    assert "b" in drive.running
    assert drive.to_end().instance.status is InstanceStatus.SUCCESS


def test_joins_wait_and_what_stands_beside_goes_on() -> None:
    drive = flow(
        "id: a, depends_on: []", "id: b, depends_on: []", "id: j, depends_on: [a, b]", "id: k, depends_on: [b]", interrupt_after=("a",)
    )
    drive.finish("a")
    drive.finish("b")
    assert list(drive.running) == ["k"]
    drive.finish("k")
    assert "j" not in drive.running
    drive.resume()
    drive.to_end()
    assert drive.called() == ["a", "b", "k", "j"]


def test_a_failure_that_a_route_takes_waits_as_well_and_one_that_nothing_takes_ends_the_instance() -> None:
    drive = flow(
        "id: a, on_failure: x", "id: x, parameters: {why: '{{ error.type }}'}", world=failing(a="PermissionDenied"), interrupt_after=("a",)
    )
    drive.finish("a")
    assert at(drive) == ["a"]
    drive.resume()
    assert drive.calls[-1].arguments == {"why": "PermissionDenied"}
    drive = flow("id: a", "id: b", interrupt_after=("a",))
    drive.finish("a", failed("PermissionDenied"))
    assert drive.instance.status is InstanceStatus.FAILED


def test_an_id_stands_for_every_run_of_a_step_and_a_path_for_one() -> None:
    for names, stops in ((("a",), ["a", "a~2"]), (("a~2",), ["a~2"])):
        again = "route: {cases: [{when: steps.a.iteration < 2, goto: a}], default: end}"
        drive = flow(f"id: a, {again}", interrupt_before=names)
        seen = []
        while not drive.instance.ended:
            seen += at(drive)
            drive.resume() if at(drive) else drive.finish(next(iter(drive.running)))
        assert seen == stops


@pytest.mark.parametrize("where", ["before", "after"])
def test_cancel_works_while_interrupted(where: str) -> None:
    drive = flow("id: a", "id: b", **{f"interrupt_{where}": ("a",)})
    if where == "after":
        drive.finish("a")
    drive.cancel()
    assert drive.instance.status is InstanceStatus.CANCELLED
    assert drive.called() == (["a"] if where == "after" else [])
    assert drive.statuses() == {"a": "SUCCESS" if where == "after" else "CANCELLED"}


def test_the_failure_of_another_branch_ends_an_interrupted_instance() -> None:
    drive = flow("id: a, depends_on: []", "id: b, depends_on: []", "id: c, depends_on: [a]", interrupt_after=("a",))
    drive.finish("a")
    drive.finish("b", failed("PermissionDenied"))
    assert drive.instance.status is InstanceStatus.FAILED
    assert drive.instance.not_run == {"c": "upstream"}


def test_an_interrupt_survives_a_restart() -> None:
    drive = flow("id: a, on_success: b", "id: b", interrupt_before=("b",), interrupt_after=("a",))
    drive.finish("a")
    restored = restore(drive.workflow, "default", ID, snapshot(drive.instance))
    assert restored == drive.instance
    drive.resume()
    assert at(drive) == ["b"]
    drive.resume()
    assert drive.to_end().instance.status is InstanceStatus.SUCCESS


def test_resume_where_nothing_is_interrupted_changes_nothing() -> None:
    drive = flow("id: a", "id: b", interrupt_before=("b",))
    drive.resume()
    assert not records(drive, "instance.resumed")


def test_only_what_was_seen_is_let_go() -> None:
    drive = flow("id: a, depends_on: []", "id: b, depends_on: []", interrupt_before=("a", "b"))
    drive.report(Resumed(drive.now, "user:op@example.com", paths=["b"]))
    assert (at(drive), list(drive.running)) == (["a"], ["b"])
    drive.report(Resumed(drive.now, "user:op@example.com", paths=["b"]))
    assert at(drive) == ["a"]
    drive = flow("id: a, depends_on: []", "id: b, depends_on: []", "id: c, depends_on: [a]", interrupt_after=("a", "b"))
    drive.finish("a")
    drive.finish("b")
    drive.report(Resumed(drive.now, "user:op@example.com", paths=["a"]))
    assert (at(drive), list(drive.running)) == (["b"], ["c"])


def test_handlers_are_not_interrupted() -> None:
    drive = flow("id: a", "id: f", head="finally: [f]", interrupt_before=("f",), interrupt_after=("f",))
    assert drive.to_end().instance.status is InstanceStatus.SUCCESS


def test_an_approval_or_a_wait_begins_after_the_interrupt() -> None:
    for line, status in (
        ("type: approval, approval: {}", "WAITING_FOR_APPROVAL"),
        ("type: wait, duration: 5", "WAITING"),
        ("requires_approval: true", "WAITING_FOR_APPROVAL"),
    ):
        drive = flow(f"id: a, {line}", interrupt_before=("a",))
        assert (drive.statuses(), len(drive.approvals), len(drive.instance.timers)) == ({"a": "QUEUED"}, 0, 0)
        drive.resume()
        assert drive.statuses() == {"a": status}
