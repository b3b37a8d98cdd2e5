"""The read side over Postgres: SQLAlchemy Core, one statement a question, every one bound to the tenant.

It changes nothing, and reads JSON as the text that was written, so that no number loses a digit on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, Text, and_, any_, cast, func, literal, literal_column, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.ids import shard_of
from agiwo.ports.queries import (
    Approval,
    InstanceFilter,
    InstancePage,
    InstanceRow,
    RejectedRow,
    StoredState,
)
from agiwo.ports.store import StoreUnavailable
from agiwo.store import schema
from agiwo.store.narrowing import WINDOW, narrowed
from agiwo.store.pool import connected
from agiwo.store.usage import PostgresUsage
from agiwo.values import decode

_i, _a, _v, _h, _s, _r = (
    schema.instance.c,
    schema.approval.c,
    schema.workflow_version.c,
    schema.history.c,
    schema.snapshot.c,
    schema.rejected_trigger.c,
)


def _instance_columns(c: Any) -> tuple[Any, ...]:
    return (
        c.id, c.workflow, c.version, c.status, c.trace_id, c.starter, c.labels, c.correlation_key, c.priority, c.created_at, c.ended_at,
        cast(c.error, Text).label("error"), c.waiting_for, c.callback_url,
    )  # fmt: skip


_INSTANCE = _instance_columns(_i)
_APPROVAL = (
    _a.id, _a.instance_id, _i.workflow, _a.path, _a.step, _a.state, _a.digest, _a.title, cast(_a.body, Text).label("body"), _a.approvers,
    _a.asked_at, _a.expires_at, _a.decided_by, _a.decided_at, _a.channel, _a.comment, cast(_a.answer, Text).label("answer"),
)  # fmt: skip
#: Written out, since the planner matches a partial index only with a constant.
_PENDING: ColumnElement[str] = literal_column("'pending'")


class PostgresQueries(PostgresUsage):
    """Answers from the tables of `schema`; `engine` is the pool of services (`pool.service_engine`)."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def _rows(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        async with connected(self._engine) as connection:
            rows: Sequence[Row[Any]] = (await connection.execute(statement)).all()
            return rows

    async def _row(self, statement: Select[Any]) -> Row[Any] | None:
        async with connected(self._engine) as connection:
            row: Row[Any] | None = (await connection.execute(statement)).first()
            return row

    async def instance(self, tenant: str, id: UUID) -> InstanceRow | None:
        row = await self._row(select(*_INSTANCE).where(*_this(tenant, id)))
        return None if row is None else _instance(row)

    async def instances(self, tenant: str, wanted: InstanceFilter, before: UUID | None, limit: int) -> InstancePage:
        how = narrowed(tenant, wanted, before)
        window = select(schema.instance).where(*how.leading).order_by(_i.id.desc()).limit(WINDOW if how.rest else limit + 1).subquery()
        listed = select(*_instance_columns(window.c)).where(*(make(window.c) for make in how.rest))
        rows = [_instance(row) for row in await self._rows(listed.order_by(window.c.id.desc()).limit(limit + 1))]
        if len(rows) > limit:
            return InstancePage(rows[:limit], rows[limit - 1].id)
        last = None
        if how.rest:
            # Nothing more in this window; the next page begins below it, if there is anything.
            last = await self._row(select(_i.id).where(*how.leading).order_by(_i.id.desc()).offset(WINDOW - 1).limit(1))
        return InstancePage(rows, None if last is None else last.id)

    async def live_with(self, tenant: str, correlation_key: str, limit: int) -> list[UUID]:
        of_key = (_i.tenant == tenant, _i.correlation_key == correlation_key, _i.ended_at.is_(None))
        return [row.id for row in await self._rows(select(_i.id).where(*of_key).order_by(_i.id).limit(limit))]

    async def state(self, tenant: str, id: UUID) -> StoredState | None:
        after = func.coalesce(select(_s.seq).where(_s.shard == shard_of(id), _s.instance_id == id).scalar_subquery(), 0)
        body = select(cast(_s.body, Text)).where(_s.shard == shard_of(id), _s.instance_id == id).scalar_subquery()
        records = (
            select(func.array_agg(aggregate_order_by(cast(_h.records, Text), _h.seq)))
            .where(_h.shard == shard_of(id), _h.instance_id == id, _h.seq > after)
            .scalar_subquery()
        )
        row = await self._row(select(*_INSTANCE, body.label("snapshot"), records.label("records")).where(*_this(tenant, id)))
        return None if row is None else StoredState(_instance(row), row.snapshot, tuple(row.records or ()))

    async def history(self, tenant: str, id: UUID, after: int, limit: int) -> list[Mapping[str, Any]] | None:
        # A row holds all records of one write; one of them may begin before `after`, and none is empty of records above it.
        written = (
            select(cast(_h.records, Text))
            .where(_h.shard == shard_of(id), _h.instance_id == id, _h.tenant == tenant, _h.seq > after)
            .order_by(_h.seq)
            .limit(limit)
        )
        async with connected(self._engine) as connection:
            if (await connection.execute(select(_i.id).where(*_this(tenant, id)))).first() is None:
                return None
            texts = (await connection.execute(written)).scalars().all()
        records = (record for text in texts for record in decode(text))
        return [record for record in records if record["seq"] > after][:limit]

    async def approval(self, tenant: str, id: UUID) -> Approval | None:
        row = await self._row(_approvals().where(_a.shard == shard_of(id), _a.id == id, _a.tenant == tenant))
        return None if row is None else _approval(row)

    async def approvals(
        self, tenant: str, state: str | None, assignee: str | None, instance: UUID | None, before: UUID | None, limit: int
    ) -> list[Approval]:
        statement = _approvals().where(_a.tenant == tenant).order_by(_a.id.desc()).limit(limit)
        if state is not None:
            statement = statement.where(_a.state == (_PENDING if state == "pending" else state))
        if assignee is not None:
            statement = statement.where(literal(assignee) == any_(_a.approvers))
        if instance is not None:
            statement = statement.where(_a.shard == shard_of(instance), _a.instance_id == instance)
        if before is not None:
            statement = statement.where(_a.id < before)
        return [_approval(row) for row in await self._rows(statement)]

    async def rejected(self, tenant: str, workflow: str | None, before: UUID | None, limit: int) -> list[RejectedRow]:
        columns = (_r.id, _r.at, _r.workflow, _r.version, _r.actor, _r.trace_id, _r.code, cast(_r.problems, Text).label("problems"))
        statement = select(*columns).where(_r.tenant == tenant).order_by(_r.id.desc()).limit(limit)
        if workflow is not None:
            statement = statement.where(_r.workflow == workflow)
        if before is not None:
            statement = statement.where(_r.id < before)
        return [
            RejectedRow(r.id, r.at.timestamp(), r.workflow, r.version, r.actor, r.trace_id, r.code, decode(r.problems))
            for r in await self._rows(statement)
        ]

    async def ready(self) -> bool:
        try:
            await self._row(select(_v.workflow).limit(1))
        except (StoreUnavailable, DBAPIError):
            return False
        return True


def _this(tenant: str, id: UUID) -> tuple[Any, ...]:
    return _i.shard == shard_of(id), _i.id == id, _i.tenant == tenant


def _approvals() -> Select[Any]:
    # The instance's shard is the approval's: its id is derived on it.
    return select(*_APPROVAL).join_from(schema.approval, schema.instance, and_(_i.shard == _a.shard, _i.id == _a.instance_id))


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _instance(row: Row[Any]) -> InstanceRow:
    return InstanceRow(
        row.id, row.workflow, row.version, row.status, row.trace_id, row.starter, row.labels, row.correlation_key, row.priority,
        row.created_at.timestamp(), _seconds(row.ended_at), None if row.error is None else decode(row.error), row.waiting_for,
        row.callback_url,
    )  # fmt: skip


def _approval(row: Row[Any]) -> Approval:
    return Approval(
        row.id, row.instance_id, row.workflow, row.path, row.step, row.state, row.digest, row.title, decode(row.body), tuple(row.approvers),
        row.asked_at.timestamp(), row.expires_at.timestamp(), row.decided_by, _seconds(row.decided_at), row.channel, row.comment,
        None if row.answer is None else decode(row.answer),
    )  # fmt: skip
