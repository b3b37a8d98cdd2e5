"""The API keys on Postgres; each method is one statement, or one transaction.

It holds digests alone and judges nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Float, Insert, RowMapping, Select, Update, cast, exists, extract, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.ports.keys import StoredKey
from agiwo.store.pool import connected
from agiwo.store.schema import api_key

_k = api_key.c


def _epoch(column: Any, name: str) -> Any:
    return cast(extract("epoch", column), Float).label(name)


_COLUMNS = (
    _k.id, _k.tenant, _k.name, _k.digest, _k.roles, _epoch(_k.created_at, "created_at"), _k.created_by,
    _epoch(_k.expires_at, "expires_at"), _epoch(_k.revoked_at, "revoked_at"), _epoch(_k.last_used_at, "last_used_at"),
)  # fmt: skip


class PostgresKeys:
    """KeyStore on a pool made by `service_engine`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def any(self) -> bool:
        async with connected(self._engine) as connection:
            return bool((await connection.execute(select(exists().select_from(api_key)))).scalar())

    async def add(self, key: StoredKey) -> None:
        async with connected(self._engine) as connection:
            await connection.execute(_addition(key))

    async def add_if_free(self, key: StoredKey) -> StoredKey | None:
        living = (_k.revoked_at.is_(None)) & or_(_k.expires_at.is_(None), _k.expires_at > _time(key.created_at))
        there = select(*_COLUMNS).where(_k.tenant == key.tenant, _k.name == key.name, living).order_by(_k.id.desc()).limit(1)
        async with connected(self._engine) as plain:
            connection = await plain.execution_options(isolation_level="READ COMMITTED")
            async with connection.begin():
                # Whoever takes the same name at this moment waits, and then sees what was added.
                await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"{key.tenant}\n{key.name}", 0))))
                if (row := (await connection.execute(there)).mappings().first()) is not None:
                    return _key(row)
                await connection.execute(_addition(key))
        return None

    async def find(self, id: UUID) -> StoredKey | None:
        return next(iter(await self._keys(select(*_COLUMNS).where(_k.id == id))), None)

    async def get(self, tenant: str, id: UUID) -> StoredKey | None:
        return next(iter(await self._keys(select(*_COLUMNS).where(_k.tenant == tenant, _k.id == id))), None)

    async def named(self, tenant: str, name: str) -> list[StoredKey]:
        return await self._keys(select(*_COLUMNS).where(_k.tenant == tenant, _k.name == name).order_by(_k.id.desc()))

    async def listed(self, tenant: str, before: UUID | None, limit: int) -> list[StoredKey]:
        statement = select(*_COLUMNS).where(_k.tenant == tenant).order_by(_k.id.desc()).limit(limit)
        return await self._keys(statement if before is None else statement.where(_k.id < before))

    async def revoke(self, tenant: str, id: UUID, at: float) -> StoredKey | None:
        here = update(api_key).where(_k.tenant == tenant, _k.id == id, _k.revoked_at.is_(None))
        return next(iter(await self._keys(here.values(revoked_at=_time(at)).returning(*_COLUMNS))), None)

    async def end(self, tenant: str, id: UUID, at: float) -> None:
        await self._do(update(api_key).where(_k.tenant == tenant, _k.id == id).values(expires_at=func.least(_k.expires_at, _time(at))))

    async def used(self, id: UUID, at: float) -> None:
        later = or_(_k.last_used_at.is_(None), _k.last_used_at < _time(at))
        await self._do(update(api_key).where(_k.id == id, later).values(last_used_at=_time(at)))

    async def _keys(self, statement: Select[Any] | Any) -> list[StoredKey]:
        async with connected(self._engine) as connection:
            rows = (await connection.execute(statement)).mappings().all()
        return [_key(row) for row in rows]

    async def _do(self, statement: Update) -> None:
        async with connected(self._engine) as connection:
            await connection.execute(statement)


def _addition(key: StoredKey) -> Insert:
    return insert(api_key).values(
        id=key.id, tenant=key.tenant, name=key.name, digest=key.digest, roles=list(key.roles), created_at=_time(key.created_at),
        created_by=key.created_by, expires_at=None if key.expires_at is None else _time(key.expires_at),
    )  # fmt: skip


def _key(row: RowMapping) -> StoredKey:
    return StoredKey(**{**row, "roles": tuple(row["roles"])})


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
