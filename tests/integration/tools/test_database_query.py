"""`database.query` against a real Postgres and a real SQLite file: bound values, types, limits, and that nothing can be written."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from agiwo.errors import StepError, ValidationError
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.toolkit import ToolContext
from agiwo.tools.builtin.aggregate import aggregate
from agiwo.tools.builtin.database import query
from agiwo.tools.calling import call_tool

HOSTILE = ["O'Brien", 'a "b"', "007", "x; DROP TABLE sales; --", ":p1", "$1", "销售 ✓ \\ %s", "", "true"]
SALES = [(i, "2026-W48", text, f"{i}.{i}0", i % 2 == 0, None if i % 3 else i) for i, text in enumerate(HOSTILE)]


class Held:
    def monotonic(self) -> float:
        return 0.0

    def now(self) -> float:
        return 0.0


class Db:
    """One database with the sales table, and the tool on it."""

    def __init__(self, spec: ConnectionSpec) -> None:
        self.spec = spec
        self.connections = Connections([spec])

    async def rows(self, statement: str | dict[str, Any], *, deadline: float | None = None, **more: Any) -> Any:
        ctx = ToolContext(connections=self.connections, deadline=deadline, clock=Held())
        return await call_tool(query, {"query": statement, "connection": self.spec.name, **more}, ctx)

    async def bound(self, statement: str, **values: Any) -> Any:
        return await self.rows({"statement": statement, "values": values})

    async def failing(self, statement: str | dict[str, Any], **more: Any) -> StepError:
        with pytest.raises(StepError) as caught:
            await self.rows(statement, **more)
        return caught.value


@pytest.fixture(scope="module")
async def postgres(databases: Any) -> AsyncIterator[Db]:
    url = databases.empty()
    setup = await asyncpg.connect(url)
    await setup.execute(
        """CREATE TABLE sales (id int PRIMARY KEY, week text, note text, amount numeric(12,2), big boolean, units int);
           CREATE TABLE kinds (d date, n numeric, i int, l bigint, f float8, b boolean, u uuid, j jsonb, t text, ts timestamptz, a int[]);
           CREATE TYPE mood AS ENUM ('good', 'bad');
           INSERT INTO kinds VALUES ('2026-11-01', 12.50, 7, 9007199254740993, 0.1, true, '00000000-0000-0000-0000-000000000001',
                                     '{"k": [1, 123456789012345678901234567890]}', '7', '2026-11-30 10:00:00+02', '{1,2}')"""
    )
    await setup.executemany("INSERT INTO sales VALUES ($1, $2, $3, $4::text::numeric, $5, $6)", SALES)
    await setup.close()
    db = Db(ConnectionSpec("default", "postgres", url, {"pool_size": 2}))
    yield db
    await db.connections.close()
    databases.drop(url)


@pytest.fixture
def sqlite(tmp_path: Path) -> Db:
    path = tmp_path / "sales data?.db"
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE sales (id int PRIMARY KEY, week text, note text, amount real, big boolean, units int)")
    made.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?, ?)", SALES)
    made.commit()
    made.close()
    return Db(ConnectionSpec("file", "sqlite", f"sqlite:///{path}"))


@pytest.fixture(params=["postgres", "sqlite"])
def db(request: pytest.FixtureRequest) -> Db:
    found: Db = request.getfixturevalue(request.param)
    return found


async def test_the_article_s_query_gives_rows_that_the_aggregation_takes(db: Db) -> None:
    rows = await db.bound("SELECT * FROM sales WHERE week = :p1 ORDER BY id", p1="2026-W48")
    assert [r["note"] for r in rows] == HOSTILE
    assert list(rows[0]) == ["id", "week", "note", "amount", "big", "units"]
    (total,) = await aggregate(raw_data=rows, metrics=[{"op": "sum", "field": "amount"}, {"op": "count", "field": "units"}])
    (plain,) = await db.rows("SELECT sum(amount) AS sum_amount, count(units) AS count_units FROM sales")
    assert total == (plain if db.spec.kind == "postgres" else pytest.approx(plain))


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_value_is_data_whatever_it_looks_like(db: Db, text: str) -> None:
    assert await db.bound("SELECT note FROM sales WHERE note = :p1", p1=text) == [{"note": text}]


async def test_a_null_value_and_a_name_used_twice(db: Db) -> None:
    assert await db.bound("SELECT count(*) AS n FROM sales WHERE note = :a OR (:a IS NULL AND id = :b)", a=None, b=1) == [{"n": 1}]


async def test_no_rows_are_an_empty_list(db: Db) -> None:
    assert await db.rows("SELECT * FROM sales WHERE id < 0") == []


async def test_more_rows_than_allowed_are_an_error_and_never_cut_off(db: Db) -> None:
    assert (await db.failing("SELECT * FROM sales", max_rows=3)).type == "PayloadTooLarge"
    assert len(await db.rows("SELECT * FROM sales LIMIT 3", max_rows=3)) == 3


async def test_a_result_that_would_fill_the_memory_is_an_error(db: Db) -> None:
    megabyte = "hex(zeroblob(500000))" if db.spec.kind == "sqlite" else "repeat('x', 1000000)"
    many = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT i, {megabyte} AS big FROM n"
    assert (await db.failing(many)).type == "PayloadTooLarge"
    assert len(await db.rows(f"{many} LIMIT 20")) == 20


async def test_sqlite_makes_no_value_that_is_too_large(sqlite: Db) -> None:
    assert (await sqlite.failing("SELECT zeroblob(900000000) AS big")).type == "PayloadTooLarge"


async def test_two_columns_of_one_name_are_refused(db: Db) -> None:
    assert "two columns" in (await db.failing("SELECT id, note AS id FROM sales")).message


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM sales", "INSERT INTO sales (id) VALUES (99)", "DROP TABLE sales", "CREATE TABLE t (a int)", "UPDATE sales SET units = 0"],
)
async def test_nothing_can_be_written(db: Db, statement: str) -> None:
    assert (await db.failing(statement)).type == "PermissionDenied"
    assert await db.rows("SELECT count(*) AS n FROM sales") == [{"n": len(SALES)}]


async def test_postgres_runs_nothing_that_gives_no_rows(postgres: Db, tmp_path: Path) -> None:
    target = tmp_path / "out"
    statements = [
        f"COPY (SELECT 1) TO '{target}'",
        f"COPY (SELECT 1) TO PROGRAM 'touch {target}'",
        "SET statement_timeout = 0",
        "LISTEN x",
        "BEGIN",
    ]
    for statement in (*statements, "DO $$ BEGIN PERFORM 1; END $$"):
        assert (await postgres.failing(statement)).type == "PermissionDenied"
    assert not target.exists()


async def test_two_statements_at_once_are_refused(db: Db) -> None:
    assert (await db.failing("SELECT 1 AS a; SELECT 2 AS a")).type == "ToolError"


async def test_a_statement_that_does_not_parse_says_so(db: Db) -> None:
    error = await db.failing("SELEC 1")
    assert error.type == "ToolError"
    assert "SELEC" in error.message


async def test_a_cancelled_statement_ends_and_the_connection_serves_on(db: Db) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n"
    calls = [asyncio.ensure_future(db.rows(endless if db.spec.kind == "sqlite" else "SELECT pg_sleep(3000)")) for _ in range(2)]
    await started(db)
    for call in calls:
        call.cancel()
    for call in calls:
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await db.rows("SELECT 1 AS one") == [{"one": 1}]
    if db.spec.kind == "postgres":
        assert await running(db) == 0


async def test_a_call_cancelled_at_any_moment_leaves_no_transaction_behind(postgres: Db) -> None:
    for rounds in range(0, 1500, 25):
        call = asyncio.ensure_future(postgres.rows("SELECT 1 AS one"))
        for _ in range(rounds):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        # A place without a type is tried twice, and the second try fails in a transaction that the first has spoilt.
        assert await postgres.bound("SELECT 1 AS one WHERE :p IS NULL", p=None) == [{"one": 1}]


async def started(db: Db) -> None:
    if db.spec.kind == "sqlite":
        await db.rows("SELECT 1 AS one")
        return
    watcher = await asyncpg.connect(db.spec.url)
    while await watcher.fetchval("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3000)%' AND state = 'active'") < 3:
        pass
    await watcher.close()


async def running(db: Db) -> int:
    (row,) = await db.rows(
        "SELECT count(*) AS n FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3000)%' AND state = 'active' AND pid <> pg_backend_pid()"
    )
    return int(row["n"])


async def test_the_server_ends_a_statement_at_the_deadline(postgres: Db) -> None:
    assert (await postgres.failing("SELECT pg_sleep(3000)", deadline=0.05)).type == "Timeout"


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("d = :p", "2026-11-01"),
        ("d > :p::date - 7", "2026-11-01"),
        ("d + :p > '2026-11-01'", 1),
        ("n = :p", 12.5),
        ("n = :p", "12.50"),
        ("n < :p", 13),
        ("i = :p", 7),
        ("i = :p", "7"),
        ("i = :p", 7.0),
        ("i < :p", 7.5),
        ("i < :p", 3_000_000_000),
        ("i < :p", 10**30),
        ("l = :p", 9007199254740993),
        ("f = :p", 0.1),
        ("f < :p", 1),
        ("b = :p", True),
        (":p", True),
        ("u = :p", "00000000-0000-0000-0000-000000000001"),
        ("j @> :p", {"k": [1]}),
        ("t = :p", "7"),
        ("t = :p", 7),
        ("ts = :p", "2026-11-30T08:00:00Z"),
        ("i = ANY(:p)", [7, 8]),
        ("t = ANY(:p)", ["7", "x"]),
        ("a = :p", [1, 2]),
        (":p IS NULL", None),
        ("coalesce(:p, t) = '7'", None),
        ("'good'::mood = :p", "good"),
        ("t LIKE :p || '%'", "7"),
        ("jsonb_typeof(:p::jsonb) = 'string'", '"x"'),
    ],
)
async def test_a_json_value_fits_a_column_of_any_kind(postgres: Db, condition: str, value: Any) -> None:
    assert await postgres.bound(f"SELECT 1 AS hit FROM kinds WHERE {condition}", p=value) == [{"hit": 1}]


@pytest.mark.parametrize("value", [5, -5, 10**18, 10**60, 1.5, 0.1, True, False, "5", "", None])
async def test_a_value_alone_comes_back_with_its_own_type(postgres: Db, value: Any) -> None:
    ((got),) = [row["v"] for row in await postgres.bound("SELECT :p AS v", p=value)]
    assert got == value
    assert type(got) is type(value)


async def test_every_kind_of_column_has_its_json_form(postgres: Db) -> None:
    (row,) = await postgres.rows("SELECT *, '\\x00ff'::bytea AS raw, interval '1 day 2 hours' AS span, 'good'::mood AS mood FROM kinds")
    assert row == {
        "d": "2026-11-01",
        "n": 12.5,
        "i": 7,
        "l": 9007199254740993,
        "f": 0.1,
        "b": True,
        "u": "00000000-0000-0000-0000-000000000001",
        "j": {"k": [1, 123456789012345678901234567890]},
        "t": "7",
        "ts": "2026-11-30T08:00:00+00:00",
        "a": [1, 2],
        "raw": "AP8=",
        "span": "P1DT2H",
        "mood": "good",
    }


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("kind", ["float8", "numeric"])
async def test_what_is_no_json_number_names_its_column(postgres: Db, kind: str, text: str) -> None:
    error = await postgres.failing(f"SELECT 1 AS ok, '{text}'::{kind} AS ratio")
    assert error.type == "ValidationError"
    assert 'row 0, column "ratio"' in error.message


async def test_a_value_that_its_column_cannot_take_is_a_validation_error(postgres: Db) -> None:
    error = await postgres.failing({"statement": "SELECT 1 AS a FROM kinds WHERE d = :p", "values": {"p": "no date"}})
    assert error.type == "ValidationError"
    assert "no date" in error.message


async def test_a_setting_does_not_outlive_its_statement(postgres: Db) -> None:
    await postgres.rows("SELECT set_config('statement_timeout', '12345', false) AS s")
    for _ in range(2):
        assert await postgres.rows("SELECT current_setting('statement_timeout') AS s") == [{"s": "0"}]


async def test_a_connection_that_the_server_cut_is_replaced(postgres: Db) -> None:
    await postgres.rows("SELECT 1 AS a")
    watcher = await asyncpg.connect(postgres.spec.url)
    await watcher.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await watcher.close()
    assert await postgres.rows("SELECT 1 AS a") == [{"a": 1}]


async def test_a_database_that_is_not_there_is_a_network_error_without_its_address() -> None:
    db = Db(ConnectionSpec("gone", "postgres", "postgresql://user:s3cr3t@127.0.0.1:1/x"))
    error = await db.failing("SELECT 1 AS a")
    assert (error.type, error.not_done) == ("NetworkError", True)
    assert "s3cr3t" not in error.message
    await db.connections.close()


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    db = Db(ConnectionSpec("file", "sqlite", f"sqlite:///{tmp_path / 'none.db'}"))
    assert (await db.failing("SELECT 1 AS a")).type == "Unavailable"
    assert os.listdir(tmp_path) == []


async def test_sqlite_cannot_reach_other_files_or_settings(sqlite: Db, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for statement in (f"ATTACH '{other}' AS o", f"VACUUM INTO '{other}'", "PRAGMA journal_mode = DELETE", "BEGIN"):
        await sqlite.failing(statement)
    assert not other.exists()


async def test_sqlite_says_when_an_integer_is_too_long_for_it(sqlite: Db) -> None:
    with pytest.raises(ValidationError, match="64 bits"):
        await sqlite.bound("SELECT :p AS v", p=10**30)


async def test_sqlite_takes_lists_as_json(sqlite: Db) -> None:
    assert await sqlite.bound("SELECT value FROM json_each(:p)", p=[1, "x"]) == [{"value": 1}, {"value": "x"}]
