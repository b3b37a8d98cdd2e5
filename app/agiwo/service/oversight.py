"""What operators look at: traces and their sums, nodes, queues, who did what, and whether what must always hold does hold.

It reads; whoever wants to change something goes through the verbs of instances, definitions and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from agiwo.ports.limits import LimitSource
from agiwo.ports.oversight import MOST_COUNTED, AuditFilter, AuditRow, NodeRow, Oversight, Violation
from agiwo.ports.queries import InstanceFilter
from agiwo.service.callers import ADMIN, OPERATOR, Caller
from agiwo.service.view import time_text

NODES, EXAMPLES = 200, 20
#: What each promise means, for whoever finds it broken.
PROMISES: Mapping[str, str] = {
    "no_owner_is_gone": "an instance is held by a node that is dead or unknown, longer than a sweep takes",
    "nothing_due_is_left_lying": "an instance has been due for a minute and no node has taken it",
    "no_live_row_of_an_ended_instance": "an instance that has ended is still held by a node",
    "no_approval_outlives_its_instance": "people may still answer a question of an instance that is over",
    "no_gap_in_a_history": "the history of one of the newest instances misses a number or has one twice",
    "nobody_waits_for_nothing": "an instance runs, no node holds it, and neither a time nor anybody will move it",
}


class Overseeing:
    """The reads of operators; `limits` tells those of this process."""

    def __init__(self, oversight: Oversight, limits: LimitSource) -> None:
        self._oversight = oversight
        self._limits = limits

    async def summary(self, caller: Caller, wanted: InstanceFilter) -> dict[str, Any]:
        """Counts and durations over the newest instances that fit."""
        found = await self._oversight.summary(caller.tenant, wanted)
        return {
            "counted": found.counted,
            "more": found.more,
            "by_status": dict(found.by_status),
            "by_workflow": dict(found.by_workflow),
            "by_error": dict(found.by_error),
            "seconds": dict(found.seconds),
        }

    def limits(self, caller: Caller) -> list[dict[str, Any]]:
        """What this node may have at once, and what of it is taken. Raises Denied for a caller who is no operator."""
        caller.need(OPERATOR)
        return [asdict(state) for state in self._limits()]

    async def nodes(self, caller: Caller) -> list[dict[str, Any]]:
        """Every node that is known. Raises Denied for a caller who is no admin."""
        caller.need(ADMIN)
        return [_node(row) for row in await self._oversight.nodes(NODES)]

    async def queues(self, caller: Caller) -> dict[str, Any]:
        """What waits for a node, for a time, for a person. Raises Denied for a caller who is no operator."""
        caller.need(OPERATOR)
        found = await self._oversight.queues(caller.tenant)
        return {
            "ready": found.ready,
            "oldest_ready_seconds": found.oldest_ready,
            "timed": found.timed,
            "waiting": found.waiting,
            "approvals": found.approvals,
            "counted_up_to": MOST_COUNTED,
        }

    async def audit(self, caller: Caller, wanted: AuditFilter, before: UUID | None, limit: int) -> tuple[list[dict[str, Any]], UUID | None]:
        """A page of changes, newest first, and where the next begins. Raises Denied for a caller who is no admin."""
        caller.need(ADMIN)
        page = await self._oversight.audit(caller.tenant, wanted, before, limit)
        return [_change(row) for row in page.rows], page.next

    async def invariants(self, caller: Caller) -> dict[str, Any]:
        """Every promise, and what breaks it. Raises Denied for a caller who is no admin."""
        caller.need(ADMIN)
        checks = [_check(found) for found in await self._oversight.violations(caller.tenant, EXAMPLES)]
        return {"hold": all(check["holds"] for check in checks), "checks": checks}


def _node(row: NodeRow) -> dict[str, Any]:
    return {
        "node_id": str(row.id),
        "name": row.name,
        "state": row.state,
        "started_at": time_text(row.started_at),
        "lease_until": time_text(row.lease_until),
        "lease_left_seconds": row.lease_left if row.state == "alive" else None,
        "instances": row.instances,
        "deliveries": row.deliveries,
    }


def _change(row: AuditRow) -> dict[str, Any]:
    data = dict(row.data or {})
    return {
        "audit_id": str(row.id),
        "at": time_text(row.at),
        "actor": row.actor,
        "action": row.action,
        "object": row.object,
        "reason": data.pop("reason", None),
        "data": data,
    }


def _check(found: Violation) -> dict[str, Any]:
    out: dict[str, Any] = {"name": found.name, "holds": not found.broken, "broken_by": [str(id) for id in found.ids]}
    return out if out["holds"] else {**out, "meaning": PROMISES[found.name]}
