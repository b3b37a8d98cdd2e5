"""The ledger of calls of models read from Postgres.

Sums are made by the database over the index of tenant and time; nothing here changes a row.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Date, Text, cast, func, literal, select, tuple_
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.engine.usage import OK
from agiwo.ids import shard_of
from agiwo.ports.store import UsageRow
from agiwo.ports.usage import UsageFilter, UsageGroup, UsagePlace, UsageTotals
from agiwo.store import schema
from agiwo.store.columns import USAGE
from agiwo.store.pool import connected

_u = schema.usage.c
_COLUMNS = tuple(_u[name] for name in USAGE)
_SUMS = (
    func.count().label("calls"),
    func.count().filter(_u.status != OK).label("failed"),
    *(
        func.coalesce(func.sum(_u[name]), 0).label(name)
        for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    ),
    func.sum(_u.cost_micro_usd).label("cost_micro_usd"),
    func.count().filter(_u.cost_micro_usd.is_(None)).label("unpriced"),
)
#: Written by hand in UTC, so that no session's zone moves a call to another day.
_DAY = cast(cast(func.timezone("UTC", _u.at), Date), Text)


class PostgresUsage:
    """UsageQueries over the table of `schema`; `engine` is the pool of services."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def usage(self, tenant: str, id: UUID, after: UsagePlace | None, limit: int) -> list[UsageRow]:
        order = (_u.at, _u.path, _u.attempt, _u.number)
        statement = select(*_COLUMNS).where(_u.shard == shard_of(id), _u.instance_id == id, _u.tenant == tenant)
        if after is not None:
            place = (_time(after.at), literal(after.path), literal(after.attempt), literal(after.number))
            statement = statement.where(tuple_(*order) > tuple_(*place))
        async with connected(self._engine) as connection:
            rows = (await connection.execute(statement.order_by(*order).limit(limit))).all()
        return [UsageRow(**{**row._asdict(), "at": row.at.timestamp()}) for row in rows]

    async def usage_totals(self, tenant: str, id: UUID) -> UsageTotals:
        statement = select(*_SUMS).where(_u.shard == shard_of(id), _u.instance_id == id, _u.tenant == tenant)
        async with connected(self._engine) as connection:
            return _totals((await connection.execute(statement)).one())

    async def usage_by_day(
        self, tenant: str, wanted: UsageFilter, after: UsageGroup | None, limit: int
    ) -> list[tuple[UsageGroup, UsageTotals]]:
        statement = select(_DAY.label("day"), _u.workflow, _u.profile, *_SUMS).where(
            _u.tenant == tenant, _u.at >= _time(wanted.since), _u.at < _time(wanted.until)
        )
        if wanted.workflow is not None:
            statement = statement.where(_u.workflow == wanted.workflow)
        if wanted.profile is not None:
            statement = statement.where(_u.profile == wanted.profile)
        # By the bytes of the text, so that places compare as the memory store compares them.
        order = tuple(column.collate("C") for column in (_DAY, _u.workflow, _u.profile))
        if after is not None:
            statement = statement.where(tuple_(*order) > tuple_(*(literal(part) for part in after)))
        async with connected(self._engine) as connection:
            rows = (await connection.execute(statement.group_by(_DAY, _u.workflow, _u.profile).order_by(*order).limit(limit))).all()
        return [(UsageGroup(row.day, row.workflow, row.profile), _totals(row)) for row in rows]


def _time(at: float) -> Any:
    return cast(func.to_timestamp(at), TIMESTAMP(timezone=True))


def _totals(row: Any) -> UsageTotals:
    sums = {name: int(getattr(row, name)) for name in UsageTotals.__dataclass_fields__ if name != "cost_micro_usd"}
    return UsageTotals(**sums, cost_micro_usd=None if row.cost_micro_usd is None else int(row.cost_micro_usd))
