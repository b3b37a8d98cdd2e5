"""Delivers what stands in the outbox, at least once; the storage gives out only the oldest open one of an instance and target.

A failed delivery is put off, longer each time, and given up after about a day; no workflow waits for it, and no delivery for one to
another target, however many targets never answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import NamedTuple
from uuid import UUID

from agiwo.clock import Clock
from agiwo.engine.events import Event, Happening, Observe
from agiwo.engine.loops import Loop
from agiwo.engine.slow_targets import SlowTargets
from agiwo.errors import StepError
from agiwo.ports.notifier import Notifier, Undeliverable
from agiwo.ports.store import InstanceStore, OutboxItem, StoreUnavailable

AT_ONCE, EACH = 32, 8  # deliveries under way: to targets that answer soon, and to one target
MOST = 4 * AT_ONCE  # and in all, with those that keep us waiting
FIRST_DELAY, LONGEST_DELAY = 1.0, 3600.0  # seconds
LONGEST_ASKED = 86_400.0  # seconds that the other side may ask us to wait
TRIES = 35  # 12 doublings make an hour, 23 more hours make a day
TIME_LIMIT = 60.0  # seconds for one delivery
BUSY, IDLE = 0.05, 1.0  # seconds between rounds
FORGET_EVERY, FORGET_AT_ONCE = 60.0, 500  # seconds between looks at what is kept long enough, and rows in one go


class Keeping(NamedTuple):
    """How many seconds deliveries are kept after they were made, or given up."""

    made: float = 7 * 86_400.0
    dead: float = 90 * 86_400.0


class Failure(NamedTuple):
    """Why a delivery was not made; `status` as the other side answered, `retry_after` in seconds, `final` if no try can succeed."""

    message: str
    status: int | None = None
    retry_after: float = 0.0
    final: bool = False


class Settled(NamedTuple):
    """What became of a try; `retry_at` in seconds since 1970, None for never."""

    failure: Failure | None
    status: int | None = None
    retry_at: float | None = None


class Outbox:
    """The deliveries of one node; `notifiers` says by kind who delivers."""

    def __init__(
        self,
        store: InstanceStore,
        notifiers: Mapping[str, Notifier],
        clock: Clock,
        random: Random,
        observe: Observe | None,
        keeping: Keeping = Keeping(),  # noqa: B008 - an immutable value
    ) -> None:
        self._store = store
        self._notifiers = notifiers
        self._clock = clock
        self._random = random
        self._observe = observe
        self._keeping = keeping
        self._forgot_at = clock.monotonic()
        self._in_doubt = False  # the storage may hold something as taken by us of which nothing is under way here
        self._slow = SlowTargets(clock)
        self._under_way: dict[UUID, tuple[OutboxItem, float, asyncio.Task[None]]] = {}  # with the monotonic time at which it began
        self._unsettled: dict[UUID, Settled] = {}  # what became of a delivery, until the storage knows it
        self._loop = Loop("deliveries", self.round, clock, observe)

    def hurry(self) -> None:
        """There is something to deliver."""
        self._loop.hurry()

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._loop.run()

    async def stop(self, patience: float) -> None:
        """Let what is under way end, for up to `patience` seconds; then it is stopped, and another node's matter."""
        tasks = [task for _, _, task in self._under_way.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def round(self) -> float:
        """Begin what is due and has room; gives the seconds until it should be looked at again. Raises StoreUnavailable."""
        for id in [id for id in self._unsettled if id not in self._under_way]:
            await self._settle(id)
        if self._in_doubt:
            await self._store.release_outbox([*self._under_way, *self._unsettled])
            self._in_doubt = False
        await self._forget()
        quick, busy = self._slow.shares([(item.target, begun) for item, begun, _ in self._under_way.values()], EACH)
        room = min(AT_ONCE - quick, MOST - len(self._under_way))
        if room <= 0:
            return IDLE  # whatever ends asks for the next round
        self._in_doubt = True
        items = await self._store.take_outbox(room, EACH, busy)
        self._in_doubt = False
        for item in items:
            self._under_way[item.id] = item, self._clock.monotonic(), asyncio.create_task(self._deliver(item))
        return BUSY if items else IDLE

    async def idle(self) -> None:
        """Returns when nothing is under way."""
        while self._under_way:
            await asyncio.wait([task for _, _, task in self._under_way.values()])

    async def _forget(self) -> None:
        if self._clock.monotonic() - self._forgot_at >= FORGET_EVERY:
            gone = await self._store.forget_deliveries(*self._keeping, FORGET_AT_ONCE)
            if gone < FORGET_AT_ONCE:
                self._forgot_at = self._clock.monotonic()

    async def _deliver(self, item: OutboxItem) -> None:
        try:
            status, failure = await self._try(item)
            self._slow.ended(item.target, self._under_way[item.id][1], failure is None)
            self._unsettled[item.id] = self._judged(item, status, failure)
            try:
                await self._settle(item.id)
            except StoreUnavailable:
                return  # the next round settles it
        finally:
            del self._under_way[item.id]
            self.hurry()

    def _judged(self, item: OutboxItem, status: int | None, failure: Failure | None) -> Settled:
        if failure is None:
            self._tell(Happening.DELIVERED, item, {})
            return Settled(None, status)
        gave_up = failure.final or item.tries >= TRIES
        delay = min(FIRST_DELAY * 2 ** min(item.tries - 1, 20), LONGEST_DELAY)
        delay = max(delay, min(failure.retry_after, LONGEST_ASKED)) * (1 + 0.1 * self._random.random())
        self._tell(Happening.NOT_DELIVERED, item, {"message": failure.message, "gave_up": gave_up})
        return Settled(failure, failure.status, None if gave_up else self._clock.now() + delay)

    async def _settle(self, id: UUID) -> None:
        settled = self._unsettled[id]
        if settled.failure is None:
            await self._store.delivered(id, settled.status)
        else:
            await self._store.not_delivered(id, settled.failure.message, settled.retry_at, settled.status)
        del self._unsettled[id]

    async def _try(self, item: OutboxItem) -> tuple[int | None, Failure | None]:
        """The other side's status, and why it failed, if it did."""
        notifier = self._notifiers.get(item.kind)
        if notifier is None:
            return None, Failure(f"nobody delivers the kind {item.kind!r} here")
        try:
            async with asyncio.timeout(TIME_LIMIT):
                return await notifier.deliver(item.target, item.body), None
        except StepError as exc:
            told = f"{exc.type}: {exc.message}"
            return None, Failure(told, exc.status, exc.retry_after or 0.0, isinstance(exc, Undeliverable))
        except TimeoutError:
            return None, Failure(f"not delivered within {TIME_LIMIT:g} s")
        except Exception as exc:
            # A notifier must raise StepError; if it raises anything else, the row must still be put off and not stay taken.
            return None, Failure(f"{type(exc).__name__}: {exc}")

    def _tell(self, name: Happening, item: OutboxItem, more: Mapping[str, object]) -> None:
        if self._observe is not None:
            data = {"id": str(item.id), "instance": item.instance, "kind": item.kind, "target": item.target, "tries": item.tries, **more}
            if (trace_id := item.body.get("trace_id")) is not None:
                data["trace_id"] = trace_id
            self._observe(Event(name, self._clock.now(), data=data))
