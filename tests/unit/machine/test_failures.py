"""Routes of failures, what templates see of them, handlers and how they fail (LANGUAGE 5)."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.definition import check, load
from agiwo.machine.reports import Outcome, Stopped, Succeeded
from kit.machine import CONTRACTS, Drive, failing
from kit.words import HEAD, data, failed, flow, order, records


@pytest.mark.parametrize(
    ("type", "taken"),
    [
        ("NetworkError", "net"),
        ("NETWORK_ERROR", "net"),
        ("RateLimited", "transient"),
        ("PermissionDenied", "denied"),
        ("PermissionDeniedError", "denied"),
        ("Stock", "tool"),
        ("ValidationError", "rest"),
    ],
)
def test_the_first_route_that_takes_the_type_or_a_parent_wins(type: str, taken: str) -> None:
    routes = (
        "[{errors: [NetworkError], goto: net}, {errors: [Transient], goto: transient}, {errors: [PermissionDeniedError], goto: denied},"
        " {errors: [ToolError], goto: tool}, {goto: rest}]"
    )
    ids = ["net", "transient", "denied", "tool", "rest"]
    drive = flow(f"id: a, tool: t.write, on_failure: {routes}", *(f"id: {id}" for id in ids))
    drive.finish("a", failed(type, not_done=False, status=400) if type != "NetworkError" else failed(type))
    if type in ("NetworkError", "NETWORK_ERROR"):
        # Sent, and no answer: that an unsafe call failed is not known, so no route for failures takes it.
        assert drive.statuses() == {"a": "UNKNOWN"}
        return
    assert list(drive.running) == [taken]


@pytest.mark.parametrize(
    ("type", "taken"), [("NetworkError", "net"), ("NETWORK_ERROR", "net"), ("Timeout", "late"), ("RateLimited", "rest")]
)
def test_routes_are_taken_when_tries_are_used_up_and_on_timeout_comes_first(type: str, taken: str) -> None:
    routes = "on_failure: [{errors: [NetworkError], goto: net}, {goto: rest}], on_timeout: late"
    once = "retry_policy: {max_attempts: 1}"
    drive = flow(f"id: a, {routes}, {once}", "id: net", "id: late", "id: rest")
    drive.finish("a", failed(type))
    assert list(drive.running) == [taken]


def test_retries_come_before_routes() -> None:
    drive = flow("id: a, on_failure: b, retry_policy: {max_attempts: 2, delay: 1}", "id: b", world=failing(a="NetworkError")).to_end()
    assert [(c.path, c.attempt) for c in drive.calls] == [("a", 1), ("a", 2), ("b", 1)]


def test_without_a_route_that_takes_it_the_failure_is_the_instances() -> None:
    drive = flow("id: a, on_failure: [{errors: [NetworkError], goto: b}]", "id: b", world=failing(a="NotFound")).to_end()
    assert drive.instance.status == "FAILED"
    assert drive.called() == ["a"]


def test_a_failure_route_sees_error_with_all_attempts() -> None:
    seen = "{type: '{{ error.type }}', message: '{{ error.message }}', step: '{{ error.step }}', n: '{{ error.attempts | length }}'}"
    drive = flow(
        "id: a, on_failure: b, retry_policy: {max_attempts: 2, delay: 1}",
        f"id: b, parameters: {seen}, on_success: c",
        "id: c, parameters: {type: '{{ error.type }}'}",
        world=failing(a="NetworkError"),
    ).to_end()
    assert drive.calls[2].arguments == {"type": "NetworkError", "message": "a attempt 2", "step": "a", "n": 2}
    assert drive.calls[3].arguments == {"type": "NetworkError"}, "what follows on the failure's path sees it too"


def test_where_nothing_failed_error_is_absent_and_may_be_passed_to_default() -> None:
    drive = flow("id: a", "id: f, parameters: {e: '{{ error.type | default(\"none\") }}'}", head="finally: [f]").to_end()
    assert drive.calls[-1].arguments == {"e": "none"}


def test_a_failure_on_a_failure_route_has_the_old_one_as_cause() -> None:
    drive = flow("id: a, on_failure: b", "id: b", world=failing(a="NotFound", b="Conflict")).to_end()
    assert drive.instance.ending is not None
    error = drive.instance.ending.error
    assert error is not None
    assert (error["type"], error["step"], error["cause"]["type"], error["cause"]["step"]) == ("Conflict", "b", "NotFound", "a")


def test_a_failed_step_keeps_its_error_and_says_what_took_it() -> None:
    drive = flow("id: a, on_failure: b", "id: b", world=failing(a="NotFound")).to_end()
    run = drive.instance.runs["a"]
    assert (str(run.status), run.taken, str(run.settled)) == ("FAILED", "route", "skipped")
    assert run.error is not None
    assert run.error["type"] == "NotFound"


def test_continue_evaluates_what_follows_success_and_a_route_without_output_may_go_on() -> None:
    route = "route: {cases: [{when: \"steps.a.status == 'FAILED'\", goto: b}], default: c}"
    drive = flow(f"id: a, {route}, on_failure: continue", "id: b", "id: c", world=failing(a="ToolError")).to_end()
    assert drive.called() == ["a", "b"]


def test_a_bad_template_fails_its_step_with_the_place_and_nothing_is_called() -> None:
    drive = flow("id: a, parameters: {x: '{{ input.y + 1 }}'}, on_failure: b", "id: b", input={"y": "text"})
    error = drive.instance.runs["a"].error
    assert error is not None
    assert error["type"] == "TemplateError"
    assert drive.called() == ["b"]


def test_a_result_that_does_not_fit_output_schema_fails_and_is_kept_as_evidence() -> None:
    schema = "output_schema: {type: object, required: [n], properties: {n: {type: integer}}}"
    drive = flow(f"id: a, {schema}, on_failure: [{{errors: [OutputInvalid], goto: b}}]", "id: b")
    drive.finish("a", Succeeded({"n": "many"}))
    found = data(drive, "step.failed", "a")
    assert found["error"]["type"] == "OutputInvalid"
    assert found["error"]["details"]["reason"] == "schema"
    assert found["evidence"] == {"result": {"n": "many"}}
    assert list(drive.running) == ["b"]


def test_a_result_that_cannot_be_kept_fails_its_step_alone() -> None:
    drive = flow("id: a, on_failure: b", "id: b")
    drive.finish("a", Succeeded({"x": float("nan")}))
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["type"] == "ValidationError"
    assert list(drive.running) == ["b"]


def test_output_schema_holds_for_steps_without_a_call_too() -> None:
    drive = flow("id: a, type: approval, approval: {}, output_schema: {type: object, required: [n]}")
    drive.answer("approve", values={"m": 1})
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["type"] == "OutputInvalid"


# ---------------------------------------------------------------- handlers

HANDLERS = "error_handler: h\nfinally: [f, g]"


def test_error_handler_then_each_finally_in_order_after_everything_has_settled() -> None:
    both = ("id: a, run_parallel: true", "id: b, run_parallel: true")
    drive = flow(*both, "id: h", "id: f", "id: g", head=HANDLERS, world=failing(a="ToolError"))
    drive.finish("a")
    assert list(drive.running) == ["b"], "no handler before what is live has come to rest"
    drive.to_end()
    assert drive.called() == ["a", "b", "h", "f", "g"]
    phases = order(drive, "instance.ending", "instance.handling", "instance.finally", "instance.ended")
    assert phases == ["instance.ending", "instance.handling", "instance.finally", "instance.finally", "instance.ended"]
    assert drive.instance.status == "FAILED"


def test_handlers_see_the_error() -> None:
    see = "parameters: {type: '{{ error.type }}', step: '{{ error.step }}'}"
    drive = flow("id: a", f"id: h, {see}", f"id: f, {see}", "id: g", head=HANDLERS, world=failing(a="NotFound")).to_end()
    assert [c.arguments for c in drive.calls[1:3]] == [{"type": "NotFound", "step": "a"}] * 2


def test_an_error_handler_sees_that_an_end_step_failed_the_instance() -> None:
    drive = flow("id: e, type: end, status: FAILED", "id: h, parameters: {m: '{{ error.message }}'}", head="error_handler: h").to_end()
    assert drive.calls[0].arguments == {"m": "ended by e"}


def test_finally_runs_after_success_and_the_error_handler_does_not() -> None:
    drive = flow("id: a", "id: h", "id: f", "id: g", head=HANDLERS + "\noutput: '{{ steps.a.output.path }}'").to_end()
    assert drive.called() == ["a", "f", "g"]
    assert drive.instance.status == "SUCCESS"
    assert drive.instance.ending is not None
    assert drive.instance.ending.output == "a"


def test_after_a_cancel_finally_runs_and_the_error_handler_does_not() -> None:
    drive = flow("id: a", "id: h", "id: f", "id: g", head=HANDLERS)
    drive.cancel()
    drive.finish("a")
    drive.to_end()
    assert drive.called() == ["a", "f", "g"]
    assert drive.instance.status == "CANCELLED"


def test_the_error_handler_runs_for_a_timeout_of_the_workflow() -> None:
    drive = flow("id: a", "id: h, parameters: {t: '{{ error.type }}'}", head="timeout: 10s\nerror_handler: h")
    drive.pass_time()
    drive.finish("a")
    assert drive.calls[-1].arguments == {"t": "Timeout"}
    drive.to_end()
    assert drive.instance.status == "TIMED_OUT"


@pytest.mark.parametrize("broken", ["h", "f"])
def test_a_handlers_own_failure_never_hides_the_first_error_and_the_next_one_still_runs(broken: str) -> None:
    world = failing(**{"a": "NotFound", broken: "Conflict"})
    drive = flow("id: a", "id: h", "id: f", "id: g", head=HANDLERS, world=world).to_end()
    assert drive.called() == ["a", "h", "f", "g"]
    assert drive.instance.status == "FAILED"
    assert drive.instance.ending is not None
    assert drive.instance.ending.error is not None
    assert drive.instance.ending.error["type"] == "NotFound"
    assert data(drive, "instance.handler_failed")["error"]["type"] == "Conflict"


def test_a_failing_finally_leaves_a_success_what_it_is() -> None:
    drive = flow("id: a", "id: f", "id: g", head="finally: [f, g]", world=failing(f="ToolError")).to_end()
    assert drive.instance.status == "SUCCESS"
    assert drive.called() == ["a", "f", "g"]


def test_a_handler_may_have_a_path_of_its_own() -> None:
    path = ("id: h, on_success: h2", "id: h2, on_failure: h3", "id: h3")
    drive = flow("id: a", *path, head="error_handler: h", world=failing(a="NotFound", h2="Conflict"))
    drive.to_end()
    assert drive.called() == ["a", "h", "h2", "h3"]
    assert records(drive, "instance.handler_failed") == []


def test_what_runs_beside_a_failing_handler_step_comes_to_rest_and_nothing_new_starts() -> None:
    drive = flow(
        "id: a",
        "id: h, on_success: [p, q]",
        "id: p",
        "id: q, on_success: r",
        "id: r",
        "id: f",
        head="error_handler: h\nfinally: [f]",
        world=failing(a="NotFound", p="Conflict"),
    )
    for path in ("a", "h", "p"):
        drive.finish(path)
    assert list(drive.running) == ["q"]
    drive.finish("q")
    assert list(drive.running) == ["f"]
    drive.to_end()
    assert "r" not in drive.called()


def test_an_error_handler_may_end_with_success() -> None:
    saved = "id: e, type: end, status: SUCCESS, output: {saved: true}"
    drive = flow("id: a", "id: h, on_success: e", saved, head="error_handler: h", world=failing(a="ToolError"))
    drive.to_end()
    assert drive.instance.status == "SUCCESS"
    assert drive.instance.ending is not None
    assert drive.instance.ending.output == {"saved": True}


def test_an_end_in_a_handler_stops_what_runs_beside_it() -> None:
    drive = flow(
        "id: a",
        "id: h, on_success: [e, q]",
        "id: e, type: end, status: SUCCESS",
        "id: q, on_success: r",
        "id: r",
        "id: f, on_success: [w, e2]",
        "id: w, type: wait, duration: 1h",
        "id: e2, type: end, status: SUCCESS",
        head="error_handler: h\nfinally: [f]",
        world=failing(a="ToolError"),
    )
    drive.finish("a")
    drive.finish("h")
    assert drive.stopping <= {"q"}
    drive.to_end(patient=True)
    assert "r" not in drive.called()
    assert drive.statuses()["w"] == "CANCELLED", "an end in a finally completes it"
    assert drive.instance.status == "SUCCESS"


def test_handler_timeout_stops_a_handler_and_the_next_has_its_own() -> None:
    """REQ-16."""
    drive = flow("id: a", "id: h", "id: f", "id: g", head=HANDLERS + "\nhandler_timeout: 60s", world=failing(a="ToolError"))
    drive.finish("a")
    drive.pass_time()
    assert drive.stopping == {"h"}
    drive.finish("h")
    assert list(drive.running) == ["f"]
    assert drive.instance.due_at == drive.now + 60
    drive.to_end(patient=True)
    assert drive.called() == ["a", "h", "f", "g"]
    assert drive.statuses()["h"] == "CANCELLED"


def test_after_handler_timeout_a_late_result_starts_nothing_of_that_handler() -> None:
    def late(drive: Drive, outcome: Outcome) -> list[str]:
        drive.finish("a")
        drive.pass_time()
        drive.finish("h", outcome)
        drive.to_end(patient=True)
        return drive.called()

    for outcome in (Succeeded(1), Stopped(), failed("ToolError")):
        lines = ("id: a", "id: h, on_success: h2, on_failure: h3", "id: h2", "id: h3", "id: h4, depends_on: [h], join: all_done")
        drive = flow(*lines, head="error_handler: h\nhandler_timeout: 60s", world=failing(a="ToolError"))
        assert late(drive, outcome) == ["a", "h"]
        assert drive.instance.status == "FAILED"


def test_a_context_that_cannot_be_rendered_fails_the_instance_and_its_handler_runs() -> None:
    drive = flow("id: a", "id: h", head="context: {x: '{{ input.y + 1 }}'}\nerror_handler: h", input={"y": "text"}).to_end()
    assert drive.called() == ["h"]
    assert drive.instance.status == "FAILED"


def test_an_output_that_cannot_be_rendered_fails_the_instance() -> None:
    drive = flow("id: a", head="output: {x: '{{ input.y + 1 }}'}", input={"y": "text"}).to_end()
    assert drive.instance.status == "FAILED"
    assert drive.instance.ending is not None
    assert drive.instance.ending.error is not None
    assert drive.instance.ending.error["type"] == "TemplateError"


@pytest.mark.parametrize(
    ("head", "lines", "path"),
    [
        ("error_handler: h", ("id: a", "id: b, depends_on: [a]", "id: h, on_success: b"), ("h", "b")),
        ("finally: [h]", ("id: a, on_success: b", "id: b", "id: h, on_success: k", "id: k, on_failure: b"), ("h", "k", "b")),
        ("error_handler: h", ("id: a", "id: b", "id: h, on_success: b"), ("h", "b")),
        ("error_handler: h", ("id: a, on_failure: x", "id: b", "id: x, on_success: b", "id: h, on_success: x"), ("h", "x", "b")),
    ],
)
def test_a_handler_that_leads_back_into_the_steps_is_refused_with_its_path(
    head: str, lines: tuple[str, ...], path: tuple[str, ...]
) -> None:
    text = HEAD + head + "\nsteps:\n" + "".join(f"  - {{{line}, type: tool_call, tool: t.pure}}\n" for line in lines)
    found: list[Any] = [p for p in check(load(text), CONTRACTS).problems if p.code == "handler_leads_back"]
    assert [p.via for p in found] == [path]
    assert " → ".join(path) in found[0].message
    assert found[0].line == 3


def test_a_handler_may_share_steps_with_routes_of_failures() -> None:
    drive = flow(
        "id: a, on_failure: x", "id: x", "id: h, on_success: x", head="error_handler: h", world=failing(a="ToolError", x="NotFound")
    )
    drive.to_end()
    assert drive.called() == ["a", "x", "h", "x~2"]
