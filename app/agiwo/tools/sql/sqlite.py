"""Reading a SQLite file, in a thread, so that nothing can be written and a cancelled statement really ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from agiwo.errors import StepError, ValidationError
from agiwo.outbound.connections import ConnectionSpec
from agiwo.tools.sql.rows import MAX_SIZE, Rows, column_names, too_large
from agiwo.tools.sql.statement import Statement, bound
from agiwo.values import encode

# The file is opened for reading only, which these could get around.
REFUSED = {
    sqlite3.SQLITE_ATTACH,
    sqlite3.SQLITE_DETACH,
    sqlite3.SQLITE_PRAGMA,
    sqlite3.SQLITE_TRANSACTION,
    sqlite3.SQLITE_SAVEPOINT,
}
STEPS_BETWEEN_LOOKS = 10_000
GRACE = 0.8


async def read_sqlite(spec: ConnectionSpec, query: str | Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    """The rows of a statement; raises StepError. Cancelled, the statement is ended before the cancellation goes on."""
    statement = bound(query, lambda _: "?", once=False)
    stop = threading.Event()
    reading = asyncio.ensure_future(asyncio.to_thread(_read, spec, statement, most, stop))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        stop.set()
        reading.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait({reading}, timeout=GRACE)
        raise


def _read(spec: ConnectionSpec, statement: Statement, most: int, stop: threading.Event) -> list[dict[str, Any]]:
    path = spec.url.removeprefix("sqlite:///")
    try:
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, timeout=2.0)
    except sqlite3.Error:
        raise StepError(f"the file of the connection {spec.name!r} cannot be opened", type="Unavailable", not_done=True) from None
    try:
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action in REFUSED else sqlite3.SQLITE_OK)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_SIZE)
        connection.set_progress_handler(stop.is_set, STEPS_BETWEEN_LOOKS)
        cursor = connection.execute(statement.text, [bindable(value) for value in statement.values])
        columns = column_names(column[0] for column in cursor.description or ())
        rows = Rows(columns, most)
        for values in cursor:
            rows.take(values)
        return rows.taken
    except sqlite3.Error as exc:
        raise failure(exc, spec) from None
    except OverflowError:
        raise ValidationError("an integer of more than 64 bits cannot be bound in SQLite", not_done=True) from None
    finally:
        connection.close()


def bindable(value: Any) -> Any:
    """What SQLite takes for a value: an object or list as its JSON text."""
    return encode(value) if isinstance(value, dict | list) else value


def failure(exc: sqlite3.Error, spec: ConnectionSpec) -> StepError:
    """The product's error for what SQLite said."""
    said = f"{spec.name}: {exc}"
    code = getattr(exc, "sqlite_errorcode", None)
    if code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
        return StepError(f"{said} (not allowed here)", type="PermissionDenied", not_done=True)
    if code == sqlite3.SQLITE_TOOBIG:
        return too_large()
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN):
        return StepError(said, type="Unavailable", not_done=True)
    return StepError(said, type="ToolError")
