"""Calls that are answered later: early, late, never, and by whom (LANGUAGE 3, `completion: callback`)."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.errors import Failure
from agiwo.machine.reports import CallbackReceived, Succeeded
from kit.machine import Drive
from kit.words import data, failed, flow, records

STEP = "id: a, tool: {tool}, completion: {{mode: callback, timeout: 100}}, on_success: b"


def begun(tool: str = "t.put", **more: Any) -> Drive:
    text = STEP.format(tool=tool) + "".join(f", {key}: {value}" for key, value in more.items())
    return flow(text, "id: b, parameters: {x: '{{ steps.a.output }}'}")


def call_back(drive: Drive, kind: str = "result", result: Any = None, path: str = "a", **more: Any) -> None:
    drive.now += 1
    drive.report(CallbackReceived(drive.now, path, kind, result, **more))


def test_a_call_that_was_taken_on_waits_and_goes_on_with_what_is_called_back() -> None:
    drive = begun()
    drive.finish("a", Succeeded({"accepted": True}))
    assert drive.statuses() == {"a": "WAITING"}
    assert drive.instance.runs["a"].reason == "callback"
    call_back(drive, result={"done": 1})
    assert drive.calls[-1].arguments == {"x": {"done": 1}}
    assert data(drive, "step.waiting")["evidence"] == {"accepted": {"accepted": True}}
    drive.to_end()
    drive.stale()


def test_an_answer_that_comes_before_the_call_itself_returned_is_the_answer() -> None:
    drive = begun()
    call_back(drive, result=7)
    assert drive.instance.runs["a"].output == 7
    assert "a" not in drive.running, "what the call itself still says changes nothing"
    assert drive.calls[-1].arguments == {"x": 7}


@pytest.mark.parametrize("tool", ["t.put", "t.write"])
def test_an_answer_settles_a_call_that_seemed_to_have_failed(tool: str) -> None:
    drive = begun(tool)
    drive.finish("a", failed("NetworkError"))
    assert drive.statuses() == {"a": "RETRYING" if tool == "t.put" else "UNKNOWN"}
    call_back(drive, result=1)
    assert drive.statuses() == {"a": "SUCCESS", "b": "RUNNING"}
    assert drive.called() == ["a", "b"]


def test_silence_is_a_timeout_for_what_may_be_repeated_and_a_doubt_for_the_rest() -> None:
    safe, unsafe = begun("t.put", retry_policy="{max_attempts: 1}"), begun("t.write")
    for drive in (safe, unsafe):
        drive.finish("a", Succeeded(None))
        drive.pass_time()
    assert safe.instance.runs["a"].error is not None
    assert (safe.statuses()["a"], safe.instance.runs["a"].error["details"]) == ("FAILED", {"clock": "callback"})
    assert unsafe.statuses() == {"a": "UNKNOWN"}
    call_back(unsafe, result=3)
    assert unsafe.statuses() == {"a": "SUCCESS", "b": "RUNNING"}, "a late answer settles the doubt"


def test_a_failure_that_is_called_back_goes_the_way_of_every_failure() -> None:
    drive = begun("t.put", retry_policy="{max_attempts: 2, delay: 1}")
    drive.finish("a", Succeeded(None))
    call_back(drive, "failure", failure=Failure("ToolError", "no paper"))
    assert drive.statuses() == {"a": "RETRYING"}
    drive.pass_time()
    assert len({call.idempotency_key for call in drive.calls}) == 1
    drive.finish("a", Succeeded(None))
    call_back(drive, "failure", failure=Failure("ToolError", "no paper"))
    assert drive.statuses() == {"a": "FAILED"}
    write = begun("t.write")
    write.finish("a", Succeeded(None))
    call_back(write, "failure", failure=Failure("ToolError", "declined"))
    assert write.statuses() == {"a": "FAILED"}, "the other side says what happened, so there is no doubt"


def test_a_failure_told_of_an_earlier_attempt_does_not_fail_the_present_one() -> None:
    drive = begun("t.put", retry_policy="{max_attempts: 3, delay: 1}")
    drive.finish("a", Succeeded(None))
    call_back(drive, "failure", failure=Failure("ToolError", "no paper"), attempt=1)
    drive.pass_time()
    drive.finish("a", Succeeded(None))
    call_back(drive, "failure", failure=Failure("ToolError", "no paper"), attempt=1)
    assert drive.statuses() == {"a": "WAITING"}
    call_back(drive, "failure", failure=Failure("ToolError", "no paper"), attempt=2)
    assert drive.statuses() == {"a": "RETRYING"}


def test_signs_of_life_move_the_heartbeat_and_silence_ends_it() -> None:
    drive = begun("t.put", heartbeat=10, retry_policy="{max_attempts: 1}")
    drive.finish("a", Succeeded(None))
    first = drive.instance.timers["a", "heartbeat"]
    call_back(drive, "sign")
    assert drive.instance.timers["a", "heartbeat"] > first
    drive.pass_time()
    assert drive.statuses() == {"a": "FAILED"}
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["details"] == {"clock": "heartbeat"}


def test_total_timeout_counts_the_waiting() -> None:
    drive = begun("t.put", total_timeout=5)
    drive.finish("a", Succeeded(None))
    drive.pass_time()
    assert drive.statuses() == {"a": "FAILED"}
    assert "total_timeout" in data(drive, "step.failed")["error"]["message"]


@pytest.mark.parametrize(("tool", "outcome"), [("t.put", None), ("t.write", "unknown")])
def test_a_cancel_leaves_the_work_with_the_other_side_and_says_so(tool: str, outcome: str | None) -> None:
    drive = begun(tool)
    drive.finish("a", Succeeded(None))
    drive.cancel()
    assert drive.instance.status == "CANCELLED"
    assert data(drive, "step.cancelled").get("outcome") == outcome
    call_back(drive, result=1)
    assert not records(drive, "step.called_back")


def test_nobody_is_heard_about_a_step_that_awaits_nothing() -> None:
    drive = flow("id: a", "id: b")
    call_back(drive, result=1)
    call_back(drive, result=1, path="nowhere")
    assert drive.statuses() == {"a": "RUNNING"}
    assert not records(drive, "step.called_back")


def test_a_fallback_is_taken_after_silence_and_is_no_longer_answered_by_callback() -> None:
    drive = begun("t.put", retry_policy="{max_attempts: 1}", fallback="{tool: t.read, parameters: {}}")
    drive.finish("a", Succeeded(None))
    drive.pass_time()
    assert drive.statuses() == {"a": "RUNNING"}
    call_back(drive, result="late")
    drive.finish("a", Succeeded("instead"))
    assert (drive.instance.runs["a"].output, drive.instance.runs["a"].marks) == ("instead", ("degraded",))
