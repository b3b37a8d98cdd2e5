"""Deliveries on a real Postgres: what is down holds up nobody else, and what a node had under way another takes over."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from random import Random
from typing import Any

from agiwo.clock import SystemClock
from agiwo.engine.outbox import AT_ONCE, EACH, Outbox
from agiwo.ids import uuid7
from agiwo.ports.store import NewInstance, OutboxRow, Write, WriteKind
from agiwo.store.postgres import PostgresStore


class Dead:
    """A mail server that takes the call and says nothing."""

    def __init__(self) -> None:
        self.begun = 0

    async def deliver(self, target: str, body: Mapping[str, Any]) -> int | None:
        self.begun += 1
        await asyncio.Event().wait()
        return None


class Alive:
    def __init__(self, enough: int) -> None:
        self.seen: list[Any] = []
        self.enough = enough
        self.done = asyncio.Event()

    async def deliver(self, target: str, body: Mapping[str, Any]) -> int | None:
        self.seen.append(body["n"])
        if len(self.seen) >= self.enough:
            self.done.set()
        return 204


async def filled(store: PostgresStore, instances: int, *rows: tuple[str, str]) -> None:
    """Instances that each owe these deliveries: kinds and targets."""
    writes = []
    for n in range(instances):
        made = [OutboxRow(uuid7(n, secrets.randbits(66), 7), kind, target, {"n": n}, 1) for kind, target in rows]
        id = uuid7(SystemClock().now(), secrets.randbits(66), 7)
        new = NewInstance("w", "1", "h", "t")
        writes.append(
            Write(WriteKind.NEW, id, "default", 1, 0, 1, '[{"seq":1}]', SystemClock().now(), "RUNNING", new=new, outbox=tuple(made))
        )
    await store.write(writes)


async def test_a_dead_mail_server_holds_up_no_webhook(database: str) -> None:
    store = PostgresStore(database)
    await store.join("n1")
    await filled(store, 200, ("notice", "mail"), ("webhook", "w1"))
    dead, alive = Dead(), Alive(200)
    box = Outbox(store, {"notice": dead, "webhook": alive}, SystemClock(), Random(1), None)
    running = asyncio.create_task(box.run())
    async with asyncio.timeout(60):
        await alive.done.wait()
    assert sorted(alive.seen) == list(range(200))
    assert dead.begun == EACH
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await box.stop(0.0)
    await store.close()


async def test_many_targets_that_never_answer_hold_up_no_other(database: str) -> None:
    """A tenant may have more receivers that hang than there are places: they lose the places, and nobody else does."""
    store = PostgresStore(database)
    await store.join("n1")
    hanging = AT_ONCE // EACH + 2
    await filled(store, 40, *(("notice", f"hung{n}") for n in range(hanging)), ("webhook", "w1"))
    dead, alive = Dead(), Alive(40)
    box = Outbox(store, {"notice": dead, "webhook": alive}, SystemClock(), Random(1), None)
    running = asyncio.create_task(box.run())
    async with asyncio.timeout(60):
        await alive.done.wait()
    assert sorted(alive.seen) == list(range(40))
    assert dead.begun <= hanging * EACH
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await box.stop(0.0)
    await store.close()


async def test_what_a_dead_node_had_under_way_is_made_by_another(database: str) -> None:
    store, other = PostgresStore(database), PostgresStore(database)
    await store.join("n1")
    await filled(store, 3, ("webhook", "w1"))
    dead = Dead()
    first = Outbox(store, {"webhook": dead}, SystemClock(), Random(1), None)
    await first.round()
    await asyncio.sleep(0)
    assert dead.begun == 3
    await other.join("n1")
    alive = Alive(3)
    second = Outbox(other, {"webhook": alive}, SystemClock(), Random(1), None)
    await second.round()
    await second.idle()
    assert sorted(alive.seen) == [0, 1, 2]
    await first.stop(0.0)
    await store.close()
    await other.close()
