"""Approvals (LANGUAGE 6) as the machine sees them: asked once, decided once, void when the matter changed, silence never means yes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agiwo.machine import OpenApproval, decide
from agiwo.machine.reports import ApprovalDecided, Succeeded
from kit.machine import Drive
from kit.words import data, failed, flow, records

MODEL = "type: llm_task, task_prompt: write"


def opened(drive: Drive) -> OpenApproval:
    (approval,) = drive.approvals.values()
    return approval


def test_a_step_with_an_approval_waits_before_its_call_and_shows_the_frozen_arguments() -> None:
    drive = flow("id: a, tool: t.write, parameters: {to: '{{ input.to }}'}, requires_approval: true", input={"to": "x"})
    assert drive.statuses() == {"a": "WAITING_FOR_APPROVAL"}
    assert drive.called() == []
    assert opened(drive).matter == {"to": "x"}
    assert opened(drive).at == "before"
    drive.answer()
    assert drive.calls[0].arguments == {"to": "x"}


def test_a_model_step_is_reviewed_after_its_call_and_nothing_follows_before() -> None:
    drive = flow(f"id: a, {MODEL}, requires_approval: true", "id: b")
    drive.finish("a", Succeeded("draft"))
    assert drive.statuses() == {"a": "WAITING_FOR_APPROVAL"}
    assert (opened(drive).matter, opened(drive).editable) == ("draft", True)
    drive.answer()
    assert drive.instance.runs["a"].output == "draft"
    assert list(drive.running) == ["b"]


def test_an_edit_replaces_what_the_model_wrote_and_even_null_is_an_edit() -> None:
    for edited in ("better", None):
        drive = flow(f"id: a, {MODEL}, requires_approval: true")
        drive.finish("a", Succeeded("draft"))
        drive.answer("approve", edited=(edited,))
        assert drive.instance.runs["a"].output == edited
        assert drive.instance.runs["a"].has_output
        assert data(drive, "step.approval_decided")["approval"]["edited"] is True


@pytest.mark.parametrize(
    "kind", ["type: set, values: {x: 1}", "type: wait, duration: 1h", "type: branch, cases: [{when: input.go, goto: b}]"]
)
def test_every_kind_of_step_asks_before_it_does_anything(kind: str) -> None:
    drive = flow(f"id: a, {kind}, requires_approval: true", "id: b", head="context: {x: 0}", input={"go": True})
    assert drive.statuses() == {"a": "WAITING_FOR_APPROVAL"}
    assert drive.instance.values["x"] == 0
    refused = flow(f"id: a, {kind}, requires_approval: true", "id: b", head="context: {x: 0}", input={"go": True})
    refused.answer("reject")
    assert refused.instance.status == "FAILED"
    drive.answer()
    drive.to_end()
    assert drive.instance.status == "SUCCESS"
    assert drive.called() == ["b"]


@pytest.mark.parametrize("flag", [True, False])
def test_a_condition_decides_whether_anybody_is_asked(flag: bool) -> None:
    for line in (
        "id: a, requires_approval: input.big",
        "id: a, approval: {if: input.big}",
        "id: a, approval: {at: after, if: 'result.big'}",
    ):
        drive = flow(line, input={"big": flag})
        if "after" in line:
            drive.finish("a", Succeeded({"big": flag}))
        assert bool(drive.approvals) is flag
        drive.to_end()
        assert drive.instance.status == "SUCCESS"


def test_an_approval_step_hands_on_the_form() -> None:
    drive = flow(
        "id: a, type: approval, approval: {fields: {type: object, properties: {n: {type: integer}}}}",
        "id: b, parameters: {n: '{{ steps.a.output.n }}'}",
    )
    assert opened(drive).fields == {"type": "object", "properties": {"n": {"type": "integer"}}}
    drive.answer("approve", values={"n": 3}, comment="fine")
    assert drive.calls[0].arguments == {"n": 3}
    approval = drive.instance.runs["a"].approval
    assert approval is not None
    assert (approval["status"], approval["by"], approval["channel"], approval["comment"]) == (
        "approved",
        "user:a@example.com",
        "api",
        "fine",
    )


def test_what_is_shown_is_rendered_and_stands_in_the_digest() -> None:
    lines = "id: a, approval: {title: 'Pay {{ input.n }}', show: {n: '{{ input.n }}'}, approvers: ['user:x@example.com'], notify: [mail]}"
    one, two = (opened(flow(lines, input={"n": n})) for n in (1, 2))
    assert (one.title, one.show, one.approvers, one.notify) == ("Pay 1", {"n": 1}, ("user:x@example.com",), ("mail",))
    assert one.digest != two.digest


def test_a_reject_fails_the_step_the_tool_is_not_called_and_it_is_never_retried() -> None:
    drive = flow("id: a, requires_approval: true, retry_policy: {max_attempts: 5, retry_on: [ApprovalRejected]}")
    drive.answer("reject", comment="too dear")
    error = drive.instance.runs["a"].error
    assert error is not None
    assert error["type"] == "ApprovalRejected"
    assert "too dear" in error["message"]
    assert drive.called() == []
    assert drive.instance.status == "FAILED"


@pytest.mark.parametrize("line", ["requires_approval: true, on_reject: b", "approval: {on_reject: b}"])
def test_on_reject_stands_on_the_step_or_inside(line: str) -> None:
    drive = flow(f"id: a, {line}", "id: b, parameters: {c: '{{ steps.a.approval.comment }}'}")
    drive.answer("reject", comment="no")
    assert drive.calls[0].arguments == {"c": "no"}


def test_a_reject_with_a_jump_back_writes_again_with_the_comment() -> None:
    prompt = "\"write {{ steps.a.approval.comment | default('') }}\""
    drive = flow(f"id: a, type: llm_task, task_prompt: {prompt}, requires_approval: true, on_reject: a", "id: b")
    drive.finish("a", Succeeded("draft 1"))
    drive.answer("reject", comment="shorter")
    assert list(drive.running) == ["a~2"]
    assert [c.arguments["task_prompt"] for c in drive.calls] == ["write ", "write shorter"]
    drive.finish("a~2", Succeeded("draft 2"))
    drive.answer()
    assert list(drive.running) == ["b"]
    assert drive.statuses()["a"] == "FAILED"


def test_rejections_without_end_come_to_the_bound() -> None:
    drive = flow(f"id: a, {MODEL}, requires_approval: true, on_reject: a, max_iterations: 3")
    for n in ("a", "a~2", "a~3"):
        drive.finish(n, Succeeded(n))
        drive.answer("reject")
    assert drive.instance.status == "FAILED"


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("approval: {timeout: 1h}", "FAILED"),
        ("approval: {timeout: 1h, on_reject: b}", "b"),
        ("approval: {timeout: 1h, on_timeout: reject, on_reject: b}", "b"),
        ("approval: {timeout: 1h, on_timeout: c, on_reject: b}", "c"),
        ("approval: {timeout: 1h, on_timeout: fail, on_reject: b}", "FAILED"),
        ("approval: {timeout: 1h, on_timeout: fail}, on_failure: [{errors: [ApprovalTimeout], goto: c}]", "c"),
        ("approval: {timeout: 1h}, on_failure: continue", "SUCCESS"),
    ],
)
def test_silence_never_means_yes(line: str, ends: str) -> None:
    lines = [f"id: {id}" for id in "bc" if f"{'on_reject' if id == 'b' else 'on_timeout'}: {id}" in line or f"goto: {id}" in line]
    drive = flow(f"id: a, {line}", *lines)
    before = drive.now
    drive.pass_time()
    assert drive.now == before + 3600
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["type"] == "ApprovalTimeout"
    assert drive.approvals == {}
    assert "a" not in drive.called()
    if ends in ("FAILED", "SUCCESS"):
        assert str(drive.instance.status) == ends
    else:
        assert list(drive.running) == [ends]


def test_without_a_timeout_of_its_own_an_approval_expires_after_72_hours() -> None:
    drive = flow("id: a, requires_approval: true")
    assert opened(drive).expires_at == drive.now + 72 * 3600


def test_a_decision_counts_once_and_not_for_another_approval_or_after_the_end() -> None:
    drive = flow("id: a, requires_approval: true", "id: b")
    id = opened(drive).id
    drive.report(ApprovalDecided(drive.now, "another", "approve", "user:x", "api"))
    assert drive.called() == []
    drive.answer()
    before = drive.instance
    for action in ("approve", "reject"):
        drive.report(ApprovalDecided(drive.now, id, action, "user:x", "api"))
        assert drive.instance is before
    drive.to_end()
    ended = drive.instance
    drive.report(ApprovalDecided(drive.now, id, "reject", "user:x", "api"))
    assert drive.instance is ended


@pytest.mark.parametrize("values", [None, {}, {"n": "many"}, {"n": 1, "m": 2}])
def test_an_invalid_form_decides_nothing_and_is_asked_again(values: dict[str, Any] | None) -> None:
    fields = "{type: object, required: [n], properties: {n: {type: integer}}, additionalProperties: false}"
    drive = flow(f"id: a, type: approval, approval: {{fields: {fields}}}")
    first = opened(drive).id
    (report,) = [ApprovalDecided(drive.now, first, "approve", "user:x", "api", values=values)]
    drive.report(report)
    assert drive.statuses() == {"a": "WAITING_FOR_APPROVAL"}
    assert opened(drive).id != first
    drive.answer("approve", values={"n": 1})
    assert drive.instance.status == "SUCCESS"


def test_an_edit_that_does_not_fit_output_schema_decides_nothing() -> None:
    drive = flow(f"id: a, {MODEL}, requires_approval: true, output_schema: {{type: object, required: [n]}}")
    drive.finish("a", Succeeded({"n": 1}))
    id = opened(drive).id
    drive.report(ApprovalDecided(drive.now, id, "approve", "user:x", "api", edited=({"m": 1},)))
    assert drive.statuses() == {"a": "WAITING_FOR_APPROVAL"}
    approval = drive.instance.runs["a"].approval
    assert approval is not None
    assert "output_schema" in approval["changed"]


def test_a_changed_contract_voids_the_approval_and_it_is_asked_again_with_the_reason() -> None:
    drive = flow("id: a, tool: t.write, requires_approval: true")
    first = opened(drive)
    step = drive.workflow.body["a"]
    assert step.contract is not None
    contract = replace(step.contract, description="does more now")
    body = replace(drive.workflow.body, steps=(replace(step, contract=contract),))
    newer = drive.instance._replace(workflow=replace(drive.workflow, body=body))
    decision = decide(newer, ApprovalDecided(drive.now, first.id, "approve", "user:x", "api"))
    assert [r.type for r in decision.records] == ["step.approval_asked"]
    approval = decision.instance.runs["a"].approval
    assert approval is not None
    assert (approval["number"], approval["changed"]) == (2, "the contract of t.write has changed")
    assert approval["digest"] != first.digest
    # A reject needs no fresh matter.
    assert decide(newer, ApprovalDecided(drive.now, first.id, "reject", "user:x", "api")).instance.status == "FAILED"


def test_an_approval_belongs_to_its_iteration() -> None:
    drive = flow("id: a, requires_approval: true, route: {cases: [{when: 'steps.a.iteration < 2', goto: a}], default: end}")
    first = opened(drive).id
    drive.answer()
    drive.finish("a")
    assert opened(drive).id != first
    assert drive.statuses()["a~2"] == "WAITING_FOR_APPROVAL"


def test_a_failure_elsewhere_or_a_cancel_closes_the_approval() -> None:
    drive = flow("id: a, requires_approval: true, run_parallel: true", "id: b, run_parallel: true")
    drive.finish("b", failed())
    assert drive.approvals == {}
    assert drive.statuses()["a"] == "CANCELLED"
    other = flow("id: a, requires_approval: true")
    other.cancel()
    assert other.approvals == {}
    assert other.instance.status == "CANCELLED"


def test_what_cannot_be_shown_fails_the_step_and_nobody_is_asked() -> None:
    drive = flow("id: a, approval: {show: '{{ input.x + 1 }}'}", input={"x": "text"})
    assert drive.approvals == {}
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["type"] == "TemplateError"


def test_the_call_after_an_approval_has_its_retries() -> None:
    drive = flow("id: a, requires_approval: true, retry_policy: {max_attempts: 2, delay: 1}")
    drive.answer()
    drive.finish("a", failed("NetworkError"))
    drive.pass_time()
    drive.finish("a")
    assert drive.instance.status == "SUCCESS"
    assert len(records(drive, "step.approval_asked")) == 1, "a person is asked once for all tries"
