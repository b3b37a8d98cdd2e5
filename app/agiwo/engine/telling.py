"""What webhooks are told of a write: an outbox row for each record and each webhook that wants it, and the one of a `callback_url`.

It builds values only. What steps take and give is told to nobody who did not ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agiwo.clock import rfc3339
from agiwo.ids import told_id
from agiwo.machine.commands import Record
from agiwo.machine.state import ENDED_INSTANCE, Instance, InstanceStatus
from agiwo.machine.transitions import STEP
from agiwo.ports.store import OutboxRow
from agiwo.ports.webhooks import Subscription
from agiwo.values import encode

WEBHOOK, CALLBACK = "webhook", "callback"

#: The events of steps; each has the name of its record.
STEP_EVENTS = (
    "step.started", "step.queued", "step.waiting", "step.approval_asked", "step.approval_decided", "step.retrying", "step.fallback",
    "step.unknown", "step.succeeded", "step.failed", "step.skipped", "step.cancelled",
)  # fmt: skip
ENDS = {InstanceStatus.SUCCESS: "instance.succeeded"}
INSTANCE_EVENTS = (
    "instance.started",
    "instance.interrupted",
    "instance.resumed",
    "instance.cancel_asked",
    *(ENDS.get(status, f"instance.{status.lower()}") for status in InstanceStatus if status in ENDED_INSTANCE),
)
#: Sent only by a person's trial.
PING = "ping"
#: Every event that a webhook may ask for.
EVENTS = (*INSTANCE_EVENTS, *STEP_EVENTS)

#: Characters of an error's message that is told, and of an output as JSON; a longer output is left out.
LONGEST_MESSAGE, LONGEST_OUTPUT = 1000, 256_000
_TOLD_OF_ERRORS = ("type", "step", "path", "status")
_STEP_EVENTS = frozenset(STEP_EVENTS)


def told(
    before: InstanceStatus, instance: Instance, records: Iterable[Record], correlation_key: str | None, wanted: Sequence[Subscription]
) -> Iterator[OutboxRow]:
    """The rows for these records; `before` is the status before them, `instance` is as it is after them."""
    wanted = [one for one in wanted if one.workflow is None or one.workflow == instance.workflow.id]
    if not wanted:
        return
    for record in records:
        name = _event(record, instance)
        takers = [one for one in wanted if one.wants(name)] if name is not None else ()
        if name is None or not takers:
            continue
        data = _data(name, before, instance, record, correlation_key)
        for taker in takers:
            shown = {**data, **_output(instance, record)} if taker.include_output else data
            id = told_id(instance.id, record.at, WEBHOOK, record.seq, str(taker.id))
            event = {"type": name, "timestamp": rfc3339(record.at), "data": shown}
            body = {"id": str(id), "tenant": instance.tenant, "event": event}
            yield OutboxRow(id, WEBHOOK, str(taker.id), body, record.seq)


def callback(instance: Instance, url: str, at: float) -> OutboxRow:
    """The row that has the instance's final view sent to where its trigger asked for it."""
    id = told_id(instance.id, at, CALLBACK, url)
    body = {"id": str(id), "tenant": instance.tenant, "instance": str(instance.id), "url": url}
    return OutboxRow(id, CALLBACK, f"callback:{urlsplit(url).netloc.lower()}", body, instance.seq)


def _event(record: Record, instance: Instance) -> str | None:
    if record.type in _STEP_EVENTS:
        return record.type
    if record.type == "instance.ended":
        return ENDS.get(instance.status, f"instance.{instance.status.lower()}")
    return record.type if record.type in INSTANCE_EVENTS else None


def _data(name: str, before: InstanceStatus, instance: Instance, record: Record, correlation_key: str | None) -> dict[str, Any]:
    over = record.type == "instance.ended"
    out: dict[str, Any] = {
        "instance_id": str(instance.id),
        "workflow": instance.workflow.id,
        "version": instance.workflow.version,
        # An instance that ended within this write had not ended yet when its earlier events happened.
        "status": str(before if instance.ended and not over else instance.status),
        "seq": record.seq,
        "trace_id": instance.trace_id,
        "correlation_key": correlation_key,
        "labels": dict(instance.labels),
    }
    if record.path is not None:
        run = instance.runs.get(record.path)
        status = STEP[record.type][1] if record.type in STEP else None
        out["step"] = {
            "id": run.id if run is not None else record.path,
            "path": record.path,
            "iteration": run.iteration if run is not None else 1,
            "attempt": record.attempt if record.attempt is not None else run.attempt if run is not None else 0,
            "status": str(status or (run.status if run is not None else "")),
        }
    error = (record.data or {}).get("error")
    if over and error is None and instance.ending is not None:
        error = instance.ending.error
    if isinstance(error, Mapping):
        short = {key: error[key] for key in _TOLD_OF_ERRORS if error.get(key) is not None}
        out["error"] = {**short, "message": str(error.get("message", ""))[:LONGEST_MESSAGE]}
    return out


def _output(instance: Instance, record: Record) -> dict[str, Any]:
    output: Any
    if record.type == "instance.ended" and instance.ending is not None:
        output = instance.ending.output
    elif record.type == "step.succeeded" and record.path is not None and (run := instance.runs.get(record.path)) is not None:
        output = run.output
    else:
        return {}
    size = len(encode(output))
    return {"output": output} if size <= LONGEST_OUTPUT else {"output_omitted": f"it has {size} characters; ask for the instance"}
