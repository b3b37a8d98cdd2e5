"""What the ledger of calls of models promises, in one suite: on a real Postgres, and in memory."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from agiwo.clock import SystemClock
from agiwo.ids import uuid7
from agiwo.ports.store import Answer, InstanceStore, NewInstance, UsageRow, Write, WriteKind
from agiwo.ports.usage import UsageFilter, UsageGroup, UsagePlace, UsageQueries, UsageTotals
from agiwo.store.memory import MemoryDatabase, MemoryStore
from agiwo.store.memory_usage import MemoryUsage
from agiwo.store.pool import service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.schema import SCHEMA, metadata
from agiwo.store.usage import PostgresUsage

NOON = 1_780_000_000.0 // 86400 * 86400 + 43200
ROW = UsageRow(
    path="ask", attempt=1, number=1, workflow="w", at=NOON, purpose="main", profile="default", kind="openai", model_asked="m",
    model_answered="m-1", input_tokens=100, output_tokens=10, cache_read_tokens=40, cache_write_tokens=0, reasoning_tokens=3,
    cost_micro_usd=2**40, price_version="2026-11-01", status="ok", latency_ms=12, request_id="r",
)  # fmt: skip


@dataclass
class World:
    """A node that writes, and the reads beside it."""

    node: InstanceStore
    reads: UsageQueries


@pytest.fixture(params=["postgres", "memory"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        shared = MemoryDatabase()
        store: Any = MemoryStore(shared)
        await store.join("n1")
        yield World(store, MemoryUsage(shared))
        await store.close()
        return
    url = request.getfixturevalue("module_database")
    connection = await asyncpg.connect(url)
    await connection.execute("TRUNCATE " + ", ".join(f"{SCHEMA}.{table.name}" for table in metadata.sorted_tables))
    await connection.close()
    engine = service_engine(url)
    store = PostgresStore(url)
    await store.join("n1")
    yield World(store, PostgresUsage(engine))
    await store.close()
    await engine.dispose()


async def written(world: World, *rows: UsageRow, tenant: str = "acme") -> Write:
    id = uuid7(SystemClock().now(), secrets.randbits(66), 7)
    new = NewInstance("w", "1", "hash", "trace")
    write = Write(WriteKind.NEW, id, tenant, 1, 0, 1, '[{"seq":1}]', SystemClock().now(), "RUNNING", new=new, usage=rows)
    (verdict,) = await world.node.write([write])
    assert verdict.answer is Answer.APPLIED
    return write


async def test_a_row_comes_back_as_it_was_written_with_the_write(world: World) -> None:
    unknown = replace(
        ROW, number=2, at=NOON + 1, model_answered=None, input_tokens=None, output_tokens=None, cache_read_tokens=None,
        cache_write_tokens=None, reasoning_tokens=None, cost_micro_usd=None, price_version=None, status="Unavailable", latency_ms=None,
        request_id=None,
    )  # fmt: skip
    write = await written(world, unknown, ROW)
    assert await world.reads.usage("acme", write.id, None, 10) == [ROW, unknown]
    assert await world.reads.usage_totals("acme", write.id) == UsageTotals(2, 1, 100, 10, 40, 0, 3, 2**40, 1)


async def test_rows_of_a_step_are_written_once_however_often_they_are_told(world: World) -> None:
    write = await written(world, ROW)
    step = replace(write, kind=WriteKind.STEP, new=None, prev_seq=1, seq=2, records='[{"seq":2}]', usage=(ROW, replace(ROW, number=2)))
    for _ in range(2):
        (verdict,) = await world.node.write([step])
        assert verdict.answer is Answer.APPLIED
    assert [row.number for row in await world.reads.usage("acme", write.id, None, 10)] == [1, 2]


async def test_a_write_that_is_refused_leaves_no_row(world: World) -> None:
    write = await written(world)
    late = replace(write, kind=WriteKind.STEP, new=None, prev_seq=7, seq=8, records='[{"seq":8}]', usage=(ROW,))
    (verdict,) = await world.node.write([late])
    assert verdict.answer is Answer.FENCED
    assert await world.reads.usage("acme", write.id, None, 10) == []


async def test_pages_meet_without_gap_and_another_tenant_sees_nothing(world: World) -> None:
    rows = [replace(ROW, path=path, attempt=attempt, number=number) for path in ("a", "b") for attempt in (1, 2) for number in (1, 2)]
    write = await written(world, *reversed(rows))
    seen: list[UsageRow] = []
    after: UsagePlace | None = None
    while page := await world.reads.usage("acme", write.id, after, 3):
        seen += page
        after = UsagePlace(page[-1].at, page[-1].path, page[-1].attempt, page[-1].number)
    assert seen == rows
    assert await world.reads.usage("other", write.id, None, 10) == []
    assert await world.reads.usage_totals("other", write.id) == UsageTotals()
    assert await world.reads.usage_totals("acme", UUID(int=7)) == UsageTotals()


async def test_totals_are_by_day_in_utc_by_workflow_and_profile(world: World) -> None:
    midnight = NOON + 43200
    await written(world, ROW, replace(ROW, number=2, at=midnight - 0.001), replace(ROW, number=3, at=midnight, cost_micro_usd=None))
    await written(world, replace(ROW, profile="claude"), replace(ROW, number=2, workflow="Äther"))
    await written(world, replace(ROW, cost_micro_usd=1), tenant="other")
    wanted = UsageFilter(NOON, midnight + 1)
    found = await world.reads.usage_by_day("acme", wanted, None, 10)
    days = [
        (group.day[-2:], group.workflow, group.profile, totals.calls, totals.cost_micro_usd, totals.unpriced) for group, totals in found
    ]
    first, second = found[0][0].day[-2:], found[-1][0].day[-2:]
    assert days == [
        (first, "w", "claude", 1, 2**40, 0),
        (first, "w", "default", 2, 2**41, 0),
        (first, "Äther", "default", 1, 2**40, 0),
        (second, "w", "default", 1, None, 1),
    ]
    pages: list[Any] = []
    after: UsageGroup | None = None
    while page := await world.reads.usage_by_day("acme", wanted, after, 1):
        pages += page
        after = page[-1][0]
    assert pages == found
    assert await world.reads.usage_by_day("acme", UsageFilter(NOON, midnight, "w", "claude"), None, 10) == found[:1]
