"""`database.execute` against a real Postgres and a real SQLite file: all or nothing, and nothing left with the connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from agiwo.errors import StepError
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.toolkit import ToolContext
from agiwo.tools.builtin.database import execute, query
from agiwo.tools.calling import call_tool

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, note TEXT)"


class Db:
    def __init__(self, spec: ConnectionSpec) -> None:
        self.spec = spec
        self.connections = Connections([spec])

    async def run(self, statement: str, within: float | None = None, max_rows: int = 100, **values: Any) -> Any:
        ctx = ToolContext(connections=self.connections)
        if within is not None:
            ctx = ToolContext(connections=self.connections, deadline=ctx.clock.monotonic() + within)
        given = {"statement": {"statement": statement, "values": values}, "connection": self.spec.name, "max_rows": max_rows}
        return await call_tool(execute, given, ctx)

    async def fails(self, statement: str, **more: Any) -> StepError:
        with pytest.raises(StepError) as caught:
            await self.run(statement, **more)
        return caught.value

    async def rows(self, statement: str = "SELECT id, note FROM t ORDER BY id") -> Any:
        return await call_tool(query, {"query": statement, "connection": self.spec.name}, ToolContext(connections=self.connections))


@pytest.fixture
async def postgres(databases: Any) -> AsyncIterator[Db]:
    url = databases.empty()
    made = await asyncpg.connect(url)
    await made.execute(TABLE)
    await made.close()
    db = Db(ConnectionSpec("default", "postgres", url, {"pool_size": 1}))
    yield db
    await db.connections.close()
    databases.drop(url)


@pytest.fixture
def sqlite(tmp_path: Path) -> Db:
    made = sqlite3.connect(tmp_path / "t.db")
    made.execute(TABLE)
    made.close()
    return Db(ConnectionSpec("file", "sqlite", f"sqlite:///{tmp_path / 't.db'}"))


@pytest.fixture(params=["postgres", "sqlite"])
def db(request: pytest.FixtureRequest) -> Db:
    found: Db = request.getfixturevalue(request.param)
    return found


async def test_affected_rows_are_counted_and_kept(db: Db) -> None:
    assert await db.run("INSERT INTO t VALUES (:a, :n), (:b, :n)", a=1, b=2, n="O'Brien; --") == {"rows_affected": 2, "rows": []}
    assert await db.run("UPDATE t SET note = :n WHERE id > :a", n="x", a=1) == {"rows_affected": 1, "rows": []}
    assert await db.run("DELETE FROM t WHERE id = 99") == {"rows_affected": 0, "rows": []}
    assert await db.rows() == [{"id": 1, "note": "O'Brien; --"}, {"id": 2, "note": "x"}]


async def test_rows_that_the_statement_returns_come_back(db: Db) -> None:
    got = await db.run("INSERT INTO t VALUES (1, 'a'), (2, 'b') RETURNING id, note")
    assert got == {"rows_affected": 2, "rows": [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]}


async def test_definition_statements_affect_no_rows(db: Db) -> None:
    assert (await db.run("CREATE TABLE more (id INT)"))["rows_affected"] == 0
    assert await db.rows("SELECT * FROM more") == []


async def test_statement_that_fails_leaves_nothing_and_says_so(db: Db) -> None:
    await db.run("INSERT INTO t VALUES (1, 'a')")
    error = await db.fails("INSERT INTO t VALUES (2, 'b'), (1, 'again')")
    assert error.not_done
    assert [row["id"] for row in await db.rows()] == [1]


async def test_more_returned_rows_than_allowed_undo_the_statement(db: Db) -> None:
    error = await db.fails("INSERT INTO t VALUES (1, 'a'), (2, 'b') RETURNING id", max_rows=1)
    assert (error.type, error.not_done) == ("PayloadTooLarge", True)
    assert await db.rows() == []


@pytest.mark.parametrize(
    "statement",
    ["COMMIT", "COPY t TO PROGRAM 'true'", " rollback", "-- x\nBEGIN", "/* y */ SAVEPOINT a", "SET x = 1", "(;END", "PREPARE p AS SELECT 1",
     "INSERT INTO t VALUES (1, 'a'); INSERT INTO t VALUES (2, 'b')", "INSERT INTO t VALUES (1, 'a'); COMMIT"],
)  # fmt: skip
async def test_one_statement_and_no_control_of_the_transaction(db: Db, statement: str) -> None:
    assert (await db.fails(statement)).not_done
    assert await db.rows() == []


async def test_sqlite_refuses_what_reaches_beyond_its_file(sqlite: Db) -> None:
    for statement in ("ATTACH 'other.db' AS o", "PRAGMA writable_schema = 1"):
        assert (await sqlite.fails(statement)).type == "PermissionDenied"


async def test_nothing_of_a_statement_stays_with_the_connection(postgres: Db) -> None:
    await postgres.run("SELECT set_config('statement_timeout', '1', false), pg_advisory_lock(7)")
    await postgres.run("INSERT INTO t VALUES (1, 'a')")
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    (row,) = await postgres.rows(f"SELECT current_setting('statement_timeout') AS t, current_setting('TimeZone') AS z, ({held}) AS n")
    assert row == {"t": "0", "z": "UTC", "n": 0}


async def test_time_limit_of_the_server_proves_that_nothing_was_done(postgres: Db) -> None:
    error = await postgres.fails("INSERT INTO t SELECT 1, pg_sleep(30)::text", within=0.2)
    assert (error.type, error.not_done) == ("Timeout", True)
    assert await postgres.rows() == []


async def test_cancelled_statement_is_undone(postgres: Db) -> None:
    task = asyncio.ensure_future(postgres.run("INSERT INTO t SELECT 1, pg_sleep(30)::text"))
    while not await postgres_is_busy(postgres):
        pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await postgres.rows() == []


async def postgres_is_busy(db: Db) -> bool:
    other = await asyncpg.connect(db.spec.url)
    try:
        return bool(
            await other.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()")
        )
    finally:
        await other.close()


async def test_constraint_that_is_checked_at_the_commit_proves_that_nothing_was_done(postgres: Db) -> None:
    await postgres.run("CREATE TABLE d (id INT REFERENCES t DEFERRABLE INITIALLY DEFERRED)")
    error = await postgres.fails("INSERT INTO d VALUES (5)")
    assert error.not_done and "foreign key" in error.message
    assert await postgres.rows("SELECT * FROM d") == []


async def test_database_that_is_not_there_proves_that_nothing_was_done(tmp_path: Path) -> None:
    for spec in (
        ConnectionSpec("default", "postgres", "postgresql://nobody@127.0.0.1:1/none"),
        ConnectionSpec("default", "sqlite", f"sqlite:///{tmp_path / 'none.db'}"),
    ):
        db = Db(spec)
        assert (await db.fails("DELETE FROM t")).not_done
        await db.connections.close()
    assert not (tmp_path / "none.db").exists()
