"""Calls of which nobody knows whether they were done: probes, people, routes by name, and no second call by itself (LANGUAGE 5)."""

from __future__ import annotations

import pytest

from agiwo.machine.reports import AttemptLost, OutcomeDecided, ProbeEnded, Stopped, Succeeded
from kit.words import data, failed, flow, records


@pytest.mark.parametrize("tool", ["t.write", "t.irreversible"])
@pytest.mark.parametrize("type", ["Timeout", "NetworkError", "lost"])
def test_an_unsafe_call_without_an_answer_is_unknown_and_not_made_again(tool: str, type: str) -> None:
    """REQ-05."""
    drive = flow(f"id: a, tool: {tool}", "id: b")
    drive.lose("a") if type == "lost" else drive.finish("a", failed(type))
    assert drive.statuses() == {"a": "UNKNOWN"}
    assert drive.instance.status == "RUNNING"
    assert drive.called() == ["a"]
    error = data(drive, "step.unknown")["error"]
    assert error["type"] == "UnknownOutcome"
    assert error["cause"]["type"] == {"lost": "NodeLost"}.get(type, type)


@pytest.mark.parametrize("type", ["Unavailable", "RateLimited", "ToolError", "PermissionDenied", "ValidationError"])
def test_an_answer_that_says_no_is_a_failure_and_no_doubt(type: str) -> None:
    drive = flow("id: a, tool: t.write")
    drive.finish("a", failed(type))
    assert drive.statuses() == {"a": "FAILED"}


def test_a_failure_that_proves_that_nothing_was_done_leaves_no_doubt() -> None:
    drive = flow("id: a, tool: t.write")
    drive.finish("a", failed("NetworkError", not_done=True))
    assert drive.statuses() == {"a": "RETRYING"}


@pytest.mark.parametrize("tool", ["t.pure", "t.read", "t.put"])
def test_a_safe_call_is_never_unknown_by_one_failure(tool: str) -> None:
    drive = flow(f"id: a, tool: {tool}, retry_policy: {{max_attempts: 1}}")
    drive.finish("a", failed("Timeout"))
    assert drive.statuses() == {"a": "FAILED"}


def test_a_person_says_done_with_a_result_and_the_flow_goes_on() -> None:
    drive = flow("id: a, tool: t.write, on_success: b", "id: b, parameters: {x: '{{ steps.a.output }}'}")
    drive.lose("a")
    drive.say("a", True, {"sent": 1})
    assert drive.calls[-1].arguments == {"x": {"sent": 1}}
    assert drive.instance.runs["a"].marks == ("set_by_person",)
    (decided,) = records(drive, "step.outcome_decided")
    assert decided.by == "user:op@example.com"


def test_a_person_says_not_done_and_the_call_is_made_again_under_its_key() -> None:
    drive = flow("id: a, tool: t.write")
    drive.lose("a")
    drive.say("a", False)
    assert [c.attempt for c in drive.calls] == [1, 2]
    assert len({c.idempotency_key for c in drive.calls}) == 1
    drive.finish("a")
    assert drive.instance.status == "SUCCESS"


def test_a_decision_on_a_step_that_is_not_unknown_changes_nothing() -> None:
    drive = flow("id: a, tool: t.write")
    before = drive.instance
    drive.report(OutcomeDecided(drive.now, "a", "user:x", True))
    drive.report(OutcomeDecided(drive.now, "nowhere", "user:x", True))
    assert drive.instance is before


def test_only_a_route_that_names_it_takes_an_unknown_outcome() -> None:
    catch_all = flow("id: a, tool: t.write, on_failure: b, on_timeout: b", "id: b")
    catch_all.finish("a", failed("Timeout"))
    assert catch_all.statuses() == {"a": "UNKNOWN"}
    named = flow("id: a, tool: t.write, on_failure: [{errors: [UnknownOutcome], goto: b}]", "id: b, parameters: {t: '{{ error.type }}'}")
    named.finish("a", failed("Timeout"))
    assert named.statuses()["a"] == "FAILED"
    assert named.calls[-1].arguments == {"t": "UnknownOutcome"}


# ---------------------------------------------------------------- probes


def test_a_probe_is_asked_once_and_done_gives_the_result() -> None:
    drive = flow("id: a, tool: t.probed", "id: b")
    drive.finish("a", failed("Timeout"))
    assert drive.probes["a"].idempotency_key == drive.calls[0].idempotency_key
    drive.probe("a", "done", {"id": 7})
    assert drive.instance.runs["a"].output == {"id": 7}
    assert list(drive.running) == ["b"]


def test_not_done_after_a_lost_node_makes_the_call_again_and_counts_no_try() -> None:
    drive = flow("id: a, tool: t.probed")
    drive.lose("a")
    drive.probe("a", "not_done")
    run = drive.instance.runs["a"]
    assert (run.attempt, run.tries, run.deaths) == (2, 1, 1)
    drive.finish("a")
    assert drive.instance.status == "SUCCESS"


def test_not_done_after_a_timeout_goes_by_the_retry_policy() -> None:
    drive = flow("id: a, tool: t.probed")
    for _ in range(2):
        drive.finish("a", failed("Timeout"))
        drive.probe("a", "not_done")
        assert drive.statuses() == {"a": "RETRYING"}
        drive.pass_time()
    drive.finish("a", failed("Timeout"))
    drive.probe("a", "not_done")
    assert drive.instance.status == "FAILED"
    assert len(drive.calls) == 3


@pytest.mark.parametrize("answer", ["running", "failed"])
def test_a_probe_without_a_final_answer_is_asked_again(answer: str) -> None:
    drive = flow("id: a, tool: t.probed")
    drive.finish("a", failed("Timeout"))
    drive.probe("a", answer)
    assert drive.probes == {}
    assert drive.instance.due_at == drive.now + 5
    drive.pass_time()
    drive.probe("a", "done", 1)
    assert drive.instance.status == "SUCCESS"


def test_a_probe_that_cannot_be_asked_leaves_it_to_a_route_or_a_person() -> None:
    alone = flow("id: a, tool: t.probed")
    alone.finish("a", failed("Timeout"))
    alone.probe("a", "unavailable")
    assert alone.statuses() == {"a": "UNKNOWN"}
    assert not alone.instance.timers
    alone.say("a", True)
    assert alone.instance.status == "SUCCESS"
    routed = flow("id: a, tool: t.probed, on_failure: [{errors: [UnknownOutcome], goto: b}]", "id: b")
    routed.finish("a", failed("Timeout"))
    assert list(routed.probes) == ["a"], "first the probe, then the route"
    routed.probe("a", "unavailable")
    assert list(routed.running) == ["b"]


def test_a_probe_that_went_with_its_node_is_asked_again() -> None:
    drive = flow("id: a, tool: t.probed")
    drive.finish("a", failed("Timeout"))
    del drive.probes["a"]
    drive.report(AttemptLost(drive.now, "a", 1))
    assert list(drive.probes) == ["a"]


def test_a_probes_answer_after_a_person_has_decided_changes_nothing() -> None:
    drive = flow("id: a, tool: t.probed")
    drive.finish("a", failed("Timeout"))
    drive.say("a", False)
    before = drive.instance
    drive.report(ProbeEnded(drive.now, "a", 1, "done", 1))
    assert drive.instance is before
    assert list(drive.running) == ["a"]


# ---------------------------------------------------------------- with clocks and ends


def test_an_unsafe_call_stopped_by_total_timeout_is_unknown_and_the_doubt_has_no_clock() -> None:
    drive = flow("id: a, tool: t.write, total_timeout: 10s, on_timeout: b", "id: b")
    drive.pass_time()
    drive.finish("a", Stopped())
    assert drive.statuses() == {"a": "UNKNOWN"}
    assert not drive.instance.timers
    drive.now += 86_400
    drive.say("a", False)
    assert list(drive.running) == ["a"]
    assert drive.instance.due_at == drive.now + 10, "the time in which nobody knew does not count"
    drive.finish("a", Succeeded(1))
    assert drive.instance.status == "SUCCESS"


def test_a_probe_that_says_not_done_after_total_timeout_is_a_timeout() -> None:
    drive = flow("id: a, tool: t.probed, total_timeout: 10s, on_timeout: b", "id: b")
    drive.pass_time()
    drive.finish("a", Stopped())
    drive.probe("a", "not_done")
    assert list(drive.running) == ["b"]
    assert len(drive.calls) == 2


def test_a_failing_instance_waits_until_its_doubt_is_settled_and_takes_no_route() -> None:
    lines = (
        "id: a, run_parallel: true",
        "id: b, tool: t.write, run_parallel: true, on_failure: [{errors: [UnknownOutcome], goto: x}]",
        "id: x",
    )
    drive = flow(*lines)
    drive.finish("a", failed())
    drive.finish("b", failed("Timeout"))
    assert drive.statuses() == {"a": "FAILED", "b": "UNKNOWN"}
    drive.say("b", False)
    assert drive.instance.status == "FAILED"
    assert drive.statuses()["b"] == "CANCELLED"
    assert len(drive.calls) == 2


def test_a_cancel_leaves_an_unknown_step_cancelled_and_says_so() -> None:
    drive = flow("id: a, tool: t.write")
    drive.finish("a", failed("Timeout"))
    drive.cancel()
    assert drive.instance.status == "CANCELLED"
    assert drive.instance.runs["a"].marks == ("outcome_unknown",)


def test_a_cancel_during_the_stop_of_total_timeout_ends_at_the_stop() -> None:
    drive = flow("id: a, tool: t.write, total_timeout: 10s")
    drive.pass_time()
    drive.cancel()
    drive.finish("a", Stopped())
    assert drive.instance.status == "CANCELLED"
    assert drive.instance.runs["a"].marks == ("outcome_unknown",)
