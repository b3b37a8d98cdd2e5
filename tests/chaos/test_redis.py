"""Two nodes under a load while Redis is emptied, frozen, taken away and demoted in random order. `make chaos` prints the figures.

CHAOS_SEED repeats a run, CHAOS_REDIS_FAULTS changes its length.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from random import Random, SystemRandom

import pytest
from redis.asyncio import Redis

from agiwo.engine.events import Happening
from agiwo.testing.servers import RedisServer
from kit.measure import emit
from kit.pair import Pair, pair

FAULTS = int(os.environ.get("CHAOS_REDIS_FAULTS", "20"))
EACH = 12  # instances begun at each fault
LONGEST = 4.0  # seconds of a fault

Fault = Callable[[RedisServer, float], Awaitable[None]]


async def flush(server: RedisServer, seconds: float) -> None:
    async with Redis.from_url(server.url) as client:
        await client.flushall()


async def freeze(server: RedisServer, seconds: float) -> None:
    server.freeze()
    try:
        await asyncio.sleep(seconds)
    finally:
        server.thaw()


async def restart(server: RedisServer, seconds: float) -> None:
    await asyncio.to_thread(server.stop)
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(server.start)


async def demote(server: RedisServer, seconds: float) -> None:
    async with Redis.from_url(server.url) as client:
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            await asyncio.sleep(seconds)
        finally:
            await client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.slow
@pytest.mark.timeout(120 + 15 * FAULTS)
async def test_whatever_redis_does_nothing_is_lost_and_nothing_is_done_twice(database: str, redis_server: RedisServer) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or SystemRandom().randrange(1_000_000))
    print(f"\nCHAOS_SEED={seed}", flush=True)
    random, began = Random(seed), time.monotonic()
    faults: list[Fault] = [flush, freeze, restart, demote]
    async with pair(database, redis_server) as made:
        for _ in range(FAULTS):
            fault = asyncio.create_task(random.choice(faults)(redis_server, random.uniform(0.1, LONGEST)))
            await made.begin(EACH)
            await asyncio.gather(fault, _most(made))
        await made.ended(len(made.begun))
        await made.shared()
        await made.check()
        gaps = [round(node.link.gap, 2) for node in made.nodes]
        emit("redis faults", f"{FAULTS} faults", instances=len(made.begun), seconds=time.monotonic() - began, gaps=gaps, claims=made.claims)


async def _most(made: Pair) -> None:
    """Return when all but the last few have ended, so that every fault meets some under way."""
    while len(made.moments.all(Happening.ENDED)) < len(made.begun) - EACH // 2:
        await made.moments.next(Happening.ENDED)
