"""The answers of calls under a key, on Postgres; each method is one statement.

It knows nothing of what the calls do.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.ports.answered import CallKey, KeptAnswer, Standing
from agiwo.store.pool import connected
from agiwo.store.statements import STATEMENTS
from agiwo.values import decode, encode


class PostgresAnsweredCalls:
    """AnsweredCalls on a pool made by `service_engine`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def hold(self, key: CallKey, digest: str, claim: UUID, lease: float) -> Standing | None:
        while True:
            if await self._ask("hold_answered_call", key, digest, claim, lease):
                return None
            rows = await self._ask("look_at_answered_call", key)
            if rows:
                return _standing(rows[0])
            # Freed, or over, between the two: it can be had now.

    async def renew(self, key: CallKey, claim: UUID, lease: float) -> None:
        await self._do("renew_answered_call", key, claim, lease)

    async def keep(self, key: CallKey, claim: UUID, answer: KeptAnswer, seconds: float) -> None:
        await self._do("keep_answered_call", key, claim, answer.status, encode(dict(answer.headers)), answer.body, seconds)

    async def free(self, key: CallKey, claim: UUID) -> None:
        await self._do("free_answered_call", key, claim)

    async def _ask(self, name: str, key: CallKey, *values: Any) -> list[Row[Any]]:
        async with connected(self._engine) as connection:
            given = (key.tenant, key.principal, key.key, *values)
            return list((await connection.exec_driver_sql(STATEMENTS[name].text, given)).all())

    async def _do(self, name: str, key: CallKey, *values: Any) -> None:
        async with connected(self._engine) as connection:
            await connection.exec_driver_sql(STATEMENTS[name].text, (key.tenant, key.principal, key.key, *values))


def _standing(row: Row[Any]) -> Standing:
    if row.status is None:
        return Standing(row.digest)
    return Standing(row.digest, KeptAnswer(row.status, decode(row.headers), bytes(row.body)))
