"""Waits, cancel in every state, the workflow's clock, the end of everything (LANGUAGE 3, 5 and 7)."""

from __future__ import annotations

import pytest

from agiwo.machine import restore, snapshot
from agiwo.machine.reports import AttemptEnded, CancelAsked, Stopped, Succeeded, TimerDue
from kit.machine import ID, Drive
from kit.words import data, failed, flow, records


@pytest.mark.parametrize(
    ("written", "seconds"), [("90", 90), ("1h30m", 5400), ("'{{ input.n }}'", 7), ("'{{ input.text }}'", 300), ("500ms", 0.5)]
)
def test_a_wait_lasts_as_long_as_it_says(written: str, seconds: float) -> None:
    drive = flow(f"id: a, type: wait, duration: {written}", "id: b", input={"n": 7, "text": "5m"})
    assert drive.statuses() == {"a": "WAITING"}
    assert drive.instance.due_at == drive.now + seconds
    drive.pass_time()
    assert list(drive.running) == ["b"]


@pytest.mark.parametrize("value", ["-1", "soon", "2026-12-01", "", None, True, 1e12, "5000d"])
def test_a_wait_that_is_no_duration_fails_its_step(value: object) -> None:
    drive = flow("id: a, type: wait, duration: '{{ input.n }}'", input={"n": value})
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["type"] == "TemplateError"


def test_a_wait_until_a_moment_with_a_zone_and_one_that_is_past_goes_on_at_once() -> None:
    drive = flow("id: a, type: wait, until: '1970-01-12T13:46:40+01:00'", "id: b")
    assert drive.now == 1_000_000
    assert list(drive.running) == ["b"], "that was an hour ago"
    later = flow("id: a, type: wait, until: '1970-01-12T13:47:40Z'")
    assert later.instance.due_at == 1_000_060


@pytest.mark.parametrize("until", ["2026-12-01T09:00:00", "tomorrow", "12:30"])
def test_a_moment_without_a_zone_fails_the_step(until: str) -> None:
    drive = flow("id: a, type: wait, until: '{{ input.t }}'", input={"t": until})
    assert drive.instance.runs["a"].error is not None
    assert "with zone" in drive.instance.runs["a"].error["message"]


def test_a_wait_survives_a_restart_with_the_time_that_it_had() -> None:
    drive = flow("id: a, type: wait, duration: 1h", "id: b")
    due = drive.instance.due_at
    drive.instance = restore(drive.workflow, "default", ID, snapshot(drive.instance))
    assert drive.instance.due_at == due
    drive.pass_time()
    assert list(drive.running) == ["b"]


def test_a_timer_report_before_its_time_changes_nothing() -> None:
    drive = flow("id: a, type: wait, duration: 1h")
    before = drive.instance
    drive.report(TimerDue(drive.now + 3599))
    assert drive.instance is before


def test_all_timers_that_are_due_fire_in_one_report() -> None:
    drive = flow("id: a, type: wait, duration: 1h, run_parallel: true", "id: b, type: wait, duration: 2h, run_parallel: true", "id: c")
    drive.now += 7200
    drive.report(TimerDue(drive.now))
    assert list(drive.running) == ["c"]


# ---------------------------------------------------------------- cancel


def _running() -> Drive:
    return flow("id: a")


def _retrying() -> Drive:
    drive = flow("id: a")
    drive.finish("a", failed("NetworkError"))
    return drive


def _unknown() -> Drive:
    drive = flow("id: a, tool: t.write")
    drive.lose("a")
    return drive


def _probing() -> Drive:
    drive = flow("id: a, tool: t.probed")
    drive.lose("a")
    return drive


def _waiting() -> Drive:
    return flow("id: a, type: wait, duration: 1h")


def _asked() -> Drive:
    return flow("id: a, requires_approval: true")


@pytest.mark.parametrize("state", [_running, _retrying, _unknown, _probing, _waiting, _asked])
def test_a_cancel_ends_a_step_in_every_state(state: object) -> None:
    """REQ-15."""
    assert callable(state)
    drive: Drive = state()
    drive.cancel()
    if drive.running:
        assert drive.instance.status == "CANCELLING"
        assert drive.stopping == {"a"}
        drive.finish("a")
    assert drive.instance.status == "CANCELLED"
    assert drive.statuses() == {"a": "CANCELLED"}
    assert drive.instance.ending is not None
    assert drive.instance.ending.by == "user:op@example.com"
    assert "cancelled by user:op@example.com: enough" in str(drive.instance.runs["a"].reason)


@pytest.mark.parametrize(
    ("tool", "marks"), [("t.read", ()), ("t.put", ()), ("t.write", ("outcome_unknown",)), ("t.irreversible", ("outcome_unknown",))]
)
def test_an_aborted_unsafe_call_is_marked_unknown(tool: str, marks: tuple[str, ...]) -> None:
    for how in ("stopped", "late", "lost"):
        drive = flow(f"id: a, tool: {tool}")
        drive.cancel()
        if how == "lost":
            drive.lose("a")
        else:
            drive.finish("a", Stopped(clean=False) if how == "stopped" else failed("Timeout"))
        assert drive.instance.runs["a"].marks == marks
        assert drive.instance.status == "CANCELLED"


def test_a_call_that_said_no_while_it_was_stopped_leaves_no_doubt() -> None:
    drive = flow("id: a, tool: t.write")
    drive.cancel()
    drive.finish("a", failed("PermissionDenied"))
    assert drive.instance.runs["a"].marks == ()


def test_a_call_that_was_quicker_than_its_cancel_keeps_its_result_and_nothing_follows() -> None:
    drive = flow("id: a, approval: {at: after}", "id: b")
    drive.cancel()
    drive.finish("a", Succeeded(1))
    assert drive.statuses() == {"a": "SUCCESS"}
    assert drive.approvals == {}
    assert drive.instance.status == "CANCELLED"


def test_a_second_cancel_is_written_down_and_stops_nothing_twice() -> None:
    drive = flow("id: a")
    drive.cancel()
    before = len(drive.history)
    drive.cancel()
    assert [r.type for r in drive.history[before:]] == ["instance.cancel_asked"]


def test_a_cancel_while_a_failure_settles_stops_what_is_waited_for_and_the_end_stays_failed() -> None:
    drive = flow("id: a, run_parallel: true", "id: b, run_parallel: true", "id: c, tool: t.write, run_parallel: true")
    drive.finish("a", failed())
    drive.finish("c", failed("Timeout"))
    drive.cancel()
    assert drive.stopping == {"b"}
    assert drive.statuses()["c"] == "CANCELLED"
    drive.finish("b")
    assert drive.instance.status == "FAILED"


def test_a_cancel_during_a_handler_does_not_disturb_it() -> None:
    drive = flow("id: a", "id: h", head="error_handler: h")
    drive.finish("a", failed())
    drive.cancel()
    assert drive.stopping == set()
    drive.to_end()
    assert drive.statuses()["h"] == "SUCCESS"
    assert drive.instance.status == "FAILED"


# ---------------------------------------------------------------- the workflow's clock and the end


def test_the_workflows_timeout_counts_waits_stops_what_runs_and_ends_timed_out() -> None:
    drive = flow("id: a, run_parallel: true", "id: w, type: wait, duration: 1h, run_parallel: true", head="timeout: 10m")
    assert drive.instance.due_at == drive.now + 600
    drive.pass_time()
    assert drive.stopping == {"a"}
    assert drive.statuses()["w"] == "CANCELLED"
    drive.finish("a")
    assert drive.instance.status == "TIMED_OUT"
    assert drive.instance.ending is not None
    assert drive.instance.ending.error is not None
    assert drive.instance.ending.error["type"] == "Timeout"


def test_the_workflows_timeout_does_not_cut_handlers() -> None:
    """REQ-16."""
    drive = flow("id: a", "id: h", head="timeout: 10m\nerror_handler: h")
    drive.finish("a", failed())
    assert ("", "workflow") not in drive.instance.timers
    assert drive.instance.due_at == drive.now + 15 * 60


def test_a_timeout_and_a_due_wait_in_one_report_start_nothing_new() -> None:
    drive = flow("id: w, type: wait, duration: 5m", "id: b", head="timeout: 10m")
    drive.now += 3600
    drive.report(TimerDue(drive.now))
    assert drive.instance.status == "TIMED_OUT"
    assert drive.called() == []


def test_the_output_is_rendered_at_the_end_and_an_open_read_gives_null() -> None:
    head = "output: {a: '{{ steps.a.output.path }}', b: '{{ steps.b.output }}', c: 'x{{ steps.b.status }}'}"
    drive = flow("id: a", "id: b, when: '{{ false }}'", head=head).to_end()
    assert drive.instance.ending is not None
    assert drive.instance.ending.output == {"a": "a", "b": None, "c": "xSKIPPED"}
    assert data(drive, "instance.ended")["output"] == drive.instance.ending.output


def test_a_workflow_without_output_gives_null() -> None:
    drive = flow("id: a").to_end()
    assert drive.instance.ending is not None
    assert drive.instance.ending.output is None


def test_an_ended_instance_takes_in_every_report_and_changes_nothing() -> None:
    """REQ-02: a terminal state is final."""
    drive = flow("id: a").to_end()
    ended = drive.instance
    for report in (
        AttemptEnded(drive.now, "a", 1, failed()),
        CancelAsked(drive.now, "user:x"),
        TimerDue(drive.now + 1e9),
        AttemptEnded(drive.now, "nowhere", 1, failed()),
    ):
        drive.report(report)
        assert drive.instance is ended


def test_when_an_instance_has_ended_no_step_is_pending_and_each_that_did_not_run_says_why() -> None:
    branch = "id: b, type: branch, cases: [{when: input.x, goto: c}], default: d"
    drive = flow(branch, "id: c, on_failure: x", "id: d", "id: x", input={"x": True}).to_end()
    assert drive.instance.not_run == {"d": "not_chosen", "x": "not_reached"}
    stopped = flow("id: a", "id: b")
    stopped.cancel()
    stopped.to_end()
    assert stopped.instance.not_run == {"b": "cancelled"}
    assert len(records(stopped, "instance.ended")) == 1
