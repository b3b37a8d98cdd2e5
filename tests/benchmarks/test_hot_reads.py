"""What a snapshot in Redis would save of `GET /instances/{id}`: today's read, beside one that must still ask Postgres for the number.

A snapshot may only be shown if it is no older than what the caller has seen, and only the row says so. `make bench` prints the figures.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from uuid import UUID

from redis.asyncio import Redis
from sqlalchemy import text

from agiwo.service.instances import rebuilt
from agiwo.service.view import instance_view
from agiwo.store.pool import service_engine
from agiwo.store.queries import PostgresQueries
from agiwo.testing.servers import RedisServer
from agiwo.values import encode
from kit.measure import emit
from kit.pair import FLOW, pair

READS = 1000
TENANT = "default"


async def test_a_read_from_the_storage_beside_one_from_redis(database: str, redis_server: RedisServer, redis_url: str) -> None:
    async with pair(database, redis_server) as made:
        await made.begin(1)
        await made.ended(1)
        (id,) = made.begun
    pool = service_engine(database)
    queries = PostgresQueries(pool)
    redis = Redis.from_url(redis_url)

    async def from_storage() -> int:
        stored = await queries.state(TENANT, id)
        assert stored is not None
        return len(encode(instance_view(rebuilt(FLOW, TENANT, stored), stored.row)))

    stored = await queries.state(TENANT, id)
    assert stored is not None
    await redis.set("view", encode(instance_view(rebuilt(FLOW, TENANT, stored), stored.row)))

    async def from_redis() -> int:
        async with pool.connect() as connection:
            await connection.execute(text("SELECT max(seq) FROM agiwo.history WHERE shard = :s AND instance_id = :i"), _key(id))
        return len(await redis.get("view"))

    assert await from_storage() == await from_redis()
    slow, quick = await _seconds(from_storage), await _seconds(from_redis)
    emit("hot read", "view of an ended instance", storage_us=slow / READS * 1e6, redis_us=quick / READS * 1e6, ratio=slow / quick)
    await redis.aclose()
    await pool.dispose()


def _key(id: UUID) -> dict[str, object]:
    return {"s": id.bytes[7], "i": id}


async def _seconds(read: Callable[[], Awaitable[int]]) -> float:
    start = time.perf_counter()
    for _ in range(READS):
        await read()
    return time.perf_counter() - start
