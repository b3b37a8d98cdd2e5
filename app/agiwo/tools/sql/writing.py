"""One statement in one transaction, for `database.execute`: all of it or nothing, and an error says which where that is certain.

Until the commit is asked for nothing is done, whatever fails; a commit that was asked for and not answered is in doubt.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from agiwo.errors import NetworkError, StepError, ValidationError
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.tools.sql import postgres, sqlite
from agiwo.tools.sql.rows import MAX_SIZE, Rows, column_names
from agiwo.tools.sql.statement import Statement, bound

Written = tuple[int, list[dict[str, Any]]]
_STATUS_COUNT = re.compile(r"(?:INSERT \d+|UPDATE|DELETE|MERGE) (\d+)")
_BEFORE_WORDS = re.compile(r"(?:\s|--[^\r\n]*(?:[\r\n]|$)|/\*.*?\*/|[(;])*([A-Za-z]+)?", re.DOTALL)
#: What would end or leave the transaction that the statement runs in, stay with the connection for whoever has it next, or, by COPY,
#: write files and start programs on the server.
_REFUSED = frozenset(
    ("abort", "begin", "close", "commit", "copy", "deallocate", "declare", "discard", "end", "execute", "fetch", "listen", "load", "move",
     "notify", "prepare", "release", "reset", "rollback", "savepoint", "set", "start", "unlisten")
)  # fmt: skip
_CLEAN = "RESET SESSION AUTHORIZATION; SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL"


async def write_postgres(
    spec: ConnectionSpec, connections: Connections, query: str | Mapping[str, Any], most: int, within: float | None
) -> Written:
    """How many rows the statement affected, and the rows that it returns, `most` at most; committed.

    `within` (seconds) is the server's own limit for it. Raises StepError.
    """
    _refuse_control(query)
    engine = connections.pool(spec, postgres.open_engine)
    committing = False
    try:
        async with engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            if driver is None:
                raise NetworkError(f"the database of {spec.name!r} is not connected", not_done=True)
            transaction = driver.transaction()
            await transaction.start()
            try:
                if within is not None:
                    await driver.execute(f"SET LOCAL statement_timeout = {max(1, int(within * 1000))}")
                written = await _run(driver, query, most)
                committing = True
                await transaction.commit()
            except BaseException:
                await postgres.roll_back(driver, transaction.rollback)
                raise
            await _clean(driver)
            return written
    except (DBAPIError, PoolTimeout, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as exc:
        found = postgres.failure(exc, spec)
        answered = isinstance(exc, asyncpg.PostgresError) and not (exc.sqlstate or "08").startswith("08")
        found.not_done = not committing or answered
        raise found from None
    except StepError as exc:
        exc.not_done = not committing
        raise


async def _run(driver: asyncpg.Connection, query: str | Mapping[str, Any], most: int) -> Written:
    prepared, values = await postgres.prepare_statement(driver, query)
    columns = column_names(attribute.name for attribute in prepared.get_attributes())
    if not columns:
        await prepared.fetch(*values)
        count = _STATUS_COUNT.fullmatch(prepared.get_statusmsg())
        return int(count[1]) if count else 0, []
    rows = Rows(columns, most)
    async for record in prepared.cursor(*values, prefetch=min(most + 1, postgres.AHEAD)):
        rows.take(record.values())
    return len(rows.taken), rows.taken


async def _clean(driver: asyncpg.Connection) -> None:
    """Leave nothing of the statement with the connection; one that cannot be cleaned is thrown away. The work is committed already."""
    try:
        await driver.execute(_CLEAN)
    except BaseException as exc:
        driver.terminate()
        if not isinstance(exc, Exception):
            raise


def _refuse_control(query: str | Mapping[str, Any]) -> None:
    text = query if isinstance(query, str) else query["statement"]
    found = _BEFORE_WORDS.match(text)
    word = (found[1] or "").lower() if found else ""
    if word in _REFUSED:
        raise ValidationError(
            f"{word.upper()} is not for a statement that runs in a transaction of its own and reaches nothing but the database",
            not_done=True,
        )


async def write_sqlite(spec: ConnectionSpec, query: str | Mapping[str, Any], most: int) -> Written:
    """As `write_postgres`, for a SQLite file. Cancelled, the statement is undone before the cancellation goes on."""
    _refuse_control(query)
    statement = bound(query, lambda _: "?", once=False)
    stop = threading.Event()
    writing = asyncio.ensure_future(asyncio.to_thread(_write, spec, statement, most, stop))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        stop.set()
        writing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait({writing}, timeout=sqlite.GRACE)
        raise


def _write(spec: ConnectionSpec, statement: Statement, most: int, stop: threading.Event) -> Written:
    path = spec.url.removeprefix("sqlite:///")
    try:
        connection = sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=2.0)
    except sqlite3.Error:
        raise StepError(f"the file of the connection {spec.name!r} cannot be opened", type="Unavailable", not_done=True) from None
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_SIZE)
        connection.execute("BEGIN IMMEDIATE")
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action in sqlite.REFUSED else sqlite3.SQLITE_OK)
        connection.set_progress_handler(stop.is_set, sqlite.STEPS_BETWEEN_LOOKS)
        cursor = connection.execute(statement.text, [sqlite.bindable(value) for value in statement.values])
        rows = Rows(column_names(column[0] for column in cursor.description or ()), most)
        for values in cursor:
            rows.take(values)
        affected = len(rows.taken) if cursor.description else max(0, cursor.rowcount)
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
        if stop.is_set():
            raise StepError("the statement was stopped", type="Cancelled", not_done=True)
        connection.execute("COMMIT")
        return affected, rows.taken
    except sqlite3.Error as exc:
        found = sqlite.failure(exc, spec)
        # A commit that fails leaves the transaction open, and closing the file undoes it.
        found.not_done = True
        raise found from None
    except sqlite3.Warning as exc:
        raise ValidationError(f"{spec.name}: {exc}", not_done=True) from None
    except OverflowError:
        raise ValidationError("an integer of more than 64 bits cannot be bound in SQLite", not_done=True) from None
    except StepError as exc:
        exc.not_done = True
        raise
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.close()
