"""The engine on a real Postgres: takeovers, zombies, poisoned values, decisions that race with a park."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from agiwo.clock import SystemClock
from agiwo.definition.compiled import Gate, Workflow
from agiwo.definition.contract import Effect
from agiwo.engine.events import Happening
from agiwo.engine.node import Engine
from agiwo.errors import Overloaded
from agiwo.ids import uuid7
from agiwo.machine.commands import StartAttempt
from agiwo.machine.reports import Begin, Failed, Succeeded
from agiwo.ports.executor import Circumstances
from agiwo.ports.records import DecisionAnswer, Posted
from agiwo.ports.store import Answer, NewInstance, Verdict, Write
from agiwo.store.pool import service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.records import PostgresRecords
from agiwo.values import decode
from kit.engine import Calls, Library, Moments, pause, row, signal, tool

SCHEMA = "agiwo"


@dataclass
class Site:
    """Nodes on one database."""

    url: str
    records: PostgresRecords
    connection: asyncpg.Connection[Any]
    moments: Moments = field(default_factory=Moments)
    clock: SystemClock = field(default_factory=SystemClock)
    stores: list[PostgresStore] = field(default_factory=list)
    nodes: list[Engine] = field(default_factory=list)

    async def node(self, workflow: Workflow, calls: Calls, name: str = "a", store: PostgresStore | None = None, **options: Any) -> Engine:
        store = store or PostgresStore(self.url)
        engine = Engine(
            store,
            Library(workflow),
            lambda kind: calls,
            self.clock,
            name=name,
            random=Random(2),
            observe=self.moments,
            **{"cancel_grace": 0.05, "heartbeat": 1.0, **options},
        )
        self.stores.append(store)
        self.nodes.append(engine)
        await engine.start()
        return engine

    async def begin(self, engine: Engine, workflow: Workflow, input: Any = None) -> tuple[UUID, asyncio.Future[Any]]:
        id = uuid7(self.clock.now(), secrets.randbits(66), secrets.randbelow(256))
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        new = NewInstance(workflow.id, workflow.version, "hash", "0" * 32)
        while True:
            try:
                verdict = await engine.begin(id, workflow, "default", Begin(self.clock.now(), input), new, ended=ended)
            except Overloaded:
                # A slow disk under this test: the node holds triggers back until its writer has caught up.
                await asyncio.sleep(0.05)
                continue
            assert verdict.answer is Answer.APPLIED
            return id, ended

    async def status(self, id: UUID) -> str:
        value: str = await self.connection.fetchval(f"SELECT status FROM {SCHEMA}.instance WHERE id = $1", id)
        return value

    async def history(self, id: UUID) -> list[Any]:
        """The records of an instance, in order."""
        found = await self.connection.fetch(f"SELECT records::text AS r FROM {SCHEMA}.history WHERE instance_id = $1 ORDER BY seq", id)
        return [record for row in found for record in decode(row["r"])]

    async def numbers(self, id: UUID) -> list[int]:
        """The numbers of all records of an instance, in order."""
        rows = await self.connection.fetch(
            f"SELECT (json_array_elements(records)->>'seq')::int AS n FROM {SCHEMA}.history WHERE instance_id = $1 ORDER BY seq", id
        )
        return [row["n"] for row in rows]


@pytest.fixture
async def site(database: str) -> AsyncIterator[Site]:
    pool = service_engine(database)
    connection = await asyncpg.connect(database)
    made = Site(database, PostgresRecords(pool), connection)
    yield made
    for engine in made.nodes:
        if engine._tasks:
            await engine.stop()
    for store in made.stores:
        await store.close()
    await connection.close()
    await pool.dispose()


async def test_a_hundred_instances_end_with_gapless_histories(site: Site) -> None:
    flow = row(tool("a"), tool("b"), tool("c"))
    engine = await site.node(flow, Calls())
    begun = await asyncio.gather(*(site.begin(engine, flow) for _ in range(100)))
    await asyncio.gather(*(ended for _, ended in begun))
    assert await site.connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.run") == 0
    for id, _ in begun[:5]:
        numbers = await site.numbers(id)
        assert numbers == list(range(1, len(numbers) + 1))
        assert await site.status(id) == "SUCCESS"


async def test_a_zombie_writes_nothing_after_its_takeover(site: Site) -> None:
    flow = row(tool("a"), tool("b", Effect.WRITE))
    zombie_calls, fresh = Calls(held=["a"]), Calls()
    zombie = await site.node(flow, zombie_calls, heartbeat=1000.0)
    begun = await asyncio.gather(*(site.begin(zombie, flow) for _ in range(20)))
    await zombie_calls.begun("a")
    await site.node(flow, fresh)
    while len(site.moments.all(Happening.ENDED)) < 20:
        await site.moments.next(Happening.ENDED)
    zombie_calls.held.clear()
    for future in list(zombie_calls.open.values()):
        future.set_result(Succeeded("late"))
    assert set(await asyncio.gather(*(asyncio.wait_for(ended, 10) for _, ended in begun[-1:]))) == {None}
    assert "b" not in zombie_calls.paths
    assert fresh.paths.count("b") == 20
    for id, _ in begun:
        numbers = await site.numbers(id)
        assert numbers == list(range(1, len(numbers) + 1))


class Blind(PostgresStore):
    """A store behind checks that have missed something: what they let through, the database refuses."""

    async def write(self, batch: Sequence[Write]) -> list[Verdict]:
        return await super().write([replace(write, records=write.records.replace("POISON", "\x00")) for write in batch])


async def test_one_poisoned_value_in_a_batch_fails_its_own_step_alone(site: Site) -> None:
    flow = row(tool("a"), tool("b"))
    poison = iter([Succeeded({"text": "POISON"})])
    calls = Calls(lambda call: next(poison, None) if call.path == "a" and calls.paths.count("a") == 4 else Succeeded("sound"))
    engine = await site.node(flow, calls, store=Blind(site.url))
    begun = await asyncio.gather(*(site.begin(engine, flow) for _ in range(10)))
    instances = [await ended for _, ended in begun]
    assert sorted(instance.status.value for instance in instances) == ["FAILED"] + ["SUCCESS"] * 9
    (failed,) = (instance for instance in instances if instance.status.value == "FAILED")
    assert failed.runs["a"].error["type"] == "ValidationError"
    assert "cannot be stored" in failed.runs["a"].error["message"]


async def test_cancels_that_race_with_a_park_are_all_heard(site: Site) -> None:
    flow = row(tool("a"), pause("p", 3600.0))
    engine = await site.node(flow, Calls())
    begun = await asyncio.gather(*(site.begin(engine, flow) for _ in range(60)))

    async def cancel(id: UUID) -> None:
        assert await site.records.put_inbox(id, "default", "cancel", {"by": "user:a"}) is Posted.ACCEPTED

    await asyncio.gather(*(cancel(id) for id, _ in begun))
    while len(site.moments.all(Happening.ENDED)) < 60:
        await site.moments.next(Happening.ENDED)
    assert {event.data["status"] for event in site.moments.all(Happening.ENDED)} == {"CANCELLED"}


class Gated(Calls):
    """Calls that all return when the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        await self.gate.wait()
        return Succeeded(None)


@pytest.mark.parametrize("when", ["early", "as the wait opens", "late"])
async def test_a_signal_is_found_whenever_it_comes(site: Site, when: str) -> None:
    """REQ-03: 200 tries of each; used once, by its own wait, whether it is stored before, while or after the wait opens."""
    flow = row(tool("a"), signal("paid"))
    calls = Gated()
    engine = await site.node(flow, calls, park_after=0.0)
    begun = [await site.begin(engine, flow) for _ in range(200)]

    async def send(id: UUID, n: int) -> None:
        for allowed in ({Posted.ACCEPTED}, {Posted.DUPLICATE, Posted.ENDED}):
            body = {"id": f"s{n}", "event": "paid", "payload": {"amount": n}, "by": "key:x", "channel": "api"}
            posted = await site.records.put_inbox(id, "default", "signal", body, f"signal/s{n}")
            assert posted in allowed
            engine.poke(id)

    sends = [send(id, n) for n, (id, _) in enumerate(begun)]
    if when == "early":
        await asyncio.gather(*sends)
        calls.gate.set()
    elif when == "late":
        calls.gate.set()
        while await site.connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.instance WHERE waiting_for = 'signal of paid'") < 200:
            await site.moments.next(Happening.LET_GO)
        await asyncio.gather(*sends)
    else:
        calls.gate.set()
        await asyncio.gather(*sends)
    while len(site.moments.all(Happening.ENDED)) < 200:
        await site.moments.next(Happening.ENDED)
    for n, (id, _) in enumerate(begun):
        records = await site.history(id)
        assert [r["data"]["id"] for r in records if r["type"] == "signal.received"] == [f"s{n}"]
        assert [r["data"]["output"] for r in records if r["type"] == "step.succeeded" and r["path"] == "paid"] == [{"amount": n}]


async def test_a_decision_by_a_person_goes_on_after_a_restart(site: Site) -> None:
    gate = Gate("before", approvers=("user:x",), notify=("mail",), timeout=600.0)
    flow = row(tool("charge"), tool("ship", gate=gate))
    calls = Calls()
    first = await site.node(flow, calls)
    id, ended = await site.begin(first, flow)
    assert await ended is None
    await first.drain(1.0)
    approval = await site.connection.fetchrow(f"SELECT id, digest FROM {SCHEMA}.approval WHERE instance_id = $1", id)
    assert await site.connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.outbox WHERE instance_id = $1", id) == 1
    second = await site.node(flow, calls, "b")
    answer = await site.records.decide_approval(
        "default", approval["id"], action="approve", by="user:x", channel="api", digest=approval["digest"]
    )
    assert answer.answer is DecisionAnswer.DECIDED
    second.poke(id)
    await site.moments.until(Happening.ENDED)
    assert calls.paths == ["charge", "ship"]
    assert await site.status(id) == "SUCCESS"


async def test_connections_that_are_cut_lose_and_double_nothing(site: Site) -> None:
    flow = row(*(tool(f"s{n}") for n in range(10)))
    calls = Calls()
    engine = await site.node(flow, calls)
    begun = await asyncio.gather(*(site.begin(engine, flow) for _ in range(20)))
    for _ in range(5):
        await site.moments.next(Happening.COMMITTED)
        await site.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    instances = await asyncio.gather(*(ended for _, ended in begun))
    for (id, _), instance in zip(begun, instances, strict=True):
        assert instance is None or instance.status.value == "SUCCESS"
        numbers = await site.numbers(id)
        assert numbers == list(range(1, len(numbers) + 1))
    made = [(path, attempt, key) for path, attempt, key in calls.made]
    assert len(made) == len(set(made))


async def test_a_call_longer_than_the_lease_is_made_once_since_the_lease_is_renewed_meanwhile(site: Site) -> None:
    """REQ-04."""
    flow = row(tool("a", Effect.WRITE))
    calls = Calls(held=["a"])
    first = await site.node(flow, calls, "a", lease=2.0, heartbeat=0.2)
    await site.node(flow, calls, "b", lease=2.0, heartbeat=0.2)
    _, ended = await site.begin(first, flow)
    await calls.begun("a")
    over = await site.connection.fetchval("SELECT lease_until FROM agiwo.node WHERE name = 'a'")
    while not await site.connection.fetchval("SELECT now() > $1", over):  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # until the lease under which the call began is over
    calls.give("a")
    assert (await ended).status.value == "SUCCESS"
    assert calls.paths == ["a"]
    assert not site.moments.all(Happening.DECLARED_DEAD)


async def test_all_that_a_killed_node_left_is_taken_over_though_the_database_goes_away_meanwhile(site: Site) -> None:
    """REQ-01: a recovery is tried again until nothing is left, whatever becomes of one round."""
    flow = row(tool("a"), tool("b", Effect.WRITE))
    killed_calls, calls = Calls(held=["a"]), Calls()
    killed = await site.node(flow, killed_calls, "a", heartbeat=1000.0)
    begun = await asyncio.gather(*(site.begin(killed, flow) for _ in range(50)))
    await killed_calls.begun("a")
    for task in killed._tasks:
        task.cancel()
    await asyncio.gather(*killed._tasks, return_exceptions=True)
    killed._tasks = []
    await site.node(flow, calls, "b", heartbeat=0.05)
    await site.connection.execute("UPDATE agiwo.node SET lease_until = now() - interval '1 second' WHERE name = 'a'")
    for _ in range(10):
        await site.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await asyncio.sleep(0.02)  # so that each cut meets another moment of the recovery
    while len(site.moments.all(Happening.ENDED)) < len(begun):
        await site.moments.next(Happening.ENDED)
    assert {event.data["status"] for event in site.moments.all(Happening.ENDED)} == {"SUCCESS"}
    assert calls.paths.count("b") == len(begun)
    assert await site.connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.run") == 0
