"""Turns what was decided into the one write that makes it durable: approval rows, notices, and what the instance waits for.

It builds values only; when they are written is the held instance's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agiwo.definition.compiled import Workflow
from agiwo.ids import derived_uuid
from agiwo.machine.commands import CloseApproval, Command, OpenApproval
from agiwo.machine.reports import Begin
from agiwo.machine.state import INTERRUPT, Instance, InstanceStatus
from agiwo.machine.view import wait_kind
from agiwo.ports.store import ApprovalClose, ApprovalRow, Claimed, NewInstance, OutboxRow, Verdict, Write, WriteKind
from agiwo.values import decode, encode

NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Rows:
    """What a write carries beside the records."""

    approvals: tuple[ApprovalRow, ...] = ()
    closed: tuple[ApprovalClose, ...] = ()
    outbox: tuple[OutboxRow, ...] = ()


NO_ROWS = Rows()


def rows_of(instance: Instance, commands: Iterable[Command]) -> Rows:
    """The approvals that are opened and closed, and a notice to each approver over each channel."""
    opened = {c.id: c for c in commands if isinstance(c, OpenApproval)}
    closed = {c.id: c for c in commands if isinstance(c, CloseApproval)}
    if not opened and not closed:
        return NO_ROWS
    # Asked and settled within one write: nobody ever saw it, the history alone tells of it.
    for id in opened.keys() & closed.keys():
        del opened[id], closed[id]
    return Rows(
        approvals=tuple(_approval(command) for command in opened.values()),
        closed=tuple(ApprovalClose(UUID(command.id), command.state) for command in closed.values()),
        outbox=tuple(row for command in opened.values() for row in _notices(instance, command)),
    )


def _approval(command: OpenApproval) -> ApprovalRow:
    return ApprovalRow(
        id=UUID(command.id),
        path=command.path,
        step=command.step,
        digest=command.digest,
        title=command.title,
        body={
            "show": command.show,
            "matter": command.matter,
            "at": command.at,
            "editable": command.editable,
            "fields": command.fields,
            "notify": list(command.notify),
        },
        approvers=command.approvers,
        asked_at=command.asked_at,
        expires_at=command.expires_at,
    )


def _notices(instance: Instance, command: OpenApproval) -> Iterable[OutboxRow]:
    # Whoever is named twice is told once: the id is derived, and a second row under it would be refused.
    for channel in dict.fromkeys(command.notify):
        for approver in dict.fromkeys(command.approvers):
            yield OutboxRow(
                id=derived_uuid(instance.id, NOTICE, command.id, channel, approver),
                kind=NOTICE,
                target=channel,
                body={
                    "about": "approval",
                    "approval": command.id,
                    "to": approver,
                    "instance": str(instance.id),
                    "workflow": instance.workflow.id,
                    "version": instance.workflow.version,
                    "tenant": instance.tenant,
                    "trace_id": instance.trace_id,
                    "step": command.step,
                    "path": command.path,
                    "title": command.title,
                    "show": command.show,
                    "digest": command.digest,
                    "asked_at": command.asked_at,
                    "expires_at": command.expires_at,
                },
            )


def waiting_for(instance: Instance) -> str | None:
    """What the instance waits for, as a listing shows it: `approval of send`, `timer of pause, outcome of pay`."""
    waits = [f"{what} of {run.path}" for run in instance.live_runs() if (what := wait_kind(run)) is not None]
    waits += [f"{INTERRUPT} after {path}" for path in instance.stops]
    return ", ".join(waits[:3]) + (f" and {len(waits) - 3} more" if len(waits) > 3 else "") or None


def entrust(id: UUID, workflow: Workflow, tenant: str, begin: Begin, new: NewInstance) -> Write:
    """A new instance that no node owns yet: any may claim it at once, and begins it with what was given.

    Nothing is decided here: a step that were recorded as started, with nobody to start it, would look like one whose node died.
    """
    text = encode(
        {
            "begin": {
                "at": begin.at,
                "input": begin.input,
                "context": dict(begin.context),
                "starter": begin.starter,
                "labels": dict(begin.labels),
                "trace_id": begin.trace_id,
                **{name: list(paths) for name in ("interrupt_before", "interrupt_after") if (paths := getattr(begin, name))},
            }
        }
    )
    return Write(
        kind=WriteKind.PARK,
        id=id,
        tenant=tenant,
        epoch=0,
        prev_seq=0,
        seq=0,
        records="[]",
        at=begin.at,
        status=InstanceStatus.RUNNING.value,
        due_at=begin.at,
        new=new,
        snapshot=text,
    )


def entrusted(snapshot: str) -> Begin | Mapping[str, Any]:
    """What a snapshot holds: the beginning of an instance that `entrust` has written, else the machine's own state."""
    state: Mapping[str, Any] = decode(snapshot)
    begin = state.get("begin")
    return state if begin is None else Begin(**begin)


@dataclass(slots=True)
class Plain:
    """A write without an instance in memory; `told` hears what became of it."""

    write: Write
    told: Callable[[Verdict], None]
    dropped: bool = False

    def settle(self, verdict: Verdict) -> None:
        self.told(verdict)


def put_aside(claimed: Claimed, at: float, reason: str, again: float | None) -> Write:
    """Let go of an instance that cannot be driven here: until `again` (seconds since 1970), or until a person acts (None)."""
    return Write(
        kind=WriteKind.PARK,
        id=claimed.id,
        tenant=claimed.tenant,
        epoch=claimed.epoch,
        prev_seq=claimed.seq,
        seq=claimed.seq,
        records="[]",
        at=at,
        status=InstanceStatus.WAITING.value,
        due_at=again,
        inbox_seen=claimed.inbox_seq,
        guard_inbox=True,
        waiting_for=f"set aside: {reason}",
    )
