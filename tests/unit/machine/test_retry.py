"""Retries (LANGUAGE 5): how often, after which failures, how long between; and the clocks of one attempt and of all together."""

from __future__ import annotations

import pytest

from agiwo.definition.compiled import Retry
from agiwo.machine.reports import AttemptEnded, NotBegun, Stopped, Succeeded, TimerDue
from agiwo.machine.retry import delay_of
from kit.words import data, failed, flow, records

NO_POLICY = Retry(3, 1.0, backoff=2.0, max_delay=60.0, jitter=1.0, by_author=False)


@pytest.mark.parametrize(
    ("policy", "draw", "floor", "delays"),
    [
        (Retry(9, 2.0), 0.9, None, [2, 2, 2, 2]),
        (Retry(9, 2.0, backoff=3.0), 0.0, None, [2, 6, 18, 54]),
        (Retry(9, 2.0, backoff=3.0, max_delay=10.0), 0.0, None, [2, 6, 10, 10]),
        (Retry(9, 2.0, backoff=3.0, max_delay=10.0, jitter=0.5), 0.5, None, [2.5, 7.5, 12.5, 12.5]),
        (Retry(9, 0.0, backoff=3.0, jitter=1.0), 0.5, None, [0, 0, 0, 0]),
        (NO_POLICY, 0.0, None, [1, 2, 4, 8, 16, 32, 60, 60]),
        (NO_POLICY, 0.5, None, [1.5, 3, 6, 12, 24, 48, 90, 90]),
        (Retry(9, 2.0), 0.5, 7.0, [8, 8, 8]),
        (Retry(9, 9.0), 0.5, 7.0, [9, 9, 9]),
        (Retry(9, 0.0), 0.5, 0.5, [0.75, 0.75]),
        (Retry(9, 2.0, backoff=3.0, jitter=1.0), 0.0, 7.0, [7, 7, 18]),
        # REQ-12: those who were told one moment do not all come at it, and a wait of a day is not doubled.
        (NO_POLICY, 0.5, 7.0, [10.5, 10.5, 10.5, 12]),
        (NO_POLICY, 0.5, 86_400.0, [86_430.0]),
        (Retry(99, 1.0, backoff=100.0), 0.0, None, [1, 100, 10_000]),
    ],
)
def test_the_delays_follow_the_formula(policy: Retry, draw: float, floor: float | None, delays: list[float]) -> None:
    assert [delay_of(policy, tries, draw, floor) for tries in range(1, len(delays) + 1)] == delays


def test_no_delay_is_longer_than_a_clock_can_hold() -> None:
    assert delay_of(Retry(200, 3600.0, backoff=100.0), 150, 0.0) == 3650 * 86_400
    assert delay_of(Retry(3, 1.0), 1, 0.0, 1e300) == 86_400, "REQ-12: the other side can ask for a day at most"


def test_a_policy_of_three_tries_means_three_with_its_delay_between() -> None:
    drive = flow("id: a, retry_policy: {max_attempts: 3, delay: 2}", world=lambda path, attempt: failed("NetworkError", f"{attempt}"))
    times = [drive.now]
    for _ in range(2):
        drive.finish("a")
        assert drive.statuses() == {"a": "RETRYING"}
        assert drive.instance.due_at == drive.now + 2
        drive.pass_time()
        times.append(drive.now)
    drive.finish("a")
    assert drive.instance.status == "FAILED"
    assert [c.attempt for c in drive.calls] == [1, 2, 3]
    assert [e["message"] for e in drive.instance.runs["a"].attempts] == ["1", "2", "3"]
    assert len({c.idempotency_key for c in drive.calls}) == 1


@pytest.mark.parametrize(("tool", "tries"), [("t.pure", 3), ("t.read", 3), ("t.put", 3), ("t.write", 1), ("t.irreversible", 1)])
def test_without_a_policy_what_is_safe_gets_three_tries_and_the_rest_one(tool: str, tries: int) -> None:
    drive = flow(f"id: a, tool: {tool}", world=lambda path, attempt: failed("Unavailable")).to_end()
    assert len(drive.calls) == tries
    assert drive.instance.status == "FAILED"


@pytest.mark.parametrize(
    ("policy", "type", "again"),
    [
        (None, "NetworkError", True),
        (None, "Timeout", True),
        (None, "ToolError", False),
        (None, "ValidationError", False),
        (None, "UnheardOf", False),
        ("max_attempts: 3, delay: 1", "ToolError", True),
        ("max_attempts: 3, delay: 1", "UnheardOf", True),
        ("max_attempts: 3, delay: 1", "PermissionDenied", False),
        ("max_attempts: 3, retry_on: [NetworkError]", "NetworkError", True),
        ("max_attempts: 3, retry_on: [NetworkError]", "Timeout", False),
        ("max_attempts: 3, retry_on: [Transient]", "RateLimited", True),
        ("max_attempts: 3, retry_on: [PermissionDeniedError]", "PermissionDenied", True),
        ("max_attempts: 3, retry_on: [Transient], give_up_on: [RateLimited]", "RateLimited", False),
        ("max_attempts: 3, when: error.status == 503", "Unavailable", True),
        ("max_attempts: 3, when: error.status == 500", "Unavailable", False),
        ("max_attempts: 3, when: error.nothing.there", "Unavailable", False),
    ],
)
def test_which_failures_are_tried_again(policy: str | None, type: str, again: bool) -> None:
    drive = flow("id: a" + (f", retry_policy: {{{policy}}}" if policy else ""))
    drive.finish("a", failed(type, status=503))
    assert drive.statuses()["a"] == ("RETRYING" if again else "FAILED")


def test_the_condition_of_a_retry_on_a_failure_route_sees_its_own_failure() -> None:
    drive = flow("id: a, on_failure: b", "id: b, retry_policy: {max_attempts: 2, when: error.type == 'NetworkError'}")
    drive.finish("a", failed("PermissionDenied"))
    drive.finish("b", failed("NetworkError"))
    assert drive.statuses()["b"] == "RETRYING"


def test_defaults_apply_only_to_what_is_safe_to_repeat() -> None:
    head = "defaults: {retry_policy: {max_attempts: 5, delay: 1}}"
    assert len(flow("id: a", head=head, world=lambda p, n: failed("NetworkError")).to_end().calls) == 5
    assert len(flow("id: a, tool: t.write", head=head, world=lambda p, n: failed("Unavailable")).to_end().calls) == 1


def test_retry_after_is_a_floor_and_the_delay_stands_in_the_record() -> None:
    """REQ-12."""
    drive = flow("id: a, retry_policy: {max_attempts: 3, delay: 2}")
    drive.finish("a", failed("RateLimited", retry_after=7.0))
    assert data(drive, "step.retrying")["delay"] == 7
    assert drive.instance.due_at == drive.now + 7


def test_a_failure_that_proves_that_nothing_was_done_is_tried_again_whatever_the_effect() -> None:
    drive = flow("id: a, tool: t.irreversible", world=lambda p, n: failed("NetworkError", not_done=True)).to_end()
    assert len(drive.calls) == 3
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["type"] == "NetworkError"


def test_a_retry_that_would_come_after_total_timeout_is_not_waited_for() -> None:
    """REQ-12: a wait that is longer than what is left fails at once with the reason."""
    drive = flow("id: a, total_timeout: 30s, retry_policy: {max_attempts: 5, delay: 1m}")
    drive.finish("a", failed("NetworkError", "no route"))
    assert drive.instance.status == "FAILED"
    error = drive.instance.runs["a"].error
    assert error is not None
    assert error["type"] == "NetworkError"
    assert "total_timeout" in error["message"]


def test_total_timeout_stops_a_running_call_of_a_safe_tool_and_fails_with_timeout() -> None:
    drive = flow("id: a, total_timeout: 10s, on_timeout: b", "id: b")
    drive.pass_time()
    assert drive.stopping == {"a"}
    drive.finish("a", Stopped())
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["details"] == {"clock": "total_timeout"}
    assert list(drive.running) == ["b"]


def test_a_result_that_was_quicker_than_the_stop_of_total_timeout_counts_and_leads_on() -> None:
    drive = flow("id: a, total_timeout: 10s, on_success: b", "id: b")
    drive.pass_time()
    drive.finish("a", Succeeded(1))
    assert list(drive.running) == ["b"]
    reviewed = flow("id: a, total_timeout: 10s, approval: {at: after}", "id: b")
    reviewed.pass_time()
    reviewed.finish("a", Succeeded(1))
    assert reviewed.statuses() == {"a": "WAITING_FOR_APPROVAL"}, "a late result is no reason to leave out the person"
    reviewed.answer()
    assert list(reviewed.running) == ["b"]


def test_total_timeout_counts_over_all_tries_and_not_while_a_person_decides() -> None:
    drive = flow("id: a, total_timeout: 10s, requires_approval: true, retry_policy: {max_attempts: 9, delay: 4}")
    drive.now += 3600
    drive.answer()
    assert list(drive.running) == ["a"]
    begun = drive.now
    drive.finish("a", failed("NetworkError"))
    drive.pass_time()
    drive.finish("a", failed("NetworkError"))
    assert drive.instance.status == "FAILED", "the third try would begin 10 s after the first"
    assert drive.now - begun < 10


def test_total_timeout_ends_a_pending_retry() -> None:
    drive = flow("id: a, total_timeout: 10s, retry_policy: {max_attempts: 9, delay: 5}")
    drive.finish("a", failed("NetworkError"))
    drive.now = drive.instance.timers["a", "total"]
    drive.report(TimerDue(drive.now))
    assert drive.statuses() == {"a": "RUNNING"}, "the retry was due before"
    drive.finish("a", Stopped())
    assert drive.instance.status == "FAILED"


def test_a_timed_out_attempt_of_a_safe_tool_is_tried_again_and_its_late_answer_changes_nothing() -> None:
    """REQ-11."""
    drive = flow("id: a, timeout: 2s, tool: t.read, retry_policy: {max_attempts: 2, delay: 0}")
    assert drive.calls[0].timeout == 2
    drive.finish("a", failed("Timeout", "no result within 2 s", details={"stopped": False}))
    drive.pass_time()
    assert drive.calls[-1].attempt == 2
    before = drive.instance
    drive.report(AttemptEnded(drive.now, "a", 1, Succeeded("late")))
    assert drive.instance is before
    drive.finish("a", Succeeded("second"))
    assert drive.instance.runs["a"].output == "second"
    assert drive.instance.runs["a"].attempts[0]["type"] == "Timeout"


def test_a_call_that_was_never_made_is_made_by_the_next_node_and_counts_as_no_try() -> None:
    drive = flow("id: a, tool: t.irreversible")
    drive.finish("a", NotBegun())
    assert drive.statuses() == {"a": "RETRYING"}
    drive.pass_time()
    assert [(c.attempt, c.idempotency_key) for c in drive.calls] == [
        (1, drive.calls[0].idempotency_key),
        (2, drive.calls[0].idempotency_key),
    ]
    assert drive.instance.runs["a"].tries == 1
    drive.finish("a")
    assert drive.instance.status == "SUCCESS"


def test_a_call_that_was_never_made_ends_a_cancelled_step_without_doubt() -> None:
    drive = flow("id: a, tool: t.irreversible")
    drive.cancel()
    drive.finish("a", NotBegun())
    assert drive.instance.status == "CANCELLED"
    assert drive.instance.runs["a"].marks == ()


@pytest.mark.parametrize("tool", ["t.pure", "t.put"])
def test_a_lost_node_costs_no_try_and_the_call_is_made_again_under_its_key(tool: str) -> None:
    drive = flow(f"id: a, tool: {tool}")
    for _ in range(5):
        drive.lose("a")
        assert list(drive.running) == ["a"]
    run = drive.instance.runs["a"]
    assert (run.attempt, run.tries, run.deaths) == (6, 1, 5)
    assert len({c.idempotency_key for c in drive.calls}) == 1
    drive.finish("a")
    assert drive.instance.status == "SUCCESS"


def test_after_five_lost_nodes_a_person_has_to_look() -> None:
    drive = flow("id: a")
    for _ in range(6):
        drive.lose("a")
    assert drive.statuses() == {"a": "UNKNOWN"}
    assert drive.running == {}
    assert "6 nodes were lost" in data(drive, "step.unknown")["error"]["message"]
    drive.say("a", False)
    assert list(drive.running) == ["a"]
    drive.finish("a")
    assert drive.instance.status == "SUCCESS"


def test_the_record_of_a_retry_has_the_failure_the_delay_and_the_call() -> None:
    drive = flow("id: a, retry_policy: {max_attempts: 2, delay: 3}")
    drive.finish("a", failed("NetworkError", "gone"))
    (record,) = records(drive, "step.retrying")
    assert record.attempt == 1
    assert record.data == {"error": {"type": "NetworkError", "message": "gone"}, "delay": 3, "timers": {"retry": drive.now + 3}}
