"""Fallbacks and open circuits (LANGUAGE 5): what is taken when a call has failed for good, or is not made at all."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.definition import check, load
from agiwo.definition.contract import Effect, ToolContract
from agiwo.machine.reports import AttemptEnded, Failed, Stopped, Succeeded, TimerDue
from agiwo.service.view import instance_view, status_of
from agiwo.tools.builtin import standard_registry
from kit.machine import CONTRACTS, Drive
from kit.words import HEAD, data, failed, flow, order, records

TRANSIENT = "retry_policy: {max_attempts: 2, delay: 1}"


def is_open(seconds: float = 30.0) -> Failed:
    return failed(
        "CircuitOpen", "the circuit is open", not_done=True, retry_after=seconds, cause={"type": "NetworkError", "message": "away"}
    )


def run_of(drive: Drive, path: str = "a") -> Any:
    return drive.instance.runs[path]


# ---------------------------------------------------------------- value


def test_a_value_is_taken_when_the_tries_are_used_up_and_the_step_is_a_degraded_success() -> None:
    drive = flow(f"id: a, {TRANSIENT}, fallback: {{value: {{rate: 1}}}}", "id: b, parameters: {x: '{{ steps.a.output.rate }}'}")
    drive.finish("a", failed("NetworkError"))
    assert drive.statuses()["a"] == "RETRYING"
    drive.pass_time()
    drive.finish("a", failed("NetworkError", "gone"))
    assert drive.statuses() == {"a": "SUCCESS", "b": "RUNNING"}
    assert run_of(drive).output == {"rate": 1}
    assert run_of(drive).marks == ("degraded",)
    assert drive.calls[-1].arguments == {"x": 1}
    assert data(drive, "step.succeeded", "a")["degraded"] == "value"
    assert order(drive, "step.retrying", "step.fallback", "step.succeeded") == ["step.retrying a", "step.fallback a", "step.succeeded a"]
    shown = instance_view(drive.instance)["steps"]["a"]
    assert shown["marks"] == ["degraded"]
    assert shown["fallback"]["kind"] == "value"
    assert shown["fallback"]["error"]["message"] == "gone"


def test_a_failure_that_is_not_tried_again_takes_the_fallback_at_once() -> None:
    drive = flow("id: a, fallback: {value: null}, on_failure: x", "id: x")
    drive.finish("a", failed("PermissionDenied"))
    assert drive.instance.status == "SUCCESS"
    assert run_of(drive).has_output
    assert run_of(drive).output is None


def test_a_value_sees_the_error_with_all_attempts() -> None:
    drive = flow(f"id: a, {TRANSIENT}, fallback: {{value: '{{{{ [error.type, error.message, error.attempts | length] }}}}'}}")
    drive.finish("a", failed("NetworkError", "first"))
    drive.pass_time()
    drive.finish("a", failed("Unavailable", "second"))
    assert run_of(drive).output == ["Unavailable", "second", 2]


def test_a_value_that_does_not_fit_the_output_schema_leaves_the_first_error_standing() -> None:
    drive = flow("id: a, output_schema: {type: integer}, fallback: {value: '{{ input.x }}'}", input={"x": "no"})
    drive.finish("a", failed("PermissionDenied", "the first"))
    error = run_of(drive).error
    assert (error["type"], error["message"]) == ("PermissionDenied", "the first")
    assert [other["type"] for other in error["others"]] == ["OutputInvalid"]
    assert [one["type"] for one in run_of(drive).attempts] == ["PermissionDenied", "OutputInvalid"]


def test_a_value_that_cannot_be_rendered_leaves_the_first_error_standing_and_its_routes_are_taken() -> None:
    drive = flow("id: a, fallback: {value: '{{ input.x }}'}, on_failure: [{errors: [PermissionDenied], goto: x}]", "id: x", input={"y": 1})
    drive.finish("a", failed("PermissionDenied"))
    assert drive.statuses() == {"a": "FAILED", "x": "RUNNING"}
    assert run_of(drive).error["others"][0]["type"] == "TemplateError"
    assert run_of(drive).error["others"][0]["message"].startswith("the fallback: ")


def test_output_writes_and_the_approval_after_apply_to_what_the_fallback_gave() -> None:
    drive = flow(
        "id: a, approval: {at: after}, fallback: {value: 2}, output: '{{ result + 1 }}', writes: {n: '{{ result }}'}",
        head="context: {n: 0}",
    )
    drive.finish("a", failed("PermissionDenied"))
    assert drive.statuses() == {"a": "WAITING_FOR_APPROVAL"}
    drive.answer()
    assert run_of(drive).output == 3
    assert drive.instance.values["n"] == 2
    assert run_of(drive).marks == ("degraded",)


def test_a_rejected_fallback_goes_the_way_of_a_rejection() -> None:
    drive = flow("id: a, approval: {at: after, on_reject: x}, fallback: {value: 2}", "id: x")
    drive.finish("a", failed("PermissionDenied"))
    drive.answer("reject")
    assert drive.statuses() == {"a": "FAILED", "x": "RUNNING"}
    assert run_of(drive).error["type"] == "ApprovalRejected"


def test_a_join_counts_a_fallback_as_a_success() -> None:
    drive = flow(
        "id: a, depends_on: [], fallback: {value: 1}",
        "id: b, depends_on: []",
        "id: c, depends_on: [a, b], join: all_success",
    )
    drive.finish("b")
    drive.finish("a", failed("NotFound"))
    assert drive.statuses()["c"] == "RUNNING"


def test_a_result_that_does_not_fit_takes_the_fallback_too() -> None:
    drive = flow("id: a, output_schema: {type: integer}, fallback: {value: 0}")
    drive.finish("a", Succeeded("text"))
    assert run_of(drive).output == 0
    assert run_of(drive).attempts[0]["type"] == "OutputInvalid"


@pytest.mark.parametrize("kind", ["value: 1", "tool: t.read"])
def test_an_unknown_outcome_never_takes_a_fallback(kind: str) -> None:
    drive = flow(f"id: a, tool: t.write, fallback: {{{kind}}}")
    drive.finish("a", failed("Timeout"))
    assert drive.statuses() == {"a": "UNKNOWN"}
    routed = flow(f"id: a, tool: t.write, fallback: {{{kind}}}, on_failure: [{{errors: [UnknownOutcome], goto: x}}]", "id: x")
    routed.finish("a", failed("Timeout"))
    assert routed.statuses() == {"a": "FAILED", "x": "RUNNING"}


def test_a_cancelled_step_takes_no_fallback() -> None:
    drive = flow("id: a, fallback: {value: 1}")
    drive.cancel()
    drive.finish("a", failed("PermissionDenied"))
    assert drive.statuses() == {"a": "CANCELLED"}


def test_a_step_that_fails_while_its_instance_comes_to_rest_takes_no_fallback() -> None:
    drive = flow("id: a, run_parallel: true, fallback: {tool: t.read}", "id: b, run_parallel: true")
    drive.finish("b", failed("PermissionDenied"))
    drive.finish("a", failed("PermissionDenied"))
    assert drive.statuses() == {"a": "FAILED", "b": "FAILED"}
    assert len(drive.calls) == 2


# ---------------------------------------------------------------- tool


def test_another_tool_is_called_as_a_further_attempt_under_a_key_of_its_own() -> None:
    drive = flow(
        f"id: a, {TRANSIENT}, fallback: {{tool: t.put, parameters: {{why: '{{{{ error.type }}}}'}}, timeout: 7s}}",
        "id: b, parameters: {x: '{{ steps.a.output }}'}",
    )
    drive.finish("a", failed("NetworkError"))
    drive.pass_time()
    drive.finish("a", failed("NetworkError"))
    first, second, last = drive.calls
    assert (last.path, last.attempt, last.step.tool, last.arguments, last.timeout) == ("a", 3, "t.put", {"why": "NetworkError"}, 7)
    assert first.idempotency_key == second.idempotency_key != last.idempotency_key
    drive.finish("a", Succeeded("b side"))
    assert run_of(drive).output == "b side"
    assert run_of(drive).marks == ("degraded",)
    assert [one["type"] for one in run_of(drive).attempts] == ["NetworkError", "NetworkError"]
    assert instance_view(drive.instance)["steps"]["a"]["fallback"]["tool"] == "t.put"


def test_a_fallback_that_fails_too_leaves_the_first_error_with_its_own_beside_it() -> None:
    drive = flow("id: a, fallback: {tool: t.read}, on_failure: [{errors: [ValidationError], goto: y}, {errors: [NotFound], goto: x}]",
                 "id: x, parameters: {all: '{{ error.attempts }}', others: '{{ error.others }}'}", "id: y")  # fmt: skip
    drive.finish("a", failed("NotFound", "one"))
    drive.finish("a", failed("ValidationError", "two"))
    assert drive.statuses() == {"a": "FAILED", "x": "RUNNING"}
    assert [one["message"] for one in drive.calls[-1].arguments["all"]] == ["one", "two"]
    assert [one["message"] for one in drive.calls[-1].arguments["others"]] == ["two"]


def test_a_failing_fallback_is_not_tried_again_and_takes_no_second_fallback() -> None:
    drive = flow("id: a, fallback: {tool: t.read}", world=lambda path, attempt: failed("NetworkError")).to_end()
    assert [call.step.tool for call in drive.calls] == ["t.pure"] * 3 + ["t.read"]


def test_a_fallback_whose_node_dies_is_called_again_with_the_same_arguments_and_key() -> None:
    drive = flow("id: a, fallback: {tool: t.put, parameters: {x: '{{ error.message }}'}}")
    drive.finish("a", failed("NotFound", "m"))
    drive.lose("a")
    one, two = drive.calls[1:]
    assert (one.arguments, one.idempotency_key, one.step.tool) == (two.arguments, two.idempotency_key, two.step.tool)
    assert two.attempt == 3


def test_a_fallback_with_an_unknown_outcome_is_in_doubt_and_its_own_tool_is_asked() -> None:
    drive = flow("id: a, fallback: {tool: t.probed, parameters: {n: 1}}")
    drive.finish("a", failed("NotFound"))
    drive.finish("a", failed("Timeout"))
    assert drive.statuses() == {"a": "UNKNOWN"}
    asked = drive.probes["a"]
    assert (asked.step.tool, asked.arguments, asked.idempotency_key) == ("t.probed", {"n": 1}, drive.calls[-1].idempotency_key)
    drive.probe("a", "done", "sent")
    assert run_of(drive).output == "sent"
    assert run_of(drive).marks == ("degraded",)


@pytest.mark.parametrize(("not_done", "calls"), [(True, 4), (False, 1)])
def test_an_unsafe_fallback_follows_an_unsafe_call_only_if_nothing_was_done(not_done: bool, calls: int) -> None:
    drive = flow("id: a, tool: t.write, fallback: {tool: t.irreversible}")
    for _ in range(3 if not_done else 1):
        drive.finish("a", failed("Unavailable", not_done=not_done))
        if drive.statuses()["a"] == "RETRYING":
            drive.pass_time()
    assert len(drive.calls) == calls
    assert drive.statuses()["a"] == ("RUNNING" if not_done else "FAILED")


def test_an_unsafe_fallback_does_not_follow_an_unsafe_call_whose_result_is_no_use() -> None:
    drive = flow("id: a, tool: t.write, output_schema: {type: integer}, fallback: {tool: t.write}")
    drive.finish("a", Succeeded("text"))
    assert drive.statuses() == {"a": "FAILED"}


def test_total_timeout_counts_on_while_the_fallback_runs_and_leaves_no_time_for_one_when_it_is_over() -> None:
    drive = flow("id: a, total_timeout: 10s, fallback: {tool: t.read}")
    drive.finish("a", failed("NotFound"))
    drive.pass_time()
    assert drive.stopping == {"a"}
    drive.finish("a", Stopped())
    assert run_of(drive).error["type"] == "NotFound"
    assert run_of(drive).error["others"][0]["details"] == {"clock": "total_timeout"}
    late = flow("id: a, total_timeout: 10s, fallback: {tool: t.read}")
    late.pass_time()
    late.finish("a", Stopped())
    assert run_of(late).error["type"] == "Timeout"
    assert len(late.calls) == 1


@pytest.mark.parametrize("moment", ["running", "retrying"])
def test_a_value_is_taken_when_total_timeout_is_over(moment: str) -> None:
    drive = flow("id: a, total_timeout: 10s, fallback: {value: 1}, retry_policy: {max_attempts: 9, delay: 6}")
    if moment == "retrying":
        drive.finish("a", failed("NetworkError"))
        drive.pass_time()
        drive.now += 1
        drive.finish("a", failed("NetworkError"))
    else:
        drive.pass_time()
        drive.finish("a", Stopped())
    assert run_of(drive).output == 1
    assert run_of(drive).marks == ("degraded",)


def test_a_model_step_falls_back_to_a_tool_and_to_a_value() -> None:
    model = "id: a, type: llm_task, task_prompt: x, approval: {at: after, if: false}"
    drive = flow(f"{model}, fallback: {{tool: t.read, parameters: {{q: 1}}}}")
    drive.finish("a", failed("Refused"))
    assert (drive.calls[-1].step.tool, drive.calls[-1].step.kind.value) == ("t.read", "tool_call")
    drive.finish("a", Succeeded("found"))
    assert run_of(drive).output == "found"
    valued = flow(f"{model}, fallback: {{value: unknown}}")
    valued.finish("a", failed("Refused"))
    assert run_of(valued).output == "unknown"


# ---------------------------------------------------------------- last_good


def test_the_last_good_result_is_asked_for_as_an_attempt_that_calls_nothing() -> None:
    drive = flow("id: a, tool: t.read, parameters: {q: 1}, fallback: {last_good: 1h}")
    drive.finish("a", failed("NotFound"))
    call = drive.calls[-1]
    assert (call.step.recall, call.step.tool, call.arguments, call.attempt) == (3600, "t.read", {"q": 1}, 2)
    drive.finish("a", Succeeded({"rows": []}))
    assert run_of(drive).output == {"rows": []}
    assert data(drive, "step.succeeded")["degraded"] == "last_good"


def test_no_last_good_result_leaves_the_first_error_standing() -> None:
    drive = flow("id: a, tool: t.read, fallback: {last_good: 1h}")
    drive.finish("a", failed("Unavailable", "down"))
    for _ in range(2):
        drive.pass_time()
        drive.finish("a", failed("Unavailable", "down"))
    drive.finish("a", failed("NotFound", "there is none"))
    assert run_of(drive).error["type"] == "Unavailable"
    assert run_of(drive).error["others"][0]["message"] == "there is none"


# ---------------------------------------------------------------- open circuits


def test_an_open_circuit_takes_the_fallback_at_once_and_no_try_is_counted() -> None:
    drive = flow(f"id: a, {TRANSIENT}, fallback: {{value: 1}}, on_failure: x", "id: x")
    drive.finish("a", is_open())
    assert drive.instance.status == "SUCCESS"
    assert run_of(drive).attempts[0]["cause"]["message"] == "away"


@pytest.mark.parametrize("route", ["on_failure: x", "on_failure: [{errors: [CircuitOpen], goto: x}]"])
def test_an_open_circuit_takes_a_route_at_once(route: str) -> None:
    drive = flow(f"id: a, {TRANSIENT}, {route}", "id: x, parameters: {why: '{{ error.cause.message }}'}")
    drive.finish("a", is_open())
    assert drive.statuses() == {"a": "FAILED", "x": "RUNNING"}
    assert drive.calls[-1].arguments == {"why": "away"}


def test_a_step_with_neither_is_queued_until_the_next_probe_and_no_try_is_counted() -> None:
    drive = flow(f"id: a, {TRANSIENT}, on_failure: [{{errors: [NotFound], goto: x}}]", "id: x")
    for _ in range(4):
        drive.finish("a", is_open(30))
        assert drive.statuses() == {"a": "QUEUED"}
        assert drive.instance.due_at == drive.now + 30
        assert status_of(drive.instance) == "WAITING"
        view = instance_view(drive.instance)
        assert view["waiting_for"][0]["kind"] == "circuit"
        assert view["steps"]["a"]["reason"] == "circuit_open"
        assert view["steps"]["a"]["error"]["cause"]["message"] == "away"
        drive.pass_time()
        assert drive.statuses() == {"a": "RUNNING"}
    assert run_of(drive).tries == 1
    drive.finish("a", failed("NetworkError"))
    assert drive.statuses() == {"a": "RETRYING"}, "the policy's second try is left"
    drive.pass_time()
    drive.finish("a")
    assert drive.instance.status == "SUCCESS"
    assert run_of(drive).marks == ()
    assert len({call.idempotency_key for call in drive.calls}) == 1
    assert [one["type"] for one in run_of(drive).attempts] == ["NetworkError"]


def test_an_unsafe_call_whose_circuit_is_open_is_queued_too_for_nothing_was_done() -> None:
    drive = flow("id: a, tool: t.irreversible")
    drive.finish("a", is_open())
    drive.pass_time()
    drive.finish("a")
    assert drive.instance.status == "SUCCESS"


def test_total_timeout_ends_a_queued_step_and_a_probe_after_it_is_not_waited_for() -> None:
    drive = flow("id: a, total_timeout: 60s")
    drive.finish("a", is_open(40))
    drive.now = drive.instance.timers["a", "total"]
    drive.report(TimerDue(drive.now))
    assert drive.statuses() == {"a": "RUNNING"}, "the probe was due before"
    late = flow("id: a, total_timeout: 60s")
    late.finish("a", is_open(90))
    assert late.instance.status == "FAILED"
    assert run_of(late).error["type"] == "CircuitOpen"
    assert "after total_timeout" in run_of(late).error["message"]


def test_total_timeout_of_a_queued_step_that_was_asked_later_ends_it() -> None:
    drive = flow("id: a, total_timeout: 60s")
    drive.finish("a", is_open(40))
    drive.instance = drive.instance._replace(timers=drive.instance.timers.set(("a", "total"), drive.now + 20))
    drive.pass_time()
    assert run_of(drive).error["details"] == {"clock": "total_timeout"}


def test_a_queued_step_is_cancelled_with_its_instance() -> None:
    drive = flow("id: a")
    drive.finish("a", is_open())
    drive.cancel()
    assert drive.instance.status == "CANCELLED"
    assert run_of(drive).marks == ()


def test_an_open_circuit_in_an_instance_that_comes_to_rest_cancels_the_step() -> None:
    drive = flow("id: a, run_parallel: true", "id: b, run_parallel: true")
    drive.finish("b", failed("PermissionDenied"))
    drive.finish("a", is_open())
    assert drive.statuses() == {"a": "CANCELLED", "b": "FAILED"}
    assert drive.instance.status == "FAILED"


def test_a_fallback_whose_own_circuit_is_open_has_failed() -> None:
    drive = flow("id: a, fallback: {tool: t.read}")
    drive.finish("a", failed("NotFound"))
    drive.finish("a", is_open())
    assert run_of(drive).error["type"] == "NotFound"
    assert run_of(drive).error["others"][0]["type"] == "CircuitOpen"


def test_those_that_wait_for_one_circuit_do_not_all_come_at_once() -> None:
    """REQ-12."""
    dues = []
    for draw in (0.0, 0.5, 0.999):
        drive = flow("id: a")
        drive.report(AttemptEnded(drive.now, "a", 1, is_open(30), draw))
        dues.append(drive.instance.timers["a", "circuit"] - drive.now)
    assert dues[0] == 30
    assert 30 < dues[1] < dues[2] < 35


def test_the_record_of_a_queued_step_says_why_and_until_when() -> None:
    drive = flow("id: a")
    drive.finish("a", is_open(12))
    (record,) = records(drive, "step.queued")
    assert record.data is not None
    assert record.data["reason"] == "circuit_open"
    assert record.data["timers"] == {"circuit": drive.now + 12}
    assert record.data["error"]["cause"] == {"type": "NetworkError", "message": "away"}


# ---------------------------------------------------------------- publishing


def problems(*lines: str, head: str = "") -> dict[str, str]:
    steps = "\n".join(f"  - {{{line}}}" for line in lines)
    checked = check(load(f"{HEAD}{head}\nsteps:\n{steps}\n"), CONTRACTS, models=["default"])
    return {problem.code: f"{problem.severity} {problem.pointer}" for problem in checked.problems}


CALL = "id: a, type: tool_call, tool: t.read"
WRITE = "id: a, type: tool_call, tool: t.write"


@pytest.mark.parametrize(
    ("line", "code", "where"),
    [
        (f"{CALL}, fallback: {{}}", "wrong_form", "error /steps/0/fallback"),
        (f"{CALL}, fallback: {{value: 1, tool: t.read}}", "wrong_form", "error /steps/0/fallback"),
        (f"{CALL}, fallback: {{value: 1, parameters: {{}}}}", "misplaced_key", "error /steps/0/fallback/parameters"),
        (f"{CALL}, fallback: {{last_good: soon}}", "wrong_duration", "error /steps/0/fallback/last_good"),
        (f"{CALL}, fallback: {{tool: t.raed}}", "unknown_tool", "error /steps/0/fallback/tool"),
        (f"{CALL}, fallback: {{valeu: 1}}", "unknown_key", "error /steps/0/fallback/valeu"),
        (f"{CALL}, output_schema: {{type: integer}}, fallback: {{value: x}}", "wrong_value", "error /steps/0/fallback/value"),
        (f"{CALL}, fallback: {{value: '{{{{ steps.b.output }}}}'}}", "unknown_step", "error /steps/0/fallback/value"),
        (f"{CALL}, fallback: {{value: '{{{{ result }}}}'}}", "not_there", "error /steps/0/fallback/value"),
        (f"{CALL}, parameters: {{fallback: '{{{{ error.type }}}}'}}", "not_there", "error /steps/0/parameters/fallback"),
        (f"{CALL}, fallback: {{value: '{{{{ secrets.X }}}}'}}", "template", "error /steps/0/fallback/value"),
        (f"{CALL}, completion: callback, fallback: {{last_good: 1h}}", "no_effect", "error /steps/0/fallback/last_good"),
        (f"{WRITE}, fallback: {{last_good: 1h}}", "unsafe_fallback", "error /steps/0/fallback/last_good"),
        (f"{WRITE}, fallback: {{tool: t.write}}", "fallback_after_write", "warning /steps/0/fallback/tool"),
        (f"{CALL}, requires_approval: true, fallback: {{tool: t.write}}", "fallback_not_shown", "warning /steps/0/fallback/tool"),
        ("id: a, type: llm_task, task_prompt: x, fallback: {last_good: 1h}", "misplaced_key", "error /steps/0/fallback/last_good"),
        ("id: a, type: set, values: {n: 1}, fallback: {value: 1}", "misplaced_key", "error /steps/0/fallback"),
        (f"{CALL}, retry_policy: {{retry_on: [CircuitOpen]}}", "no_effect", "warning /steps/0/retry_policy/retry_on/0"),
    ],
)
def test_publishing_says_what_is_wrong_with_a_fallback(line: str, code: str, where: str) -> None:
    assert problems(line, head="context: {n: 0}").get(code) == where


def test_a_route_for_open_circuits_where_there_is_none_can_never_be_taken() -> None:
    wait = "id: a, type: set, values: {n: 1}, on_failure: [{errors: [CircuitOpen], goto: b}]"
    assert problems(wait, "id: b, type: end", head="context: {n: 0}")["never_taken"] == "error /steps/0/on_failure/0"
    call = f"{CALL}, on_failure: [{{errors: [CircuitOpen], goto: b}}]"
    assert "never_taken" not in problems(call, "id: b, type: end")


def test_text_in_the_parameters_of_a_fallback_is_kept_as_it_was_written() -> None:
    texts = {"properties": {"code": {"type": "string"}}}
    contracts = {**CONTRACTS, "t.text": ToolContract("t.text", parameters=texts, effect=Effect.READ)}
    text = f"{HEAD}steps:\n  - {{{CALL}, fallback: {{tool: t.text, parameters: {{code: 1.10}}}}}}\n"
    checked = check(load(text), contracts)
    assert checked.errors == ()
    assert isinstance(checked.document, dict)
    assert checked.document["steps"][0]["fallback"]["parameters"] == {"code": "1.10"}


def test_a_connection_that_a_fallback_may_not_use_is_refused_at_publishing() -> None:
    fallback = "fallback: {tool: http.request, parameters: {url: /x, connection: theirs}}"
    text = f"{HEAD}steps:\n  - {{{CALL.replace('t.read', 'debug.echo')}, parameters: {{value: 1}}, {fallback}}}\n"
    barred = {"theirs": "it is of another tenant"}
    checked = check(load(text), standard_registry().contracts(), barred=lambda tool, name: barred.get(name))
    assert [(p.code, p.pointer) for p in checked.errors] == [("connection_denied", "/steps/0/fallback/parameters/connection")]
