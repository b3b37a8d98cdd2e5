"""Approvals: what is asked of people, what their decision does, and when it is asked again.

A gate is a state of the step itself, so it holds wherever the step stands; silence never means yes.
"""

from __future__ import annotations

from typing import Any

from agiwo.definition.compiled import Gate, Kind, Step
from agiwo.errors import Failure, TemplateError, ValueRefused
from agiwo.ids import derived_uuid
from agiwo.machine.commands import CloseApproval, OpenApproval
from agiwo.machine.reports import ApprovalDecided
from agiwo.machine.settle import fail, plain, succeed, truth
from agiwo.machine.state import Run, StepStatus
from agiwo.machine.view import scope_of
from agiwo.machine.work import Work
from agiwo.values import check, digest


def is_asked(work: Work, run: Run, step: Step, at: str, **more: Any) -> bool:
    """Whether the step's gate stands at this place and its condition (if it has one) holds. Raises TemplateError."""
    gate = step.gate
    if gate is None or gate.at != at:
        return False
    return gate.condition is None or truth(gate.condition, scope_of(work.instance, run, **more), "approval.if")


def matter_digest(step: Step, matter: Any, shown: Any) -> str:
    """Changes when anything changes that the person relies on: the step, the tool's contract, the arguments or output, what was shown."""
    contract = step.contract.digest if step.contract is not None else None
    return digest([dict(step.definition), contract, matter, shown])


def ask(work: Work, run: Run, step: Step, gate: Gate, matter: Any, data: dict[str, Any], *, changed: Any = None) -> None:
    """Put the step before people. `matter` is what is decided on: the frozen arguments, or the output that was written.

    `data` joins the record (the frozen arguments, the held output). Raises TemplateError if what is to be shown cannot be rendered.
    """
    scope = scope_of(work.instance, run, result=matter) if gate.at == "after" else scope_of(work.instance, run)
    title = plain(gate.title, scope, "approval.title") if gate.title is not None else f"{step.name or step.id}"
    show = plain(gate.show, scope, "approval.show") if gate.show is not None else None
    number = (run.approval["number"] + 1) if run.approval else 1
    id = str(derived_uuid(work.instance.id, "approval", run.path, number))
    matter_is = matter_digest(step, matter, show)
    approval: dict[str, Any] = {
        "id": id,
        "number": number,
        "status": "pending",
        "at": gate.at,
        "digest": matter_is,
        "contract": step.contract.digest if step.contract is not None else None,
        "asked_at": work.at,
        "expires_at": work.at + gate.timeout,
    }
    if changed is not None:
        approval["changed"] = changed
    record = {**data, "approval": approval, "timers": {"approval": approval["expires_at"]}}
    work.emit("step.approval_asked", run.path, record, attempt=run.attempt or None)
    work.order(
        OpenApproval(
            id=id,
            path=run.path,
            step=step.id,
            digest=matter_is,
            title=str(title),
            show=show,
            matter=matter,
            at=gate.at,
            editable=gate.at == "after" and step.kind is Kind.LLM_TASK,
            fields=gate.fields.source if gate.fields is not None else None,
            approvers=gate.approvers,
            notify=gate.notify,
            asked_at=work.at,
            expires_at=approval["expires_at"],
        )
    )


def expire(work: Work, run: Run, step: Step) -> None:
    """Nobody decided in time."""
    approval = run.approval or {}
    work.order(CloseApproval(approval["id"], "expired"))
    work.emit("step.approval_decided", run.path, {"approval": {"status": "expired"}})
    waited = step.gate.timeout if step.gate is not None else 0
    fail(work, work.run(run.path), step, Failure("ApprovalTimeout", f"nobody decided within {waited:g} seconds"))


def decide_gate(work: Work, report: ApprovalDecided) -> tuple[Run, Step] | None:
    """Take a person's decision. Answers the run and step whose call may now start; None if nothing is to be called.

    A decision on an approval that is not the present one changes nothing.
    """
    run = next((r for r in work.instance.live_runs() if r.approval is not None and r.approval["id"] == report.approval), None)
    if run is None or run.status is not StepStatus.WAITING_FOR_APPROVAL or run.approval is None or run.approval["status"] != "pending":
        return None
    step = work.step_of(run)
    gate = step.gate
    if gate is None:
        return None
    if report.action == "approve" and (why := _void(run, step, gate, report)) is not None:
        _ask_again(work, run, step, gate, why)
        return None
    status = "approved" if report.action == "approve" else "rejected"
    decision: dict[str, Any] = {"status": status, "by": report.by, "channel": report.channel, "decided_at": work.at}
    if report.comment:
        decision["comment"] = report.comment
    if report.values is not None:
        decision["values"] = dict(report.values)
    if report.edited is not None:
        decision["edited"] = True
    work.emit("step.approval_decided", run.path, {"approval": decision}, by=report.by)
    run = work.run(run.path)
    if report.action != "approve":
        why = f"{report.by} rejected it" + (f": {report.comment}" if report.comment else "")
        fail(work, run, step, Failure("ApprovalRejected", why))
        return None
    if gate.at == "after":
        succeed(work, run, step, report.edited[0] if report.edited is not None else run.held, model=run.model, by=report.by)
        return None
    if step.kind is Kind.APPROVAL:
        succeed(work, run, step, dict(report.values or {}), by=report.by)
        return None
    return run, step


def _void(run: Run, step: Step, gate: Gate, report: ApprovalDecided) -> str | None:
    """Why an approval cannot stand: what it was given for has changed, or what the person sent does not fit."""
    approval = run.approval or {}
    if approval.get("contract") != (step.contract.digest if step.contract is not None else None):
        return f"the contract of {step.tool} has changed"
    if report.edited is not None:
        try:
            check(report.edited[0])
        except ValueRefused as exc:
            return f"the edited text cannot be kept: {exc}"
        if step.output_schema is not None and (problems := step.output_schema.problems(report.edited[0])):
            return f"the edited output does not fit output_schema: {problems[0].message}"
    if gate.fields is not None and (problems := gate.fields.problems(dict(report.values or {}))):
        return f"the form does not fit: {problems[0].message}"
    return None


def _ask_again(work: Work, run: Run, step: Step, gate: Gate, why: str) -> None:
    work.order(CloseApproval((run.approval or {})["id"], "void"))
    matter = run.held if gate.at == "after" else run.arguments
    try:
        ask(work, run, step, gate, matter, {}, changed=why)
    except TemplateError as exc:
        fail(work, run, step, exc.failure())
