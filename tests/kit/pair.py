"""Two nodes on one Postgres and one Redis under a load that parks, with every call counted, for what becomes of them when Redis fails."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import asyncpg

from agiwo.clock import SystemClock
from agiwo.definition.contract import Effect
from agiwo.engine.events import Happening
from agiwo.engine.node import Engine
from agiwo.ids import shard_of, uuid7
from agiwo.leases.redis_leases import RedisShardLeases
from agiwo.leases.redis_link import RedisLink
from agiwo.leases.redis_wakeup import RedisWakeup
from agiwo.machine.commands import StartAttempt
from agiwo.machine.reports import Begin, Failed, Succeeded
from agiwo.ports.executor import Circumstances
from agiwo.ports.store import Answer, Claimed, NewInstance
from agiwo.store.postgres import PostgresStore
from agiwo.testing.servers import RedisServer
from kit.engine import Calls, Library, Moments, pause, row, tool

#: A step that is safe to repeat, one that is not, one that cannot be undone; between them the instance is in nobody's hands.
FLOW = row(tool("a"), pause("p", 0.15), tool("b", Effect.WRITE), pause("q", 0.15), tool("c", Effect.IRREVERSIBLE))
CLAIMS = 3  # of each instance, at least


class Counted(Calls):
    """Counts the calls of each step of each instance."""

    def __init__(self) -> None:
        super().__init__()
        self.by: Counter[tuple[UUID, str]] = Counter()

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        self.by[where.instance_id, call.path] += 1
        return await super().perform(call, where)


class Telling(PostgresStore):
    """Says what was claimed, and whether the node held the lease of its shard then."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.within: Counter[bool] = Counter()

    async def claim(self, limit: int, shards: Collection[int] | None = None, overdue: float = 0.0) -> list[Claimed]:
        claimed = await super().claim(limit, shards, overdue)
        self.within.update(shards is not None and shard_of(one.id) in shards for one in claimed)
        return claimed


@dataclass
class Node:
    """One of the two."""

    engine: Engine
    store: Telling
    link: RedisLink
    leases: RedisShardLeases
    changes: list[bool]


@dataclass
class Pair:
    """Use `pair(…)`."""

    nodes: list[Node]
    calls: Counted
    moments: Moments
    connection: asyncpg.Connection
    begun: list[UUID] = field(default_factory=list)
    clock: SystemClock = field(default_factory=SystemClock)

    async def begin(self, number: int) -> None:
        """Write that many instances down, for whichever node comes first."""
        for n in range(number):
            id = uuid7(self.clock.now(), secrets.randbits(66), secrets.randbelow(256))
            new = NewInstance(FLOW.id, FLOW.version, "hash", "0" * 32)
            verdict = await self.nodes[n % 2].engine.entrust(id, FLOW, "default", Begin(self.clock.now(), None), new)
            assert verdict.answer is Answer.APPLIED
            self.begun.append(id)

    async def ended(self, number: int) -> None:
        """Return when so many have ended, from the beginning on."""
        while len(self.moments.all(Happening.ENDED)) < number:
            await self.moments.next(Happening.ENDED)

    async def shared(self) -> None:
        """Return when the two share all groups between them."""
        await self.until(lambda: all(node.leases.shards is not None and node.leases.groups == 16 for node in self.nodes))

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110  (no event tells it)
            await asyncio.sleep(0.01)

    async def check(self) -> None:
        """All ended well, every step was called once, every history is without a gap, and nobody owns anything."""
        statuses = Counter(event.data["status"] for event in self.moments.all(Happening.ENDED))
        assert statuses == {"SUCCESS": len(self.begun)}
        assert self.calls.by == Counter({(id, path): 1 for id in self.begun for path in "abc"})
        assert await self.connection.fetchval("SELECT count(*) FROM agiwo.run") == 0
        for happening in (Happening.LOOP_FAILED, Happening.DECLARED_DEAD, Happening.ATTEMPT_FENCED):
            assert not self.moments.all(happening)

    @property
    def claims(self) -> list[int]:
        """How many each has claimed."""
        return [node.store.within.total() for node in self.nodes]


@asynccontextmanager
async def pair(database: str, server: RedisServer | None, patience: float = 0.3) -> AsyncIterator[Pair]:
    """Two running nodes, which wait `patience` seconds for Redis; without a server, with the address of one that is not there."""
    url = server.url if server is not None else "unix:///tmp/agiwo-no-such-redis.sock"
    calls, moments, clock = Counted(), Moments(), SystemClock()
    async with AsyncExitStack() as stack:
        connection = await asyncpg.connect(database)
        stack.push_async_callback(connection.close)
        nodes = []
        for name in ("one", "other"):
            changes: list[bool] = []
            link = RedisLink(url, changed=lambda up, reason, changes=changes: changes.append(up), timeout=patience)  # type: ignore[misc]
            stack.push_async_callback(link.close)
            wakeup, leases, store = RedisWakeup(link), RedisShardLeases(link), Telling(database)
            stack.push_async_callback(wakeup.close)
            stack.push_async_callback(store.close)
            engine = Engine(
                store, Library(FLOW), lambda kind: calls, clock,
                name=name, random=Random(name), observe=moments, wakeup=wakeup, leases=leases, park_after=0.05, cancel_grace=0.05,
            )  # fmt: skip
            await engine.start()
            stack.push_async_callback(engine.stop)
            nodes.append(Node(engine, store, link, leases, changes))
        yield Pair(nodes, calls, moments, connection)
