"""One dedicated connection, opened anew after every loss, for the paths that must not share a pool.

It tells an unreachable database from a refused statement, and decides nothing about what to send again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from agiwo.ports.store import StoreUnavailable
from agiwo.store.statements import STATEMENTS
from agiwo.store.url import plain_url

#: Plans that stay good when a table grows: the planner likes to hash the whole table for a claim of a hundred rows (12 to 28 ms, not 1.4).
SESSION = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "search_path": "pg_catalog",
    "idle_in_transaction_session_timeout": "10s",
}

_SHUT_DOWN = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # The server no longer knows what was prepared, or not as it was: only a new connection prepares it anew.
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.InvalidCachedStatementError,
)


def is_lost(error: BaseException) -> bool:
    """Whether the error means that the database is gone or does not answer, so that what was sent may or may not be done."""
    if isinstance(error, (*_SHUT_DOWN, OSError, TimeoutError, asyncpg.InternalClientError)):
        return True
    return isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError)


class Line:
    """A connection for one purpose; calls wait for one another. `command_timeout` in seconds bounds every answer."""

    def __init__(self, url: str, purpose: str, *, command_timeout: float, connect_timeout: float = 5.0) -> None:
        self._url = plain_url(url)
        self._purpose = purpose
        self._command_timeout = command_timeout
        self._connect_timeout = connect_timeout
        self._connection: asyncpg.Connection[Any] | None = None
        self._prepared: dict[str, PreparedStatement[Any]] = {}
        self._turn = asyncio.Lock()
        self._closed = False

    async def fetch(self, name: str, *values: Any) -> list[asyncpg.Record]:
        """Run a named statement. Raises StoreUnavailable if its fate is unknown, else what Postgres says."""
        async with self._turn:
            try:
                return await Say(await self._open(), self._prepared)(name, *values)
            except BaseException as exc:
                self._after(exc)
                raise

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Say]:
        """All that is said inside is committed at the end, or nothing is. Raises like `fetch`, also for the commit itself."""
        async with self._turn:
            try:
                connection = await self._open()
                async with connection.transaction():
                    yield Say(connection, self._prepared)
            except BaseException as exc:
                self._after(exc)
                raise

    def _after(self, error: BaseException) -> None:
        """Drop a connection that is lost, or whose call was cancelled in the middle."""
        if not isinstance(error, Exception):
            self._drop()
        elif is_lost(error):
            self._drop()
            raise StoreUnavailable(f"the database does not answer ({self._purpose}): {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Close for good; what waits for its turn gets StoreUnavailable."""
        self._closed = True
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                try:
                    await connection.close(timeout=self._connect_timeout)
                except Exception:  # it was lost already, or is now
                    connection.terminate()

    async def _open(self) -> asyncpg.Connection[Any]:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        connection = self._connection
        if connection is None or connection.is_closed():
            self._prepared.clear()
            connection = await asyncpg.connect(
                self._url,
                timeout=self._connect_timeout,
                command_timeout=self._command_timeout,
                server_settings={**SESSION, "application_name": f"agiwo-{self._purpose}"},
            )
            self._connection = connection
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._prepared.clear()
        if connection is not None and not connection.is_closed():
            connection.terminate()


class Say:
    """Runs named statements on one open connection, each prepared at its first use."""

    __slots__ = ("_connection", "_prepared")

    def __init__(self, connection: asyncpg.Connection[Any], prepared: dict[str, PreparedStatement[Any]]) -> None:
        self._connection = connection
        self._prepared = prepared

    async def __call__(self, name: str, *values: Any) -> list[asyncpg.Record]:
        statement = self._prepared.get(name)
        if statement is None:
            statement = self._prepared[name] = await self._connection.prepare(STATEMENTS[name].text)
        return await statement.fetch(*values)
