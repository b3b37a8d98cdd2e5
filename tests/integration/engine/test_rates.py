"""Rates that nodes count together in a real Redis-compatible server, and what each has while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agiwo.clock import SystemClock
from agiwo.leases.local_rates import LocalRateLimits
from agiwo.leases.redis_link import RedisLink
from agiwo.leases.redis_rates import PARTS, RedisRateLimits
from agiwo.ports.rates import RateLimits
from agiwo.testing.servers import RedisServer

HOUR = 3600


@pytest.fixture
async def two(redis_url: str) -> AsyncIterator[list[RedisRateLimits]]:
    """Two nodes."""
    links = [RedisLink(redis_url, timeout=2.0) for _ in range(2)]
    yield [RedisRateLimits(link, LocalRateLimits(SystemClock(), lambda: 2)) for link in links]
    for link in links:
        await link.close()


async def granted(nodes: list[RedisRateLimits], number: int, limit: int, window: int = HOUR, cost: int = 1) -> int:
    """How many of so many calls at once are let in."""
    waits = await asyncio.gather(*(nodes[n % len(nodes)].acquire("crm", limit, window, cost) for n in range(number)))
    assert all(0 <= wait <= window * (1 + 2 / PARTS) for wait in waits)
    return waits.count(0.0)


async def test_nodes_together_never_have_more_than_the_limit(two: list[RedisRateLimits]) -> None:
    assert await granted(two, 50, 10) == 10
    assert await granted(two, 2, 10) == 0
    assert await two[0].acquire("another", 10, HOUR) == 0.0


async def test_costs_add_up_and_what_is_above_the_limit_counts_as_the_limit(two: list[RedisRateLimits]) -> None:
    assert await granted(two, 10, 1000, cost=300) == 3
    assert await two[0].acquire("large", 1000, HOUR, 5000) == 0.0
    assert await two[1].acquire("large", 1000, HOUR, 1) > 0


async def test_what_was_spent_is_counted_whatever_the_limit_says(two: list[RedisRateLimits]) -> None:
    assert await two[0].acquire("crm", 100, HOUR, 90) == 0.0
    await two[0].charge("crm", 100, HOUR, 500)
    assert await two[1].acquire("crm", 100, HOUR, 1) > 0


async def test_after_the_wait_that_was_told_there_is_room_again(two: list[RedisRateLimits]) -> None:
    assert await granted(two, 5, 5, window=1) == 5
    waits = 0
    while wait := await two[0].acquire("crm", 5, 1):
        waits += 1
        await asyncio.sleep(wait)
    assert waits <= 2, "the wait that was told was too short"


async def test_while_redis_is_away_each_node_has_its_share(two: list[RedisRateLimits], redis_server: RedisServer) -> None:
    await asyncio.to_thread(redis_server.stop)
    try:
        assert await granted(two, 50, 10) == 10
        assert await granted(two[:1], 1, 10) == 0
    finally:
        await asyncio.to_thread(redis_server.start)


@pytest.mark.parametrize(("limit", "nodes", "each"), [(10, 1, 10), (10, 3, 3), (2, 5, 1)])
async def test_a_share_is_rounded_down_and_is_never_nothing(limit: int, nodes: int, each: int) -> None:
    limits: RateLimits = LocalRateLimits(SystemClock(), lambda: nodes)
    waits = [await limits.acquire("crm", limit, HOUR) for _ in range(20)]
    assert waits.count(0.0) == each
    await limits.charge("crm", limit, HOUR, 1000)
    await limits.charge("other", limit, HOUR, 1000)
    assert await limits.acquire("other", limit, HOUR) > 0
