"""The connections of services: a small SQLAlchemy pool for publishing, decisions and reads; the engine's hot path never uses it.

Builds the pool and translates its errors; it knows no table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from agiwo.errors import ValueRefused
from agiwo.ports.store import StoreUnavailable
from agiwo.store.line import is_lost
from agiwo.store.url import plain_url
from agiwo.values import decode, encode

SIZE = 5

#: Of services, whose plans may well use a hash join; nothing of theirs may run or sit for long.
SESSION = {
    "application_name": "agiwo-services",
    "search_path": "pg_catalog",
    "jit": "off",
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "10s",
}

_DATA = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, asyncpg.CheckViolationError, asyncpg.NotNullViolationError)


def service_engine(url: str, *, size: int = SIZE, wait: float = 10.0) -> AsyncEngine:
    """A pool of at most `size` connections, each tried before use; whoever finds none free waits `wait` seconds.

    Each statement is its own transaction unless `begin()` says otherwise. Dispose of the engine at the end.
    """
    address = plain_url(url)

    async def connect() -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(address, timeout=5, command_timeout=20, server_settings=SESSION)

    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        pool_size=size,
        max_overflow=0,
        pool_timeout=wait,
        pool_pre_ping=True,
        pool_recycle=1800,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,  # an error must not quote what people wrote
        json_serializer=encode,
        json_deserializer=decode,
    )


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection of the pool, given back however the caller ends, by cancellation too.

    Raises StoreUnavailable if the database is away or no connection came free, ValueRefused for data that it cannot hold.
    """
    try:
        async with engine.connect() as connection:
            yield connection
    except PoolTimeout as exc:
        raise StoreUnavailable("all connections to the database are in use") from exc
    except DBAPIError as exc:
        cause = getattr(exc.orig, "__cause__", None) or exc.orig
        if isinstance(cause, _DATA):
            raise ValueRefused(f"the database cannot hold this: {str(cause).splitlines()[0][:300]}") from exc
        if exc.connection_invalidated or (cause is not None and is_lost(cause)):
            raise StoreUnavailable(f"the database does not answer: {cause}") from exc
        raise
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.CannotConnectNowError) as exc:
        raise StoreUnavailable(f"the database does not answer: {exc or type(exc).__name__}") from exc
