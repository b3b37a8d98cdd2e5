"""Leases on groups of shards in a real Redis-compatible server: fair shares, no thrash, and nothing that waits for a lost server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from agiwo.ids import SHARDS
from agiwo.leases.redis_leases import GROUPS, RedisShardLeases
from agiwo.leases.redis_link import RedisLink
from agiwo.testing.servers import RedisServer

Make = Callable[..., Awaitable[list[RedisShardLeases]]]


@pytest.fixture
async def nodes(redis_url: str) -> AsyncIterator[Make]:
    """Makes nodes that have met: each has renewed until nothing moved any more."""
    links: list[RedisLink] = []

    async def make(number: int, lease: float = 1000.0) -> list[RedisShardLeases]:
        made = []
        for _ in range(number):
            links.append(RedisLink(redis_url, timeout=2.0))
            made.append(RedisShardLeases(links[-1], lease=lease))
        return made

    yield make
    for link in links:
        await link.close()


async def rounds(nodes: Sequence[RedisShardLeases], number: int = 3) -> None:
    for _ in range(number):
        for node in nodes:
            await node.renew(True)


def shares(nodes: Sequence[RedisShardLeases]) -> list[int]:
    """How many groups each has; no shard is held twice."""
    held = [shard for node in nodes for shard in node.shards or ()]
    assert len(held) == len(set(held))
    return sorted(node.groups for node in nodes)


async def test_groups_are_spread_fairly_as_nodes_come_and_go(nodes: Make) -> None:
    three = await nodes(3)
    await rounds(three[:1])
    assert three[0].shards == frozenset(range(SHARDS))
    await rounds(three)
    assert shares(three) == [10, 11, 11]
    fourth = await nodes(1)
    await rounds([*three, *fourth])
    assert shares([*three, *fourth]) == [8, 8, 8, 8]
    await three[0].renew(False)
    assert (three[0].groups, three[0].shards) == (0, frozenset())
    await rounds([*three[1:], *fourth])
    assert shares([*three[1:], *fourth]) == [10, 11, 11]


async def test_groups_that_nobody_has_to_give_stay_where_they_are(nodes: Make) -> None:
    four = await nodes(4)
    await rounds(four)
    before = [node.shards for node in four]
    await rounds(four, 10)
    assert [node.shards for node in four] == before
    await four[3].renew(False)
    await rounds(four[:3])
    kept = [len(set(old or ()) & set(node.shards or ())) for old, node in zip(before, four[:3], strict=False)]
    assert kept == [64, 64, 64], "a group was moved between two that stayed"


async def test_a_node_that_is_new_claims_everywhere_until_it_has_its_share(nodes: Make) -> None:
    one, other = await nodes(2)
    assert one.shards is None
    await one.renew(True)
    assert one.shards is None
    await one.renew(True)
    assert one.groups == GROUPS
    await other.renew(True)
    assert other.shards is None
    await rounds([one, other], 2)
    assert shares([one, other]) == [16, 16]


async def test_after_a_loss_of_all_data_everybody_keeps_what_he_had(nodes: Make) -> None:
    """REQ-35: fail-over to a server that knows nothing."""
    three = await nodes(3)
    await rounds(three)
    before = [node.shards for node in three]
    await three[0]._link.client.flushall()
    await rounds(three, 1)
    assert [node.shards for node in three] == before
    await rounds(three)
    assert [node.shards for node in three] == before


async def test_the_groups_of_a_node_that_is_gone_are_taken_when_its_lease_is_over(nodes: Make) -> None:
    one, gone = await nodes(2, lease=0.3)
    while one.groups != 16 or gone.groups != 16:
        await rounds([one, gone], 1)
    while one.groups < GROUPS:
        await one.renew(True)
    await gone.renew(True)  # it is new again, and what it held is another's
    assert gone.groups == 0


async def test_without_the_server_everything_may_be_claimed_and_with_it_leases_count_again(redis_server: RedisServer, nodes: Make) -> None:
    one, other = await nodes(2)
    await rounds([one, other])
    await asyncio.to_thread(redis_server.stop)
    await rounds([one, other], 1)
    assert (one.shards, other.shards) == (None, None)
    await asyncio.to_thread(redis_server.start)
    while one.shards is None or other.shards is None:
        await rounds([one, other], 1)
    assert shares([one, other]) == [16, 16]


async def test_the_keys_of_the_script_stand_in_one_slot_and_end_by_themselves(nodes: Make) -> None:
    (one,) = await nodes(1)
    await rounds([one])
    client = one._link.client
    keys = [key.decode() for key in await client.keys("*")]
    assert keys
    assert {key[: key.index("}") + 1] for key in keys} == {"{agw:leases}"}
    assert all([await client.pttl(key) > 0 for key in keys])


async def test_a_question_that_is_cancelled_at_any_moment_is_cancelled(redis_url: str) -> None:
    """The client takes some cancellations for its own; a node whose loop asks just then would never stop."""
    link = RedisLink(redis_url)
    leases = RedisShardLeases(link)
    await leases.renew(True)
    cut = 0
    for steps in range(40):
        asking = asyncio.create_task(leases.renew(True))
        for _ in range(steps % 10):
            await asyncio.sleep(0)
        if not asking.cancel():
            continue
        await asyncio.wait((asking,))
        assert asking.cancelled(), steps
        cut += 1
    assert cut > 10
    await leases.renew(True)
    assert leases.shards is not None
    await link.close()
