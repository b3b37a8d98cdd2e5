"""Reading Postgres: every value goes over as text and the server decides its type from the place where it stands, as psql does.

So "2026-11-01" fits a date column, 12.5 a numeric one and 7 a text one. A statement runs in a read-only transaction that is rolled back,
so that nothing that it sets stays behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import asyncpg
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agiwo.errors import NetworkError, StepError, ValidationError
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.tools.sql.rows import Rows, column_names, encoded, moment, number
from agiwo.tools.sql.statement import bound
from agiwo.values import decode, encode

_GRACE = 0.8
_DEFAULT_POOL = 5
AHEAD = 200  # rows that are fetched at once
_CANNOT_BE_READ = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)
_INTEGERS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
_SETTINGS = {"TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "iso_8601", "application_name": "agiwo"}


def _bytes(text: str) -> str:
    return encoded(bytes.fromhex(text[2:]))


#: How each type of the server comes back from its text form.
_DECODERS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), int),
    **dict.fromkeys(("float4", "float8"), float),
    **dict.fromkeys(("timestamp", "timestamptz"), moment),
    **dict.fromkeys(("json", "jsonb"), decode),
    **dict.fromkeys(
        ("text", "varchar", "bpchar", "name", "date", "time", "timetz", "interval", "uuid", "inet", "cidr", "macaddr", "money", "bit",
         "varbit", "xml", "tsvector", "point", "box", "path", "line", "lseg", "circle", "polygon"),
        str,
    ),
    "numeric": number,
    "bool": "t".__eq__,
    "bytea": _bytes,
}  # fmt: skip


async def read_postgres(
    spec: ConnectionSpec, connections: Connections, query: str | Mapping[str, Any], most: int, within: float | None
) -> list[dict[str, Any]]:
    """The rows of a statement; raises StepError.

    `within` (seconds) is the server's own limit for it. Cancelled, the statement is ended on the server before the cancellation goes on.
    """
    engine = connections.pool(spec, open_engine)
    try:
        async with engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            if driver is None:
                raise NetworkError(f"the database of {spec.name!r} is not connected", not_done=True)
            return await _read(driver, query, most, within)
    except (DBAPIError, PoolTimeout, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as exc:
        raise failure(exc, spec) from None


async def _read(driver: asyncpg.Connection, query: str | Mapping[str, Any], most: int, within: float | None) -> list[dict[str, Any]]:
    prepared, values = await prepare_statement(driver, query)
    columns = column_names(attribute.name for attribute in prepared.get_attributes())
    if not columns:
        # COPY writes files and starts programs in a read-only transaction too, SET and LISTEN change the connection for those after us.
        raise StepError("a query gives rows, this statement gives none", type="PermissionDenied", not_done=True)
    transaction = driver.transaction(readonly=True)
    try:
        await transaction.start()
        if within is not None:
            await driver.execute(f"SET LOCAL statement_timeout = {max(1, int(within * 1000))}")
        rows = Rows(columns, most)
        async for record in prepared.cursor(*values, prefetch=min(most + 1, AHEAD)):
            rows.take(record.values())
        return rows.taken
    finally:
        await roll_back(driver, transaction.rollback)


async def roll_back(driver: asyncpg.Connection, rollback: Callable[[], Awaitable[None]]) -> None:
    """End the transaction whatever happens; a connection that cannot do that in time, or not at all, is thrown away."""
    ended = asyncio.ensure_future(rollback())
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait({ended}, timeout=_GRACE)
    if not ended.done() or ended.cancelled() or ended.exception() is not None:
        ended.cancel()
        driver.terminate()


async def prepare_statement(driver: asyncpg.Connection, query: str | Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """The prepared statement. Where the server's reading of a place cannot hold the value, the value's own type is tried."""
    plain = bound(query, lambda n: f"${n}", once=True)

    def cast_to(casts: Mapping[int, str]) -> str:
        return bound(query, lambda n: f"CAST(${n} AS {casts[n]})" if n in casts else f"${n}", once=True).text

    try:
        first = await driver.prepare(plain.text)
    except (asyncpg.IndeterminateDatatypeError, asyncpg.AmbiguousFunctionError, asyncpg.AmbiguousParameterError) as undecided:
        casts = {n: own for n, value in enumerate(plain.values, 1) if (own := _own_type(value)) is not None}
        try:
            return await driver.prepare(cast_to(casts)), plain.values
        except _CANNOT_BE_READ:
            raise undecided from None
    wishes = {
        n: own
        for n, (value, place) in enumerate(zip(plain.values, first.get_parameters(), strict=True), 1)
        if (own := _own_type(value)) is not None and not _holds(place.name, value)
    }
    if wishes:
        with contextlib.suppress(*_CANNOT_BE_READ):
            return await driver.prepare(cast_to(wishes)), plain.values
    return first, plain.values


def _own_type(value: Any) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -(2**31) <= value < 2**31 else "bigint" if -(2**63) <= value < 2**63 else "numeric"
    if isinstance(value, float):
        return "numeric"
    return "text" if value is None or isinstance(value, str) else None


def _holds(place: str, value: Any) -> bool:
    if place in _INTEGERS and isinstance(value, int | float) and not isinstance(value, bool):
        return isinstance(value, int) and -_INTEGERS[place] <= value < _INTEGERS[place]
    return place != "text" or value is None or isinstance(value, str)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value)


def open_engine(spec: ConnectionSpec) -> tuple[AsyncEngine, Callable[[], Awaitable[None]]]:
    """The pool of a connection and the way to close it; raises ValidationError if its URL is none of Postgres."""
    scheme, _, rest = spec.url.partition("://")
    if scheme not in ("postgresql", "postgres", "postgresql+asyncpg"):
        raise ValidationError(f"the connection {spec.name!r} has no address of the form postgresql://…", not_done=True)
    engine = create_async_engine(
        f"postgresql+asyncpg://{rest}",
        pool_size=int(spec.options.get("pool_size", _DEFAULT_POOL)),
        max_overflow=0,
        pool_timeout=30.0,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"timeout": 10.0, "server_settings": _SETTINGS},
    )

    async def set_codecs(driver: asyncpg.Connection) -> None:
        for name, decoder in _DECODERS.items():
            await driver.set_type_codec(name, schema="pg_catalog", encoder=_text, decoder=decoder, format="text")

    @event.listens_for(engine.sync_engine, "connect")
    def when_connected(adapted: Any, _: Any) -> None:
        adapted.run_async(set_codecs)

    return engine, engine.dispose


#: Failure types by SQLSTATE, the whole code before its class (the first two characters).
_BY_STATE = {
    "57014": "Timeout", "42501": "PermissionDenied", "25006": "PermissionDenied", "40001": "Unavailable", "40P01": "Unavailable",
    "55P03": "Unavailable", "08": "NetworkError", "53": "Unavailable", "57": "Unavailable", "28": "PermissionDenied",
    "22": "ValidationError",
}  # fmt: skip


def failure(exc: BaseException, spec: ConnectionSpec) -> StepError:
    """The product's error for what the driver or the server said."""
    root: BaseException = exc
    while isinstance(root, DBAPIError) and root.orig is not None:
        root = root.orig.__cause__ or root.orig
    if isinstance(root, asyncpg.PostgresError):
        state = root.sqlstate or ""
        named = _BY_STATE.get(state) or _BY_STATE.get(state[:2]) or "ToolError"
        return StepError(f"{spec.name}: {root}", type=named, details={"sqlstate": state} if state else None)
    if isinstance(root, asyncpg.UnsupportedClientFeatureError):
        return StepError(f"{spec.name}: {root}; cast it to text in the statement", type="ToolError")
    if isinstance(root, PoolTimeout):
        return StepError(f"all connections of {spec.name!r} are in use", type="Unavailable", not_done=True)
    return NetworkError(f"the database of {spec.name!r} could not be reached ({type(root).__name__})", not_done=isinstance(root, OSError))
