"""What nodes tell each other over a real Redis-compatible server, which is taken away, frozen and emptied in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from agiwo.clock import SystemClock
from agiwo.definition.contract import Breaker
from agiwo.errors import Failure, StepError
from agiwo.executors.breakers import Breakers
from agiwo.leases import redis_channel, redis_link
from agiwo.leases.local_rates import LocalRateLimits
from agiwo.leases.redis_leases import GROUPS, RedisShardLeases
from agiwo.leases.redis_link import RedisAway, RedisLink
from agiwo.leases.redis_news import CHANNEL as CIRCUITS
from agiwo.leases.redis_news import RedisBreakerNews
from agiwo.leases.redis_pauses import CHANNEL as PAUSES
from agiwo.leases.redis_pauses import RedisPauses
from agiwo.leases.redis_progress import RedisProgress
from agiwo.leases.redis_wakeup import CHANNEL, RedisWakeup
from agiwo.models.limits import LocalModelLimits
from agiwo.ports.breakers import OPEN, BreakerChange, Circuit
from agiwo.ports.model_limits import Allowance
from agiwo.testing.servers import RedisServer
from kit.engine import TestClock, until

Changes = asyncio.Queue[bool]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is waited for comes sooner."""
    monkeypatch.setattr(redis_link, "SHORTEST", 0.02)
    monkeypatch.setattr(redis_link, "LONGEST", 0.1)
    monkeypatch.setattr(redis_channel, "SILENCE", 0.1)
    monkeypatch.setattr(redis_channel, "PONG", 0.1)


@pytest.fixture
async def link(redis_url: str, changes: Changes) -> AsyncIterator[RedisLink]:
    made = RedisLink(redis_url, changed=lambda up, reason: changes.put_nowait(up), timeout=0.2)
    yield made
    await made.close()


@pytest.fixture
def changes() -> Changes:
    return asyncio.Queue()


@asynccontextmanager
async def hearing(part: Any, put: Callable[[Any], None]) -> AsyncIterator[None]:
    """What the part hears is put there meanwhile."""

    async def listen() -> None:
        async for one in part.hear():
            put(one)

    task = asyncio.create_task(listen())
    await part.listening.wait()
    yield
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await part.close()


async def test_a_hint_reaches_another_process_once_however_often_it_is_told(link: RedisLink, redis_url: str) -> None:
    heard: asyncio.Queue[UUID] = asyncio.Queue()
    one, elsewhere = RedisWakeup(link), RedisLink(redis_url)
    async with hearing(RedisWakeup(elsewhere), heard.put_nowait):
        first, second = uuid4(), uuid4()
        for id in (first, first, first, second):
            one.tell(id)
        assert [await heard.get(), await heard.get()] == [first, second]
        assert heard.empty()
    await one.close()
    await elsewhere.close()


async def test_what_is_none_of_ours_on_the_channels_is_passed_over(link: RedisLink) -> None:
    hints: asyncio.Queue[UUID] = asyncio.Queue()
    news: asyncio.Queue[BreakerChange] = asyncio.Queue()
    id, change = uuid4(), BreakerChange(Circuit("default", "crm.find", "host"), OPEN, 30.0, {"type": "Timeout", "message": "late"})
    circuits = RedisBreakerNews(link)
    async with hearing(RedisWakeup(link), hints.put_nowait), hearing(circuits, news.put_nowait):
        await link.client.publish(CHANNEL, b"nonsense")
        await link.client.publish(CHANNEL, id.bytes)
        for nonsense in (b"\xff", b"[]", b"{}", b'{"tenant":1,"name":"a","key":"","state":"open","seconds":1,"error":null}'):
            await link.client.publish(CIRCUITS, nonsense)
        await link.client.publish(CIRCUITS, b'{"tenant":"t","name":"a","key":"","state":"open","seconds":1e99,"error":null}')
        circuits.tell(change)
        assert await hints.get() == id
        assert await news.get() == change


@pytest.mark.usefixtures("soon")
async def test_without_the_server_nothing_raises_and_with_it_all_goes_on(
    redis_server: RedisServer, link: RedisLink, changes: Changes
) -> None:
    heard: asyncio.Queue[UUID] = asyncio.Queue()
    wakeup = RedisWakeup(link)
    async with hearing(wakeup, heard.put_nowait):
        await asyncio.to_thread(redis_server.stop)
        try:
            wakeup.tell(uuid4())
            assert not await changes.get()
            wakeup.tell(uuid4())
        finally:
            await asyncio.to_thread(redis_server.start)
        while not wakeup.listening.is_set():
            await wakeup.listening.wait()
        assert await changes.get()
        id = uuid4()
        wakeup.tell(id)
        assert await heard.get() == id
    assert changes.empty(), "each change is told once"


@pytest.mark.usefixtures("soon")
async def test_a_frozen_server_is_noticed_holds_nobody_up_and_is_used_again_when_it_goes_on(
    redis_server: RedisServer, link: RedisLink, changes: Changes
) -> None:
    """REQ-35: half-open connections."""
    heard: asyncio.Queue[UUID] = asyncio.Queue()
    wakeup = RedisWakeup(link)
    async with hearing(wakeup, heard.put_nowait):
        redis_server.freeze()
        try:
            assert not await changes.get()  # by the silence alone
            gap = link.gap
            asked = 0
            for _ in range(1000):
                with pytest.raises(RedisAway):
                    await link.ask(lambda redis: redis.get("a"))
                asked += 1
            assert (asked, link.up) == (1000, False)
            assert link.gap >= gap
        finally:
            redis_server.thaw()
        assert await changes.get()
        while not wakeup.listening.is_set():
            await wakeup.listening.wait()
        id = uuid4()
        wakeup.tell(id)
        assert await heard.get() == id


async def test_a_server_that_became_a_replica_counts_as_away_and_is_asked_over_a_new_connection(
    redis_server: RedisServer, redis_url: str, link: RedisLink, changes: Changes
) -> None:
    """REQ-35: what a fail-over leaves behind answers, and takes nothing any more."""
    leases = RedisShardLeases(link, lease=1000.0)
    async with Redis.from_url(redis_url) as client:
        for _ in range(2):
            await leases.renew(True)
        assert leases.groups == GROUPS
        number = await link.ask(lambda redis: redis.client_id())
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            await leases.renew(True)
            assert leases.shards is None
            assert not await changes.get()
        finally:
            await client.execute_command("REPLICAOF", "NO", "ONE")
        while leases.shards is None:
            await leases.renew(True)
        assert await link.ask(lambda redis: redis.client_id()) != number


@pytest.mark.usefixtures("soon")
async def test_late_answers_of_a_frozen_server_are_nobodys(redis_server: RedisServer, link: RedisLink) -> None:
    await link.ask(lambda redis: redis.echo("warm"))
    redis_server.freeze()
    try:
        for _ in range(3):
            with pytest.raises(RedisAway):
                await link.ask(lambda redis: redis.echo("late"))
    finally:
        redis_server.thaw()
    for n in range(50):
        while True:
            try:
                assert await link.ask(partial(_echo, str(n))) == str(n).encode()
                break
            except RedisAway:
                await asyncio.sleep(0)


async def _echo(word: str, redis: Redis) -> object:
    return await redis.echo(word)


async def test_an_opening_reaches_another_node_and_a_closing_too(link: RedisLink, redis_url: str) -> None:
    elsewhere = RedisLink(redis_url)
    here, there = RedisBreakerNews(link), RedisBreakerNews(elsewhere)
    one, other = Breakers(SystemClock(), news=here), Breakers(SystemClock(), news=there)
    listening = asyncio.create_task(other.listen())
    await there.listening.wait()
    circuit = Circuit("default", "crm.find", "crm.example.com")
    one.trip(circuit, 600.0, "maintenance")
    await until(other.standing)
    refused = other.admit(circuit, Breaker())
    assert isinstance(refused, Failure) and refused.type == "CircuitOpen"
    one.reset(circuit)
    await until(lambda: not other.standing())
    assert not isinstance(other.admit(circuit, Breaker()), Failure)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    for news in (here, there):
        await news.close()
    await elsewhere.close()


async def test_a_pause_that_a_model_asked_of_one_node_is_kept_by_the_other(link: RedisLink, redis_url: str) -> None:
    """REQ-12: other steps do not hammer the endpoint meanwhile."""
    elsewhere = RedisLink(redis_url)
    here, there = RedisPauses(link), RedisPauses(elsewhere)
    clock = TestClock()
    one, other = (LocalModelLimits(clock, Random(1), LocalRateLimits(clock), news=news) for news in (here, there))
    listening = asyncio.create_task(other.listen())
    await there.listening.wait()
    for nonsense in (b"\xff", b"12", b"1e3 p/m", b"99999999999 p/m", b" p/m"):
        await link.client.publish(PAUSES, nonsense)
    one.cool_down("p/m", 30.5)
    await until(lambda: other._pauses)
    with pytest.raises(StepError) as held_back:
        async with other.call("p/m", Allowance(), 1, 1.0):
            pass
    assert held_back.value.retry_after is not None and held_back.value.retry_after >= 30
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    for news in (here, there):
        await news.close()
    await elsewhere.close()


async def test_progress_wakes_who_follows_and_tells_of_an_instance_what_was_last(link: RedisLink, redis_url: str) -> None:
    elsewhere = RedisLink(redis_url)
    teller, hearer = RedisProgress(link), RedisProgress(elsewhere)
    listening = asyncio.create_task(hearer.listen())
    await hearer.listening.wait()
    followed, other = uuid4(), uuid4()
    follower, second = hearer.follow(followed), hearer.follow(followed)
    for seq in (3, 4, 5):
        teller.tell(followed, seq)
    teller.tell(other, 9)
    async with asyncio.timeout(30):
        await follower.beyond(4, 1000.0)
        await second.beyond(2, 1000.0)
        await second.beyond(4, 1000.0)
    async with Redis.from_url(redis_url) as client:
        await client.publish("agw:live", b"nonsense")
    await follower.beyond(5, 0.01)  # nothing came: only the wait ends it
    follower.close()
    second.close()
    assert not hearer._followers
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    for part in (teller, hearer):
        await part.close()
    await elsewhere.close()
