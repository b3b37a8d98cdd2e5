"""The last good results of tools, on Postgres; each method is one statement.

It knows nothing of what the tools do.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.ports.last_good import CallDigest, GoodResult
from agiwo.store.pool import connected
from agiwo.store.statements import STATEMENTS
from agiwo.values import decode, encode


class PostgresLastGood:
    """LastGood on a pool made by `service_engine`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def keep(self, call: CallDigest, good: GoodResult, seconds: float) -> None:
        async with connected(self._engine) as connection:
            given = (call.tenant, call.tool, call.digest, encode(good.result), good.at, good.at + seconds)
            await connection.exec_driver_sql(STATEMENTS["keep_last_good"].text, given)

    async def find(self, call: CallDigest, since: float) -> GoodResult | None:
        async with connected(self._engine) as connection:
            given = (call.tenant, call.tool, call.digest, since)
            rows: list[Row[Any]] = list((await connection.exec_driver_sql(STATEMENTS["find_last_good"].text, given)).all())
        return GoodResult(decode(rows[0].result), rows[0].at) if rows else None
