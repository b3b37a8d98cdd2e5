"""The engine's storage on Postgres: fenced writes, claims, leases and deliveries by named, prepared statements.

Holds no rule about workflows and never uses a pool: one connection writes, one claims, one renews the lease and one looks for
the dead, so that none waits for another.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from agiwo.ports.store import NOTHING_BUSY, Claimed, Inbox, InboxItem, OutboxItem, StoreUnavailable, Verdict, Write
from agiwo.store.line import Line
from agiwo.store.writer import TRIES, Writer
from agiwo.values import decode


class PostgresStore:
    """An InstanceStore. `url` is any form of Postgres URL; `lease` is the first lease in seconds, `command_timeout` bounds every answer.

    `node_incarnation` (63 random bits) names the first incarnation, by default a random one; every later `join` takes a new one.
    `nodes` is how many were alive when the dead were last looked for.
    """

    def __init__(self, url: str, *, node_incarnation: int | None = None, lease: float = 10.0, command_timeout: float = 10.0) -> None:
        self._writing = Line(url, "writer", command_timeout=command_timeout)
        self._claiming = Line(url, "claims", command_timeout=command_timeout)
        # A lease that waits behind a slow claim is a lost lease.
        self._living = Line(url, "lease", command_timeout=command_timeout)
        self._reaping = Line(url, "reaper", command_timeout=command_timeout)
        self._writer = Writer(self._writing)
        self._lease = lease
        self._node = secrets.randbits(63) if node_incarnation is None else node_incarnation
        self._joined = False
        self.nodes = 1

    @property
    def incarnation(self) -> int:
        """The incarnation that owns what is written and claimed now."""
        return self._node

    async def write(self, batch: Sequence[Write]) -> list[Verdict]:
        return await self._writer.write(self._node, batch)

    async def claim(self, limit: int, shards: Collection[int] | None = None, overdue: float = 0.0) -> list[Claimed]:
        rows = await self._ask("claim_due_if_alive", self._node, limit, None if shards is None else list(shards), overdue)
        if not rows:
            return []
        states = {row["id"]: row for row in await self._ask("load_state", [row["id"] for row in rows])}
        claimed = []
        for row in rows:
            state = states[row["id"]]
            self._writer.shown[row["id"]] = state["status"]
            claimed.append(
                Claimed(
                    id=row["id"],
                    tenant=row["tenant"],
                    workflow=row["workflow"],
                    version=row["version"],
                    epoch=row["epoch"],
                    seq=row["seq"],
                    inbox_seq=row["inbox_seq"],
                    deaths=row["deaths"],
                    snapshot=state["snapshot"],
                    records=tuple(state["records"]),
                    correlation_key=state["correlation_key"],
                    callback_url=state["callback_url"],
                )
            )
        return claimed

    async def inbox(self, ids: Sequence[UUID]) -> dict[UUID, Inbox]:
        numbers: dict[UUID, int] = {}
        items: dict[UUID, list[InboxItem]] = {}
        for row in await self._ask("read_inbox_if_owner", self._node, list(ids)):
            instance = row["instance_id"]
            numbers[instance] = row["inbox_seq"]
            waiting = items.setdefault(instance, [])
            if row["id"] is not None:
                waiting.append(InboxItem(row["id"], row["kind"], decode(row["body"])))
        return {instance: Inbox(number, tuple(items[instance])) for instance, number in numbers.items()}

    async def moved(self) -> list[UUID]:
        return [row[0] for row in await self._ask("list_moved", self._node)]

    async def owned(self) -> list[UUID]:
        return [row[0] for row in await self._ask("list_owned", self._node)]

    async def release(self, ids: Sequence[UUID]) -> None:
        if ids:
            await self._ask("release_if_owner", self._node, sorted(ids, key=lambda id: id.int))
            for id in ids:
                self._writer.shown.pop(id, None)

    async def join(self, name: str) -> None:
        if self._joined:
            self._node = secrets.randbits(63)
        self._joined = True
        self._writer.shown.clear()
        async with self._living.transaction() as say:
            await say("insert_node", self._node, name, self._lease)
            await say("bury_older_incarnations", self._node, name)
        await self._free()

    async def beat(self, lease: float) -> bool:
        self._lease = lease
        return bool(await _insist(self._living, "renew_lease_if_alive", self._node, lease))

    async def reap(self) -> None:
        await self._reap("bury_expired_nodes")
        await self._free()
        self.nodes = (await self._reap("count_living_nodes"))[0][0]
        await self._reap("forget_the_dead")
        await self._reap("forget_expired_promises")
        await self._reap("forget_answered_calls")
        await self._reap("forget_last_good")

    async def leave(self) -> None:
        async with self._living.transaction() as say:
            await say("leave_node", self._node)
            await say("free_what_this_node_owns", self._node)
        await self._reap("free_deliveries_of_the_dead")
        self._writer.shown.clear()

    async def take_outbox(self, limit: int, each: int, busy: Mapping[str, int] = NOTHING_BUSY) -> list[OutboxItem]:
        return [
            OutboxItem(row["id"], row["tenant"], row["instance_id"], row["kind"], row["target"], decode(row["body"]), row["tries"])
            for row in await self._ask("take_outbox_if_alive", self._node, limit, list(busy.keys()), list(busy.values()), each)
        ]

    async def release_outbox(self, keep: Collection[UUID] = ()) -> None:
        await self._ask("release_deliveries_if_owner", self._node, list(keep))

    async def delivered(self, id: UUID, status: int | None = None) -> None:
        await self._ask("settle_delivery_if_owner", self._node, id, status)

    async def not_delivered(self, id: UUID, error: str, retry_at: float | None, status: int | None = None) -> None:
        told = error.replace("\x00", "\N{REPLACEMENT CHARACTER}")[:2000]
        await self._ask("put_delivery_off_if_owner", self._node, id, told, retry_at, status)

    async def forget_deliveries(self, made: float, dead: float, limit: int) -> int:
        return len(await self._ask("forget_settled_deliveries", made, dead, limit))

    async def next_due(self) -> float | None:
        rows = await self._ask("next_due")
        return rows[0][0] if rows else None

    async def close(self) -> None:
        """Close the connections; what is under way is waited for."""
        await self._writing.close()
        await self._claiming.close()
        await self._living.close()
        await self._reaping.close()

    async def _free(self) -> None:
        await self._reap("free_what_the_dead_own")
        await self._reap("free_deliveries_of_the_dead")

    async def _ask(self, name: str, *values: Any) -> list[asyncpg.Record]:
        return await _insist(self._claiming, name, *values)

    async def _reap(self, name: str, *values: Any) -> list[asyncpg.Record]:
        return await _insist(self._reaping, name, *values)


async def _insist(line: Line, name: str, *values: Any) -> list[asyncpg.Record]:
    """Run a statement, again if it clashed with others' locks."""
    for _ in range(TRIES):
        try:
            return await line.fetch(name, *values)
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            continue
    raise StoreUnavailable(f"others were in the way of {name} {TRIES} times")
