"""Hints over a real Redis-compatible server, which is taken away in the middle and comes back empty."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from agiwo.leases import redis_wakeup
from agiwo.leases.redis_wakeup import CHANNEL, RedisWakeup
from agiwo.testing.servers import RedisServer


async def listen(wakeup: RedisWakeup, heard: asyncio.Queue[UUID]) -> None:
    async for id in wakeup.hear():
        heard.put_nowait(id)


async def test_a_hint_reaches_another_process_once_however_often_it_is_told(redis_url: str) -> None:
    one, other = RedisWakeup(redis_url), RedisWakeup(redis_url)
    heard: asyncio.Queue[UUID] = asyncio.Queue()
    task = asyncio.create_task(listen(other, heard))
    await other.listening.wait()
    first, second = uuid4(), uuid4()
    for id in (first, first, first, second):
        one.tell(id)
    assert [await heard.get(), await heard.get()] == [first, second]
    assert heard.empty()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await one.close()
    await other.close()


async def test_what_is_none_of_ours_on_the_channel_is_passed_over(redis_url: str) -> None:
    wakeup = RedisWakeup(redis_url)
    heard: asyncio.Queue[UUID] = asyncio.Queue()
    task = asyncio.create_task(listen(wakeup, heard))
    await wakeup.listening.wait()
    id = uuid4()
    async with Redis.from_url(redis_url) as client:
        await client.publish(CHANNEL, b"nonsense")
        await client.publish(CHANNEL, id.bytes)
    assert await heard.get() == id
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await wakeup.close()


async def test_without_the_server_nothing_raises_and_with_it_all_goes_on(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_wakeup, "AGAIN", 0.02)
    lost: asyncio.Queue[str] = asyncio.Queue()
    wakeup = RedisWakeup(redis_url, lost=lost.put_nowait)
    heard: asyncio.Queue[UUID] = asyncio.Queue()
    task = asyncio.create_task(listen(wakeup, heard))
    await wakeup.listening.wait()
    await asyncio.to_thread(redis_server.stop)
    try:
        wakeup.tell(uuid4())
        assert await lost.get()
        wakeup.tell(uuid4())
    finally:
        await asyncio.to_thread(redis_server.start)
    while not wakeup.listening.is_set():
        await wakeup.listening.wait()
    id = uuid4()
    wakeup.tell(id)
    assert await heard.get() == id
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await wakeup.close()
