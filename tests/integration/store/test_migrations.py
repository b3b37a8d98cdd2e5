"""Migrations: they run once, and they give exactly what the metadata describes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agiwo.store import migrate
from agiwo.store.schema import COMPRESSED, SCHEMA, metadata

APP = Path(__file__).resolve().parents[3] / "app"

COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), coll.collname
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum LEFT JOIN pg_collation coll ON coll.oid = a.attcollation
WHERE n.nspname = $1 AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind = 'r' AND c.relname NOT IN ('alembic_version', 'migration_lock')
"""
CONSTRAINTS = """
SELECT c.relname, k.conname, pg_get_constraintdef(k.oid) FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname NOT IN ('alembic_version', 'migration_lock')
"""
INDEXES = "SELECT tablename, indexdef, '' FROM pg_indexes WHERE schemaname = $1 AND tablename NOT IN ('alembic_version', 'migration_lock')"
OPTIONS = """
SELECT c.relname, c.reloptions::text, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname NOT LIKE 'alembic%' AND c.relname NOT LIKE 'migration_lock%'
"""


BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def described(url: str) -> list[set[tuple[object, ...]]]:
    connection = await asyncpg.connect(url)
    try:
        return [{tuple(row) for row in await connection.fetch(query, SCHEMA)} for query in (COLUMNS, CONSTRAINTS, INDEXES, OPTIONS)]
    finally:
        await connection.close()


async def test_migrations_give_what_the_metadata_describes(database: str, empty_database: str) -> None:
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(empty_database), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        await connection.run_sync(metadata.create_all)
    await engine.dispose()
    migrated, wanted = await described(database), await described(empty_database)
    for have, want in zip(migrated, wanted, strict=True):
        assert have == want


async def test_five_processes_that_start_together_migrate_once(empty_database: str) -> None:
    """REQ-30, REQ-43."""
    program = "import sys; from agiwo.store.migrate import upgrade; upgrade(sys.argv[1]); upgrade(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": str(APP)}
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", program, empty_database, env=environment, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(5)
    ]
    for process in started:
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    connection = await asyncpg.connect(empty_database)
    try:
        assert await connection.fetch(f"SELECT version_num FROM {SCHEMA}.alembic_version") == [(migrate.head(),)]
        assert await connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.migration_lock") == 1
    finally:
        await connection.close()


async def test_who_waits_for_the_lock_goes_on_when_the_holder_is_gone(empty_database: str) -> None:
    """REQ-43."""
    await asyncio.to_thread(migrate.upgrade, empty_database)
    holder = await asyncpg.connect(empty_database)
    watcher = await asyncpg.connect(empty_database)
    try:
        await holder.execute("BEGIN")
        await holder.execute(f"SELECT one FROM {SCHEMA}.migration_lock FOR UPDATE")
        waiting = asyncio.create_task(asyncio.to_thread(migrate.upgrade, empty_database))
        while not await watcher.fetchval(BLOCKED):
            assert not waiting.done()
        await watcher.execute("SELECT pg_terminate_backend($1)", holder.get_server_pid())
        await waiting
    finally:
        holder.terminate()
        await watcher.close()


async def test_the_revision_of_a_database_can_be_asked(database: str, empty_database: str) -> None:
    assert await migrate.current(database) == migrate.head()
    assert await migrate.current(empty_database) is None


async def test_a_database_of_a_newer_release_is_left_alone(database: str) -> None:
    connection = await asyncpg.connect(database)
    try:
        await connection.execute(f"UPDATE {SCHEMA}.alembic_version SET version_num = '9999'")
        await asyncio.to_thread(migrate.upgrade, database)
        assert await migrate.current(database) == "9999"
    finally:
        await connection.close()


async def test_large_columns_are_compressed_by_lz4_where_the_server_can(database: str) -> None:
    connection = await asyncpg.connect(database)
    try:
        able = await connection.fetchval("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        for table, column in COMPRESSED:
            method = await connection.fetchval(
                "SELECT attcompression FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2", f"{SCHEMA}.{table}", column
            )
            assert method == (b"l" if able else b"\x00")
    finally:
        await connection.close()
