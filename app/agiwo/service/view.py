"""An instance as people and programs see it: one JSON object made from its state, with what is allowed now.

Pure; it shows what stands in the state and adds no judgement of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from agiwo.clock import rfc3339
from agiwo.definition.compiled import Kind, Step
from agiwo.machine.interrupts import interrupted
from agiwo.machine.state import INTERRUPT, SIGNAL, Instance, InstanceStatus, Run, Signal, StepStatus
from agiwo.machine.view import WAIT_KINDS, present_values, wait_kind
from agiwo.ports.queries import Approval, InstanceRow, RejectedRow
from agiwo.ports.records import VersionLine

API = "/v1"


def time_text(at: float | None) -> str | None:
    return None if at is None else rfc3339(at)


def links(id: UUID) -> dict[str, str]:
    """Where the parts of an instance are found."""
    here = f"{API}/instances/{id}"
    return {"self": here, **{part: f"{here}/{part}" for part in ("steps", "trace", "history", "graph", "events", "signals", "cancel")}}


def actions(instance: Instance) -> list[dict[str, Any]]:
    """The calls that change this instance and are allowed now."""
    if instance.ended:
        return []
    here = f"{API}/instances/{instance.id}"
    out: list[dict[str, Any]] = []
    for run in instance.live_runs():
        if run.status is StepStatus.WAITING_FOR_APPROVAL and (approval := approval_id(run)) is not None:
            out += [
                {"name": verb, "method": "POST", "href": f"{API}/approvals/{approval}/{verb}", "path": run.path}
                for verb in ("approve", "reject")
            ]
        elif wait_kind(run) == SIGNAL:
            out.append({"name": "signal", "method": "POST", "href": f"{here}/signals", "path": run.path})
        elif run.status is StepStatus.UNKNOWN:
            out.append({"name": "reconcile", "method": "POST", "href": f"{here}/steps/{run.path}/reconcile", "path": run.path})
    if interrupted(instance):
        out.append({"name": "resume", "method": "POST", "href": f"{here}/resume"})
    if instance.ending is None:
        out.append({"name": "cancel", "method": "POST", "href": f"{here}/cancel"})
    return out


def approval_id(run: Run) -> str | None:
    """The id of the approval that a run waits for or was decided by."""
    return None if run.approval is None else run.approval.get("id")


def instance_view(instance: Instance, row: InstanceRow | None = None) -> dict[str, Any]:
    """Everything about one instance; `row` adds what only the list knows."""
    declared = instance.workflow.state
    values = present_values(instance)
    ending = instance.ending if instance.ended else None
    waiting = waits(instance)
    out: dict[str, Any] = {
        "instance_id": str(instance.id),
        "workflow_id": instance.workflow.id,
        "version": instance.workflow.version,
        "status": status_of(instance),
        "phase": str(instance.phase),
        "seq": instance.seq,
        "trace_id": instance.trace_id,
        "started_by": instance.starter,
        "started_at": time_text(instance.started_at),
        "ended_at": time_text(instance.ended_at),
        "labels": dict(instance.labels),
        "current_steps": [run.path for run in instance.live_runs()],
        "interrupted_at": interrupted_at(instance),
        "waiting_for": waiting,
        "signals": [signal_view(signal) for signal in sorted(instance.signals.values(), key=lambda signal: signal.number)],
        "steps": {step.id: step_view(instance, step, instance.latest_run(step.index)) for step in instance.workflow.body},
        "context": {key: value for key, value in values.items() if key not in declared},
        "state": {key: value for key, value in values.items() if key in declared},
        "input": instance.input,
        "output": ending.output if ending is not None else None,
        "error": dict(ending.error) if ending is not None and ending.error is not None else None,
        "actions": actions(instance),
        "links": links(instance.id),
    }
    if instance.ending is not None and instance.ending.reason is not None:
        out["reason"] = instance.ending.reason
    if row is not None:
        out["correlation_key"] = row.correlation_key
        out["callback_url"] = row.callback_url
        if row.waiting_for is not None and row.waiting_for.startswith(SET_ASIDE):
            # Nothing in its history says so: no node could drive it on.
            out["status"] = str(InstanceStatus.WAITING)
            out["waiting_for"] = [{"kind": "set_aside", "reason": row.waiting_for.removeprefix(SET_ASIDE)}, *waiting]
    return out


SET_ASIDE = "set aside: "


def status_of(instance: Instance) -> str:
    """The status; an instance that runs is WAITING while everything live in it waits."""
    if instance.status is InstanceStatus.RUNNING:
        live = instance.live_runs()
        if (live or instance.stops) and all(wait_kind(run) is not None for run in live):
            return str(InstanceStatus.WAITING)
    return str(instance.status)


def interrupted_at(instance: Instance) -> str | None:
    """Path of the step that the instance was told to stop at, else of the first that a waiting instance stands at."""
    if found := interrupted(instance):
        return found[0].path
    waiting = waits(instance) if status_of(instance) == InstanceStatus.WAITING else ()
    return waiting[0]["path"] if waiting else None


def waits(instance: Instance) -> list[dict[str, Any]]:
    """What the instance waits for, people first: kind (one of WAIT_KINDS), where, since when, until when."""
    out = []
    for run in instance.live_runs():
        kind = wait_kind(run)
        if kind is None:
            continue
        entry: dict[str, Any] = {"kind": kind, "step": run.id, "path": run.path}
        if kind == "approval":
            approval = approval_id(run)
            entry |= {"approval_id": approval, "href": f"{API}/approvals/{approval}"}
        elif kind == "outcome":
            entry |= {"probing": run.probing, "href": f"{API}/instances/{instance.id}/steps/{run.path}/reconcile"}
        elif kind == SIGNAL:
            entry |= {"events": list(run.arguments["events"]), "href": f"{API}/instances/{instance.id}/signals"}
        elif kind == INTERRUPT:
            entry |= {"stopped": "before", "href": f"{API}/instances/{instance.id}/resume"}
        due = [at for (path, timer), at in instance.timers.items() if path == run.path and timer != "total"]
        if due:
            entry["until"] = time_text(min(due))
        out.append(entry)
    for path in instance.stops:
        resume = f"{API}/instances/{instance.id}/resume"
        out.append({"kind": INTERRUPT, "step": instance.runs[path].id, "path": path, "stopped": "after", "href": resume})
    return sorted(out, key=lambda entry: WAIT_KINDS.index(entry["kind"]))


def signal_view(signal: Signal) -> dict[str, Any]:
    """A signal that is kept; what it carries stands in the history."""
    at = time_text(signal.at)
    return {"signal_id": signal.id, "event": signal.event, "received_at": at, "by": signal.by, "channel": signal.channel}


_TIMES = frozenset({"asked_at", "expires_at", "decided_at"})


def step_view(instance: Instance, step: Step, run: Run | None) -> dict[str, Any]:
    """One iteration of a step; a step that has not begun is shown as PENDING, or as SKIPPED once the instance has ended."""
    out: dict[str, Any] = {"id": step.id, "path": step.id, "type": str(step.kind), "status": "PENDING"}
    out |= {name: value for name in ("name", "tool") if (value := getattr(step, name)) is not None}
    if run is None:
        if instance.ended:
            out |= {"status": "SKIPPED", "reason": instance.not_run.get(step.id, "not_reached")}
        return out | {"iteration": 0, "attempts": 0, "input": None, "output": None, "error": None, "started_at": None, "ended_at": None}
    out |= {
        "path": run.path,
        "status": str(run.status),
        "iteration": run.iteration,
        "attempts": run.attempt,
        "input": run.arguments,
        "output": run.output if run.has_output else None,
        "error": dict(run.error) if run.error is not None else None,
        "started_at": time_text(run.begun_at),
        "ended_at": time_text(run.ended_at),
        "duration": round(run.ended_at - run.begun_at, 6) if run.ended_at is not None and run.begun_at is not None else None,
    }
    out |= _particulars(run)
    if step.kind is Kind.LLM_TASK:
        out["prompt_href"] = f"{API}/instances/{instance.id}/steps/{run.path}"
    return out


def _particulars(run: Run) -> dict[str, Any]:
    """What only some runs have."""
    out = {name: value for name in ("reason", "taken", "evidence", "cause", "model") if (value := getattr(run, name)) is not None}
    if run.marks:
        out["marks"] = list(run.marks)
    if run.fallback is not None:
        out["fallback"] = {name: value for name, value in run.fallback.items() if name in ("kind", "tool", "arguments", "error")}
    if run.signal is not None:
        out["signal"] = {**run.signal, "at": time_text(run.signal["at"])}
    if run.approval is not None:
        out["approval"] = {key: time_text(value) if key in _TIMES else value for key, value in run.approval.items()}
    if run.status is StepStatus.WAITING_FOR_APPROVAL and run.held is not None:
        out["proposed_output"] = run.held
    return out


def runs_of(instance: Instance) -> list[tuple[Step, Run | None]]:
    """Every iteration of every step in the order of the list; a step without any stands there once."""
    out: list[tuple[Step, Run | None]] = []
    by_step: dict[int, list[Run]] = {}
    for run in instance.runs.values():
        by_step.setdefault(run.step, []).append(run)
    for step in instance.workflow.body:
        runs = sorted(by_step.get(step.index, ()), key=lambda run: run.iteration)
        out += [(step, run) for run in runs] or [(step, None)]
    return out


def row_status(row: InstanceRow) -> str:
    """The status as a list shows it."""
    return str(InstanceStatus.WAITING) if row.status == InstanceStatus.RUNNING and row.waiting_for is not None else row.status


def row_view(row: InstanceRow) -> dict[str, Any]:
    """An instance as a list shows it."""
    return {
        "instance_id": str(row.id),
        "workflow_id": row.workflow,
        "version": row.version,
        "status": row_status(row),
        "trace_id": row.trace_id,
        "started_by": row.starter,
        "started_at": time_text(row.started_at),
        "ended_at": time_text(row.ended_at),
        "labels": dict(row.labels),
        "correlation_key": row.correlation_key,
        "priority": row.priority,
        "waiting_for": row.waiting_for,
        "error": None if row.error is None else dict(row.error),
        "links": links(row.id),
    }


def trace_row(row: InstanceRow, now: float) -> dict[str, Any]:
    """An instance as a list of traces shows it: its row, and for how long it has lived."""
    return {**row_view(row), "seconds": round((row.ended_at if row.ended_at is not None else now) - row.started_at, 6)}


#: The action behind each state of an approval that a person decided.
DECIDED = {"approved": "approve", "rejected": "reject"}


def approval_view(approval: Approval) -> dict[str, Any]:
    """An approval with what may be done now."""
    body = approval.body
    here = f"{API}/approvals/{approval.id}"
    return {
        "approval_id": str(approval.id),
        "instance_id": str(approval.instance),
        "workflow_id": approval.workflow,
        "step": approval.step,
        "path": approval.path,
        "status": approval.state,
        "title": approval.title,
        "show": body.get("show"),
        "matter": body.get("matter"),
        "at": body.get("at"),
        "editable": bool(body.get("editable")),
        "fields": body.get("fields"),
        "approvers": list(approval.approvers),
        "digest": approval.digest,
        "asked_at": time_text(approval.asked_at),
        "expires_at": time_text(approval.expires_at),
        "decision": decision_view(approval),
        "actions": [{"name": verb, "method": "POST", "href": f"{here}/{verb}"} for verb in ("approve", "reject")]
        if approval.state == "pending"
        else [],
        "links": {"self": here, "instance": f"{API}/instances/{approval.instance}"},
    }


def decision_view(approval: Approval) -> dict[str, Any] | None:
    """Who decided what, when and by which way; None while nobody has."""
    if approval.decided_by is None:
        return None
    answer: Mapping[str, Any] = approval.answer or {}
    out: dict[str, Any] = {
        "action": DECIDED[approval.state],
        "by": approval.decided_by,
        "at": time_text(approval.decided_at),
        "channel": approval.channel,
        "comment": approval.comment,
        "values": answer.get("values"),
    }
    if answer.get("edited") is not None:
        out["output"] = answer["edited"][0]
    return out


def version_view(row: VersionLine) -> dict[str, Any]:
    here = f"{API}/workflows/{row.workflow}"
    return {
        "workflow_id": row.workflow,
        "version": row.version,
        "content_hash": row.content_hash,
        "published_at": time_text(row.created_at),
        "published_by": row.created_by,
        "default": row.is_default,
        "deprecated": row.deprecated_at is not None,
        "links": {
            "self": f"{here}/versions/{row.version}",
            "source": f"{here}/versions/{row.version}?format=yaml",
            "graph": f"{here}/graph?version={row.version}",
            "trigger": f"{here}/trigger",
        },
    }


def rejected_view(row: RejectedRow) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "at": time_text(row.at),
        "workflow_id": row.workflow,
        "version": row.version,
        "principal": row.actor,
        "trace_id": row.trace_id,
        "code": row.code,
        "errors": row.problems,
    }
