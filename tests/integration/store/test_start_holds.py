"""A hold on new starts against writes that are under way: it waits for them, they for it, and neither reads nor backups are in its way."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest

from agiwo.clock import SystemClock
from agiwo.ids import uuid7
from agiwo.ports.store import Answer, NewInstance, StoreUnavailable, Write, WriteKind
from agiwo.store import columns
from agiwo.store.pool import service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.statements import STATEMENTS
from agiwo.store.workflows import PostgresWorkflows

TENANT = "acme"


@pytest.fixture
async def workflows(database: str) -> AsyncIterator[PostgresWorkflows]:
    engine = service_engine(database)
    yield PostgresWorkflows(engine)
    await engine.dispose()


@pytest.fixture
async def node(database: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(database)
    await store.join("n1")
    yield store
    await store.close()


def first(workflow: str = "weekly") -> Write:
    at = SystemClock().now()
    new = NewInstance(workflow, "1.0", "hash", "trace")
    id = uuid7(at, secrets.randbits(66), 7)
    return Write(WriteKind.NEW, id, TENANT, epoch=1, prev_seq=0, seq=1, records='[{"seq":1}]', at=at, status="RUNNING", new=new)


async def waits_for_its_lock(database: str) -> None:
    """Until Postgres itself says that somebody waits for the table of holds."""
    watching = await asyncpg.connect(database)
    try:
        while not await watching.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'agiwo.start_hold'::regclass"):
            pass
    finally:
        await watching.close()


async def test_a_pause_waits_for_first_writes_under_way_and_what_comes_behind_it_is_held_back(
    workflows: PostgresWorkflows, node: PostgresStore, connection: asyncpg.Connection, database: str
) -> None:
    begun = first()
    transaction = connection.transaction()
    await transaction.start()
    made = await connection.fetch(STATEMENTS["write_batch"].text, node.incarnation, *columns.batch([], [begun], lambda id: None))
    assert [row["id"] for row in made] == [begun.id]
    pausing = asyncio.create_task(workflows.pause(TENANT, "weekly", "user:op", None))
    await waits_for_its_lock(database)
    behind = asyncio.create_task(node.write([first()]))
    assert not pausing.done()
    await transaction.commit()
    await pausing
    (verdict,) = await behind
    assert verdict.answer is Answer.HELD_BACK
    assert await connection.fetchval("SELECT count(*) FROM agiwo.instance") == 1


async def test_a_backup_that_reads_every_table_keeps_no_pause_waiting(
    workflows: PostgresWorkflows, node: PostgresStore, connection: asyncpg.Connection
) -> None:
    async with connection.transaction(isolation="repeatable_read"):
        await connection.execute("LOCK TABLE agiwo.start_hold IN ACCESS SHARE MODE")
        await connection.fetch("SELECT * FROM agiwo.start_hold")
        await workflows.pause(TENANT, "weekly", "user:op", None)
        (verdict,) = await node.write([first()])
        assert verdict.answer is Answer.HELD_BACK


async def test_a_pause_that_waits_too_long_says_so_and_holds_nothing_back(
    workflows: PostgresWorkflows, node: PostgresStore, connection: asyncpg.Connection
) -> None:
    hasty = PostgresWorkflows(workflows.engine, patience=0.1)
    async with connection.transaction():
        await connection.execute("LOCK TABLE agiwo.start_hold IN ROW SHARE MODE")
        with pytest.raises(StoreUnavailable, match="did not end within"):
            await hasty.pause(TENANT, "weekly", "user:op", None)
    assert await workflows.hold(TENANT, "weekly") is None
    (verdict,) = await node.write([first()])
    assert verdict.answer is Answer.APPLIED


async def test_a_deletion_that_was_cut_off_in_the_middle_is_finished_by_the_next(
    workflows: PostgresWorkflows, node: PostgresStore, connection: asyncpg.Connection
) -> None:
    await connection.execute(
        "INSERT INTO agiwo.workflow_version (tenant, workflow, version, rank, content_hash, source, document) "
        "VALUES ('acme', 'weekly', '1.0', '10', 'h', 'x', '{}')"
    )
    await connection.execute(STATEMENTS["forbid_versions"].text, TENANT, "weekly", "1.0", "user:op")
    (verdict,) = await node.write([first()])
    assert (verdict.answer, verdict.message) == (Answer.HELD_BACK, "deleted")
    assert (await workflows.delete(TENANT, "weekly", "1.0", "user:op")).versions == ("1.0",)
