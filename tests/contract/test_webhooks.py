"""What every storage of webhooks and every view of the outbox promises, in one suite: on a real Postgres, and in memory."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from agiwo.clock import SystemClock
from agiwo.ids import uuid7
from agiwo.ports.deliveries import Deliveries
from agiwo.ports.store import InstanceStore, NewInstance, OutboxRow, Write, WriteKind
from agiwo.ports.webhooks import SealedSecret, Subscription, Webhook, WebhookStore
from agiwo.store.deliveries import PostgresDeliveries
from agiwo.store.memory import MemoryDatabase, MemoryStore
from agiwo.store.memory_webhooks import MemoryDeliveries, MemoryWebhooks
from agiwo.store.pool import service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.schema import SCHEMA, metadata
from agiwo.store.webhooks import PostgresWebhooks

TENANT = "acme"


@dataclass
class World:
    webhooks: WebhookStore
    deliveries: Deliveries
    node: InstanceStore


@pytest.fixture(params=["postgres", "memory"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        shared = MemoryDatabase()
        store: Any = MemoryStore(shared)
        await store.join("n1")
        yield World(MemoryWebhooks(), MemoryDeliveries(shared), store)
        return
    url = request.getfixturevalue("module_database")
    connection = await asyncpg.connect(url)
    await connection.execute("TRUNCATE " + ", ".join(f"{SCHEMA}.{table.name}" for table in metadata.sorted_tables))
    await connection.close()
    engine = service_engine(url)
    store = PostgresStore(url)
    await store.join("n1")
    yield World(PostgresWebhooks(engine), PostgresDeliveries(engine), store)
    await store.close()
    await engine.dispose()


NUMBERS = count()


def fresh() -> UUID:
    """An id that is newer than every one before."""
    return uuid7(SystemClock().now() + next(NUMBERS), secrets.randbits(66), 7)


def webhook(**changes: Any) -> Webhook:
    full = Webhook(
        fresh(),
        TENANT,
        "https://x.example/a?b=c",
        ("instance.*", "step.failed"),
        (SealedSecret("v1.a.b", 1.5), SealedSecret("v1.c.d", 2, 9.25)),
        1000.5,
        1000.5,
        created_by="key:ops",
        workflow="orders",
        description="what it is for",
        header_names=("X-A",),
        headers="v1.e.f",
        include_output=True,
    )
    return replace(full, **changes)


async def test_a_webhook_is_read_back_as_it_was_given(world: World) -> None:
    given = await world.webhooks.add(webhook())
    assert await world.webhooks.get(TENANT, given.id) == given
    assert await world.webhooks.get("other", given.id) is None
    plain = await world.webhooks.add(webhook(workflow=None, description=None, header_names=(), headers=None, include_output=False))
    assert await world.webhooks.listed(TENANT, None, 10) == [plain, given]
    assert await world.webhooks.listed(TENANT, plain.id, 10) == [given]
    assert await world.webhooks.listed(TENANT, None, 1) == [plain]
    assert await world.webhooks.listed("other", None, 10) == []


async def test_every_change_is_news_and_of_two_changes_of_one_revision_one_counts(world: World) -> None:
    seen = {await world.webhooks.news()}
    given = await world.webhooks.add(webhook())
    seen.add(await world.webhooks.news())
    changed = await world.webhooks.change(replace(given, url="https://y.example", active=False, disabled_reason="off"))
    assert changed is not None and changed.revision > given.revision
    assert await world.webhooks.change(replace(given, url="https://z.example")) is None
    assert await world.webhooks.get(TENANT, given.id) == changed
    assert await world.webhooks.change(replace(changed, tenant="other")) is None
    news = await world.webhooks.news()
    assert news not in seen
    assert await world.webhooks.remove("other", given.id) is False
    assert await world.webhooks.remove(TENANT, given.id) is True
    assert await world.webhooks.remove(TENANT, given.id) is False
    assert await world.webhooks.get(TENANT, given.id) is None
    assert await world.webhooks.news() != news


async def test_only_active_webhooks_are_subscriptions(world: World) -> None:
    given = await world.webhooks.add(webhook())
    other = await world.webhooks.add(webhook(tenant="other", workflow=None, include_output=False, events=("*",)))
    await world.webhooks.add(webhook(active=False, disabled_reason="off"))
    found = sorted(await world.webhooks.subscriptions(), key=lambda one: one.tenant)
    assert found == [
        Subscription(given.id, TENANT, ("instance.*", "step.failed"), "orders", True),
        Subscription(other.id, "other", ("*",), None, False),
    ]
    await world.webhooks.disable(TENANT, given.id, "gone")
    await world.webhooks.disable(TENANT, given.id, "again")
    stands = await world.webhooks.get(TENANT, given.id)
    assert stands is not None and (stands.active, stands.disabled_reason) == (False, "gone")
    assert [one.tenant for one in await world.webhooks.subscriptions()] == ["other"]


async def begun(world: World, *rows: OutboxRow) -> Write:
    new = NewInstance("weekly", "1.10", "hash", "trace", correlation_key="o-7", callback_url="https://x.example/done")
    write = Write(
        WriteKind.NEW, fresh(), TENANT, epoch=1, prev_seq=0, seq=2, records='[{"seq":1},{"seq":2}]', at=SystemClock().now(),
        status="RUNNING", new=new, outbox=rows,
    )  # fmt: skip
    await world.node.write([write])
    return write


async def test_the_rows_of_a_write_go_out_in_the_order_of_their_records(world: World) -> None:
    rows = [OutboxRow(fresh(), "webhook", "t", {"n": seq}, seq) for seq in (2, 1)]
    await begun(world, *rows, OutboxRow(fresh(), "webhook", "u", {"n": 9}, 1))
    order = []
    for _ in range(2):
        for item in sorted(await world.node.take_outbox(10, 10), key=lambda item: item.target):
            order.append((item.target, item.body["n"]))
            await world.node.delivered(item.id, 200)
    assert order == [("t", 1), ("u", 9), ("t", 2)]


async def test_deliveries_are_shown_by_target_and_state_and_nobody_elses(world: World) -> None:
    first = await begun(world, OutboxRow(fresh(), "webhook", "t", {"n": 1}, 1), OutboxRow(fresh(), "webhook", "u", {"n": 2}, 2))
    await world.deliveries.post(TENANT, OutboxRow(fresh(), "webhook", "t", {"n": 3}))
    listed = world.deliveries.listed
    found = await listed(TENANT, None, None, None, 10)
    assert [one.body["n"] for one in found] == [3, 2, 1]
    assert [one.id for one in await listed(TENANT, None, None, found[0].id, 1)] == [found[1].id]
    assert [one.body["n"] for one in await listed(TENANT, "t", None, None, 10)] == [3, 1]
    assert await listed("other", None, None, None, 10) == []
    ping, told = found[0], found[2]
    assert (ping.instance, told.instance, told.seq, told.kind, told.state) == (None, first.id, 1, "webhook", "pending")
    taken = {item.body["n"]: item for item in await world.node.take_outbox(10, 10)}
    await world.node.not_delivered(taken[1].id, "no", None, 410)
    await world.node.delivered(taken[2].id, 204)
    dead = await world.deliveries.get(TENANT, taken[1].id)
    assert dead is not None and (dead.state, dead.last_status, dead.last_error, dead.tries) == ("dead", 410, "no", 1)
    assert dead.settled_at is not None and not dead.under_way
    under_way = await world.deliveries.get(TENANT, taken[3].id)
    assert under_way is not None and under_way.under_way
    assert await world.deliveries.get("other", taken[1].id) is None
    assert [one.id for one in await listed(TENANT, None, "dead", None, 10)] == [dead.id]


async def test_a_dead_and_a_made_delivery_can_be_sent_again_and_one_under_way_cannot(world: World) -> None:
    await begun(world, *(OutboxRow(fresh(), "webhook", f"t{n}", {"n": n}, 1) for n in range(4)))
    taken = {item.body["n"]: item for item in await world.node.take_outbox(10, 10)}
    await world.node.not_delivered(taken[0].id, "no", None)
    await world.node.delivered(taken[1].id, 200)
    await world.node.not_delivered(taken[2].id, "later", 9_000_000_000.0)
    assert await world.deliveries.again(TENANT, taken[3].id) is None
    assert await world.deliveries.again("other", taken[0].id) is None
    assert await world.deliveries.again(TENANT, fresh()) is None
    for n in range(3):
        again = await world.deliveries.again(TENANT, taken[n].id)
        assert again is not None and (again.state, again.settled_at) == ("pending", None)
    assert {item.body["n"]: item.tries for item in await world.node.take_outbox(10, 10)} == {0: 1, 1: 1, 2: 2}


async def test_a_claim_brings_what_the_trigger_said_of_correlation_and_callback(world: World) -> None:
    write = await begun(world)
    await world.node.release([write.id])
    (claimed,) = await world.node.claim(10)
    assert (claimed.correlation_key, claimed.callback_url) == ("o-7", "https://x.example/done")
