"""The outbox on Postgres, as people see it; each method is one statement.

What is claimed and settled goes over the engine's own connection and not through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Float, Select, Text, cast, extract, literal_column, select
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.ids import shard_of
from agiwo.ports.deliveries import STATES, Delivery
from agiwo.ports.store import OutboxRow
from agiwo.store import schema
from agiwo.store.pool import connected
from agiwo.store.statements import STATEMENTS
from agiwo.values import decode, encode

_o = schema.outbox.c


def _epoch(column: Any, name: str) -> Any:
    return cast(extract("epoch", column), Float).label(name)


_COLUMNS = (
    _o.id, _o.tenant, _o.instance_id.label("instance"), _o.seq, _o.kind, _o.target, cast(_o.body, Text).label("body"), _o.state, _o.tries,
    _epoch(_o.due_at, "due_at"), _epoch(_o.created_at, "created_at"), _o.owner.is_not(None).label("under_way"), _o.last_status,
    _o.last_error, _epoch(_o.settled_at, "settled_at"),
)  # fmt: skip

_STATES: Mapping[str, ColumnElement[str]] = {state: literal_column(f"'{state}'") for state in STATES}


class PostgresDeliveries:
    """Deliveries on a pool made by `service_engine`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def get(self, tenant: str, id: UUID) -> Delivery | None:
        this = select(*_COLUMNS).where(_o.shard == shard_of(id), _o.id == id, _o.tenant == tenant)
        return next(iter(await self._deliveries(this)), None)

    async def listed(self, tenant: str, target: str | None, state: str | None, before: UUID | None, limit: int) -> list[Delivery]:
        statement = select(*_COLUMNS).where(_o.tenant == tenant).order_by(_o.id.desc()).limit(limit)
        if target is not None:
            statement = statement.where(_o.target == target)
        if state is not None:
            # Written out, since the planner matches a partial index only with a constant.
            statement = statement.where(_o.state == _STATES[state])
        if before is not None:
            statement = statement.where(_o.id < before)
        return await self._deliveries(statement)

    async def again(self, tenant: str, id: UUID) -> Delivery | None:
        async with connected(self._engine) as connection:
            done = (await connection.exec_driver_sql(STATEMENTS["deliver_again"].text, (tenant, id))).all()
        return await self.get(tenant, id) if done else None

    async def post(self, tenant: str, row: OutboxRow) -> None:
        values = [row.id], [None], [tenant], [0], [0], [row.kind], [row.target], [encode(dict(row.body))]
        async with connected(self._engine) as connection:
            await connection.exec_driver_sql(STATEMENTS["insert_outbox"].text, values)

    async def _deliveries(self, statement: Select[Any]) -> list[Delivery]:
        async with connected(self._engine) as connection:
            rows = (await connection.execute(statement)).mappings().all()
        return [Delivery(**{**row, "body": decode(row["body"])}) for row in rows]
