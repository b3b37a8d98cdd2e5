"""What operators ask of Postgres as a whole: bounded reads over the tables, and the checks of what must always hold.

Nothing here changes a row.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Row, case, func, literal, select, union_all
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.machine.state import InstanceStatus
from agiwo.ports.oversight import MOST_COUNTED, AuditFilter, AuditPage, AuditRow, NodeRow, QueueCounts, Summary, Violation
from agiwo.ports.queries import InstanceFilter
from agiwo.store import schema
from agiwo.store.narrowing import LIVE, error_type, narrowed
from agiwo.store.pool import connected
from agiwo.store.statements import STATEMENTS
from agiwo.values import decode

#: Rows of the audit that one page looks at, at most.
WINDOW = 20_000
#: The checks by the promise that each of them looks after: three of the whole service, which name nobody else's instances, two of a tenant.
CHECKS = {
    "no_owner_is_gone": "find_owners_that_are_gone",
    "nothing_due_is_left_lying": "find_due_and_not_taken",
    "no_live_row_of_an_ended_instance": "find_ended_with_a_live_row",
    "no_approval_outlives_its_instance": "find_pending_without_a_life",
    "no_gap_in_a_history": "find_gaps_in_histories",
    "nobody_waits_for_nothing": "find_waiting_for_nothing",
}
#: The durations that a summary tells, as parts of the whole.
PARTS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_SHOWN = 20  # names of workflows and errors that a summary has


class PostgresOversight:
    """Oversight on a pool made by `service_engine`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def nodes(self, limit: int) -> list[NodeRow]:
        return [NodeRow(**row._asdict()) for row in await self._ask("list_nodes", limit)]

    async def queues(self, tenant: str) -> QueueCounts:
        (row,) = await self._ask("count_queues", tenant, MOST_COUNTED)
        return QueueCounts(row.ready, row.oldest_ready, row.timed, row.waiting, row.approvals)

    async def audit(self, tenant: str, wanted: AuditFilter, before: UUID | None, limit: int) -> AuditPage:
        found = await self._ask("list_audit", tenant, wanted.actor, wanted.action, wanted.object, before, WINDOW, limit + 1)
        rows = [
            AuditRow(row.id, row.at, row.actor, row.action, row.object, None if row.data is None else decode(row.data))
            for row in found
            if row.id is not None
        ]
        if len(rows) > limit:
            return AuditPage(tuple(rows[:limit]), rows[limit - 1].id)
        return AuditPage(tuple(rows), found[0].scanned if found else None)

    async def summary(self, tenant: str, wanted: InstanceFilter) -> Summary:
        how = narrowed(tenant, wanted, None)
        _i = schema.instance.c
        window = select(schema.instance).where(*how.leading).order_by(_i.id.desc()).limit(MOST_COUNTED + 1).subquery("w")
        c = window.c
        waits = (c.status.in_(LIVE)) & c.waiting_for.is_not(None)
        fitting = (
            select(
                case((waits, literal(InstanceStatus.WAITING.value)), else_=c.status).label("status"),
                c.workflow,
                error_type(c).label("error"),
                func.extract("epoch", c.ended_at - c.created_at).label("seconds"),
            )
            .where(*(make(c) for make in how.rest))
            .cte("fitting")
        )
        f = fitting.c
        counts = [
            select(literal(name).label("what"), column.label("value"), func.count().label("number"))
            .where(column.is_not(None))
            .group_by(column)
            .order_by(func.count().desc(), column)
            .limit(_SHOWN)
            .subquery()
            for name, column in (("status", f.status), ("workflow", f.workflow), ("error", f.error))
        ]
        sums = select(
            func.count().label("counted"),
            *(func.percentile_cont(part).within_group(f.seconds).label(name) for name, part in PARTS.items()),
            func.max(f.seconds).label("max"),
        )
        async with connected(self._engine) as connection:
            by = (await connection.execute(union_all(*(select(one) for one in counts)))).all()
            total = (await connection.execute(sums)).one()
            scanned = (await connection.execute(select(func.count()).select_from(window))).scalar_one()
        times = {name: float(value) for name in (*PARTS, "max") if (value := getattr(total, name)) is not None}
        status, workflow, error = (_of(by, what) for what in ("status", "workflow", "error"))
        return Summary(total.counted, scanned > MOST_COUNTED, status, workflow, error, times)

    async def violations(self, tenant: str, limit: int) -> list[Violation]:
        found = {name: await self._ask(check, limit, tenant) for name, check in CHECKS.items()}
        return [Violation(name, bool(rows), tuple(row.id for row in rows if row.id is not None)) for name, rows in found.items()]

    async def _ask(self, name: str, *values: Any) -> list[Row[Any]]:
        async with connected(self._engine) as connection:
            return list((await connection.exec_driver_sql(STATEMENTS[name].text, values)).all())


def _of(rows: Any, what: str) -> dict[str, int]:
    return {row.value: row.number for row in rows if row.what == what}
