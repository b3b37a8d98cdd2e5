"""Redis as it may be: there, absent, emptied, frozen, restarted empty. Whatever it is, all ends well and nothing is done twice.

REQ-35. `tests/chaos/test_redis.py` is the longer form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from agiwo.testing.servers import RedisServer
from kit.pair import CLAIMS, Pair, pair

LOAD = 24

Fault = Callable[[RedisServer], Awaitable[None]]


async def nothing(server: RedisServer) -> None:
    pass


async def flush(server: RedisServer) -> None:
    async with Redis.from_url(server.url) as client:
        await client.flushall()


async def freeze(server: RedisServer) -> None:
    server.freeze()


async def thaw(server: RedisServer) -> None:
    server.thaw()


async def stop(server: RedisServer) -> None:
    await asyncio.to_thread(server.stop)


async def start(server: RedisServer) -> None:
    await asyncio.to_thread(server.start)


async def run(made: Pair, server: RedisServer, fault: Fault, heal: Fault) -> None:
    """A load before, one within, and one after the fault, each while the one before is under way."""
    await made.begin(LOAD)
    await made.ended(LOAD // 4)
    await fault(server)
    try:
        await made.begin(LOAD)
        # Nobody waits for Redis: what was begun before and what is begun now ends while it is away.
        await made.ended(2 * LOAD)
    finally:
        await heal(server)
    await made.begin(LOAD)
    await made.ended(3 * LOAD)
    await made.shared()
    await made.check()


@pytest.mark.parametrize(
    ("fault", "heal", "away"),
    [(nothing, nothing, False), (flush, nothing, False), (freeze, thaw, True), (stop, start, True)],
    ids=["present", "flushed", "frozen", "restarted empty"],
)
async def test_whatever_redis_does_all_ends_well_and_nothing_is_done_twice(
    database: str, redis_server: RedisServer, redis_url: str, fault: Fault, heal: Fault, away: bool
) -> None:
    async with pair(database, redis_server) as made:
        await made.shared()
        await run(made, redis_server, fault, heal)
        for node in made.nodes:
            # Each change is told once, and the numbers show the gap.
            assert node.changes == [False, True] * (len(node.changes) // 2)
            assert not away or (node.changes and node.link.gap > 0)
            assert node.link.up


async def test_without_redis_all_ends_well(database: str) -> None:
    async with pair(database, None) as made:
        await made.begin(LOAD)
        await made.ended(LOAD)
        await made.check()
        assert [node.leases.shards for node in made.nodes] == [None, None]


async def test_with_redis_claims_are_spread_fairly_and_each_node_takes_what_it_holds(
    database: str, redis_server: RedisServer, redis_url: str
) -> None:
    async with pair(database, redis_server, patience=5.0) as made:
        await made.shared()
        await made.begin(2 * LOAD)
        await made.ended(2 * LOAD)
        await made.check()
        assert sum(made.claims) >= CLAIMS * 2 * LOAD
        assert min(made.claims) > 0.25 * sum(made.claims), made.claims
        held = sum(node.store.within[True] for node in made.nodes)
        assert held > 0.5 * sum(made.claims), "most was claimed by others than who held the lease"


async def test_what_a_node_without_room_holds_is_taken_by_the_other(database: str, redis_server: RedisServer, redis_url: str) -> None:
    async with pair(database, redis_server, patience=5.0) as made:
        await made.shared()
        full, other = made.nodes
        full.engine.capacity = 0
        await made.until(lambda: (full.leases.groups, other.leases.groups) == (0, 32))
        await made.begin(LOAD)
        await made.ended(LOAD)
        await made.check()
        assert full.store.within.total() == 0
