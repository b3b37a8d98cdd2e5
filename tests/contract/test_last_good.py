"""What every storage of last good results promises: on a real Postgres, and in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from agiwo.clock import SystemClock
from agiwo.ports.last_good import CallDigest, GoodResult, LastGood
from agiwo.store.last_good import PostgresLastGood
from agiwo.store.memory_last_good import MemoryLastGood
from agiwo.store.pool import connected, service_engine
from agiwo.store.statements import STATEMENTS

NOW = SystemClock().now()


@pytest.fixture(params=["postgres", "memory"])
async def kept(request: pytest.FixtureRequest) -> AsyncIterator[LastGood]:
    if request.param == "memory":
        yield MemoryLastGood()
        return
    engine = service_engine(request.getfixturevalue("module_database"))
    yield PostgresLastGood(engine)
    await engine.dispose()


@pytest.fixture
def call() -> CallDigest:
    return CallDigest("acme", "http.request", uuid4().hex)


async def test_a_result_is_found_until_it_is_too_old(kept: LastGood, call: CallDigest) -> None:
    assert await kept.find(call, 0.0) is None
    value = {"big": 10**60, "float": 0.1, "none": None, "text": "ü"}
    await kept.keep(call, GoodResult(value, NOW), 60)
    found = await kept.find(call, NOW - 1)
    assert found is not None
    assert found.result == value
    assert abs(found.at - NOW) < 0.001
    assert await kept.find(call, NOW + 1) is None


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
async def test_nothing_is_a_result_too(kept: LastGood, call: CallDigest, value: object) -> None:
    await kept.keep(call, GoodResult(value, NOW), 60)
    found = await kept.find(call, 0.0)
    assert found is not None
    assert found.result == value
    assert type(found.result) is type(value)


async def test_the_newest_result_stays_whatever_the_order_in_which_they_come(kept: LastGood, call: CallDigest) -> None:
    await kept.keep(call, GoodResult("new", NOW), 3600)
    await kept.keep(call, GoodResult("old", NOW - 5), 3600)
    found = await kept.find(call, 0.0)
    assert found is not None and found.result == "new"
    await kept.keep(call, GoodResult("newer", NOW + 1), 3600)
    found = await kept.find(call, 0.0)
    assert found is not None and found.result == "newer"


async def test_a_result_belongs_to_one_tenant_one_tool_and_its_arguments(kept: LastGood, call: CallDigest) -> None:
    await kept.keep(call, GoodResult(1, NOW), 60)
    for other in (
        CallDigest("other", call.tool, call.digest),
        CallDigest(call.tenant, "t", call.digest),
        CallDigest("acme", call.tool, "d"),
    ):
        assert await kept.find(other, 0.0) is None


async def test_what_nobody_may_ask_for_any_more_is_forgotten(module_database: str, call: CallDigest) -> None:
    engine = service_engine(module_database)
    kept = PostgresLastGood(engine)
    other = CallDigest(call.tenant, call.tool, uuid4().hex)
    await kept.keep(call, GoodResult(1, NOW - 100), 60)
    await kept.keep(other, GoodResult(2, NOW - 100), 600)
    await kept.keep(other, GoodResult(3, NOW - 90), 10)
    async with connected(engine) as connection:
        await connection.exec_driver_sql(STATEMENTS["forget_last_good"].text)
    assert await kept.find(call, 0.0) is None
    found = await kept.find(other, 0.0)
    assert found is not None and found.result == 3, "a step may ask for it for ten minutes"
    await engine.dispose()


async def test_memory_forgets_too(call: CallDigest) -> None:
    kept = MemoryLastGood()
    await kept.keep(call, GoodResult(1, NOW - 100), 60)
    await kept.keep(CallDigest("acme", "t", "d"), GoodResult(2, NOW), 60)
    assert await kept.find(call, 0.0) is None
