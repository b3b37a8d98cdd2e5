"""Makes an instance again from what the store holds of it, and says what its former node left open.

It evaluates nothing: a snapshot and the records after it give the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agiwo.definition.compiled import Workflow
from agiwo.engine.snapshots import SinceSnapshot
from agiwo.engine.writes import entrusted
from agiwo.machine import blank, evolve, restore
from agiwo.machine.commands import Record
from agiwo.machine.reports import AttemptLost, Begin, Report
from agiwo.machine.state import Instance, StepStatus
from agiwo.ports.store import Claimed, Inbox
from agiwo.values import decode

#: Items by which a person takes up an instance that was set aside.
ORDERS = ("cancel", "outcome")


@dataclass(frozen=True, slots=True)
class Retrieved:
    """An instance as it was left; `begin` is its trigger if no node has begun it yet."""

    instance: Instance
    since: SinceSnapshot
    begin: Begin | None = None


def retrieve(claimed: Claimed, workflow: Workflow) -> Retrieved:
    """The instance of a claim. Raises whatever the machine raises on a history that is not its own."""
    since = SinceSnapshot()
    instance = blank(claimed.id, workflow, claimed.tenant)
    if claimed.snapshot is not None:
        state = entrusted(claimed.snapshot)
        if isinstance(state, Begin) and not claimed.seq:
            return Retrieved(instance, since, state)
        if not isinstance(state, Begin):
            instance = restore(workflow, claimed.tenant, claimed.id, state)
            since.size = len(claimed.snapshot)
    for text in claimed.records:
        records = decode(text)
        since.records += len(records)
        since.characters += len(text)
        for record in records:
            instance = evolve(instance, Record.from_json(record))
    return Retrieved(instance, since)


def what_was_lost(instance: Instance, at: float) -> Iterable[Report]:
    """A report for every call of which nobody here knows anything."""
    for run in instance.live_runs():
        if run.status is StepStatus.RUNNING or (run.status is StepStatus.UNKNOWN and run.probing):
            yield AttemptLost(at, run.path, run.attempt)


def has_orders(inbox: Inbox | None) -> bool:
    """Whether a person has said what is to become of the instance."""
    return inbox is not None and any(item.kind in ORDERS for item in inbox.items)
