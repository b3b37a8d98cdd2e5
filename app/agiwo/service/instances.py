"""Reading instances: one with everything that it holds, lists, steps, trace, history.

An instance is made from its snapshot and the records after it, as an engine node does it; nothing is stored twice to be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from immutables import Map

from agiwo.clock import rfc3339
from agiwo.definition.compiled import Workflow
from agiwo.engine.writes import entrusted
from agiwo.errors import NotFound
from agiwo.machine import Record, blank, evolve, restore
from agiwo.machine.reports import Begin
from agiwo.machine.state import Instance, Run
from agiwo.ports.definitions import Definitions
from agiwo.ports.queries import InstanceFilter, InstancePage, InstanceRow, Queries, StoredState
from agiwo.service.callers import Caller
from agiwo.service.redaction import instance_for, records_for, step_for
from agiwo.service.view import instance_view, interrupted_at, runs_of, signal_view, status_of, step_view, time_text
from agiwo.values import decode

PAGE = 1000


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Records as they are shown; `next_after` is None if these were the last for now."""

    items: list[dict[str, Any]]
    next_after: int | None


class Instances:
    """The reads on instances; another tenant's look as if they did not exist."""

    def __init__(self, queries: Queries, definitions: Definitions) -> None:
        self._queries = queries
        self._definitions = definitions

    async def load(self, caller: Caller, id: UUID) -> Instance:
        """The state after the last record that was written. Raises NotFound."""
        return (await self._stored(caller, id))[1]

    async def view(self, caller: Caller, id: UUID) -> dict[str, Any]:
        """Everything about one instance. Raises NotFound."""
        row, instance = await self._stored(caller, id)
        return instance_for(caller, instance_view(instance, row))

    async def listed(self, caller: Caller, wanted: InstanceFilter, before: UUID | None, limit: int) -> InstancePage:
        """Newest first; a page may be short and still have a next one."""
        return await self._queries.instances(caller.tenant, wanted, before, limit)

    async def row(self, caller: Caller, id: UUID) -> InstanceRow:
        """What lists show of one instance. Raises NotFound."""
        row = await self._queries.instance(caller.tenant, id)
        if row is None:
            raise not_found()
        return row

    async def steps(self, caller: Caller, id: UUID) -> list[dict[str, Any]]:
        """Every iteration of every step in the order of the definition. Raises NotFound."""
        instance = await self.load(caller, id)
        return [step_for(caller, step_view(instance, step, run)) for step, run in runs_of(instance)]

    async def step(self, caller: Caller, id: UUID, path: str) -> dict[str, Any]:
        """One iteration of a step with its records and, for a model step, every call: prompt as sent, raw answer. Raises NotFound."""
        instance = await self.load(caller, id)
        number = instance.workflow.body.number.get(path.partition("~")[0])
        run = instance.run(path)
        if number is None or (run is None and "~" in path):
            raise NotFound(f"there is no step run `{path[:200]}` in this instance", code="step_not_found")
        out = step_view(instance, instance.workflow.body.steps[number], run)
        records = [] if run is None else await self._records_of(caller, id, run)
        out["history"] = [record_view(record) for record in records]
        calls = [call for record in records for call in (record.get("data") or {}).get("calls") or ()]
        if calls:
            out["calls"] = calls
        return step_for(caller, out)

    async def _records_of(self, caller: Caller, id: UUID, run: Run) -> list[Mapping[str, Any]]:
        out: list[Mapping[str, Any]] = []
        after = 0
        while records := await self._queries.history(caller.tenant, id, after, PAGE):
            out += [record for record in records if record.get("path") == run.path]
            after = records[-1]["seq"]
            if len(records) < PAGE:
                break
        return out

    async def trace(self, caller: Caller, id: UUID) -> dict[str, Any]:
        """Per step what went in, what came out, how long it took and how it ended, in the order in which they began. Raises NotFound."""
        instance = await self.load(caller, id)
        shown = [
            step_for(caller, step_view(instance, step, run)) for step, run in sorted(runs_of(instance), key=lambda pair: _began(pair[1]))
        ]
        ended = instance.ended_at
        return {
            "instance_id": str(id),
            "workflow_id": instance.workflow.id,
            "version": instance.workflow.version,
            "status": status_of(instance),
            "trace_id": instance.trace_id,
            "interrupted_at": interrupted_at(instance),
            "signals": [signal_view(signal) for signal in sorted(instance.signals.values(), key=lambda signal: signal.number)],
            "started_at": time_text(instance.started_at),
            "ended_at": time_text(ended),
            "duration": None if ended is None else round(ended - instance.started_at, 6),
            "steps": shown,
        }

    async def history(self, caller: Caller, id: UUID, after: int, limit: int) -> HistoryPage:
        """The records numbered above `after`. Raises NotFound."""
        records = await self._queries.history(caller.tenant, id, after, limit)
        if records is None:
            raise not_found()
        return HistoryPage(shown_records(caller, records), records[-1]["seq"] if len(records) == limit else None)

    async def workflow_of(self, caller: Caller, id: UUID) -> tuple[Workflow, Instance]:
        """The version that an instance runs on, and its state. Raises NotFound."""
        instance = await self.load(caller, id)
        return instance.workflow, instance

    async def _stored(self, caller: Caller, id: UUID) -> tuple[InstanceRow, Instance]:
        stored = await self._queries.state(caller.tenant, id)
        if stored is None:
            raise not_found()
        workflow = await self._definitions.get(caller.tenant, stored.row.workflow, stored.row.version)
        return stored.row, rebuilt(workflow, caller.tenant, stored)


def rebuilt(workflow: Workflow, tenant: str, stored: StoredState) -> Instance:
    """The instance that a snapshot and the records after it stand for."""
    row = stored.row
    instance = blank(row.id, workflow, tenant)
    state = None if stored.snapshot is None else entrusted(stored.snapshot)
    if isinstance(state, Begin):
        # Written down and not begun yet by any node: its first record is still to come.
        instance = instance._replace(
            input=state.input,
            starter=state.starter,
            labels=state.labels,
            trace_id=state.trace_id,
            started_at=state.at,
            values=Map(state.context),
        )
    elif state is not None:
        instance = restore(workflow, tenant, row.id, state)
    for batch in stored.records:
        for record in decode(batch):
            instance = evolve(instance, Record.from_json(record))
    return instance


def shown_records(caller: Caller, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records as this caller sees them."""
    return records_for(caller, [record_view(record) for record in records])


def record_view(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is shown: its time as text."""
    return {**record, "at": rfc3339(record["at"])}


def not_found() -> NotFound:
    return NotFound("there is no such instance", code="instance_not_found")


def _began(run: Run | None) -> float:
    return float("inf") if run is None or run.begun_at is None else run.begun_at
