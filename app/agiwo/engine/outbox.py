"""Delivers what stands in the outbox, at least once; the storage gives out only the oldest open one of an instance.

A failed delivery is put off, longer each time, and given up after about a day; no workflow waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from uuid import UUID

from agiwo.clock import Clock
from agiwo.engine.events import Event, Happening, Observe
from agiwo.errors import StepError
from agiwo.ports.notifier import Notifier
from agiwo.ports.store import InstanceStore, OutboxItem

AT_ONCE = 20
FIRST_DELAY, LONGEST_DELAY = 1.0, 3600.0  # seconds
TRIES = 35  # 12 doublings make an hour, 23 more hours make a day
TIME_LIMIT = 60.0  # seconds for one delivery
BUSY, IDLE = 0.05, 1.0  # seconds between rounds


class Outbox:
    """The deliveries of one node; `notifiers` says by kind who delivers."""

    def __init__(
        self, store: InstanceStore, notifiers: Mapping[str, Notifier], clock: Clock, random: Random, observe: Observe | None
    ) -> None:
        self._store = store
        self._notifiers = notifiers
        self._clock = clock
        self._random = random
        self._observe = observe
        self._in_doubt = False  # the storage may hold something as taken by us of which nothing is under way here
        self._unsettled: dict[UUID, tuple[str, float | None] | None] = {}  # what became of a delivery, until the storage knows it

    async def round(self) -> float:
        """Deliver what is due; gives the seconds until it should be looked at again. Raises StoreUnavailable."""
        if self._in_doubt:
            for id in list(self._unsettled):
                await self._settle(id)
            await self._store.release_outbox()
        self._in_doubt = True
        items = await self._store.take_outbox(AT_ONCE)
        for ended in await asyncio.gather(*map(self._deliver, items), return_exceptions=True):
            if ended is not None:
                raise ended
        self._in_doubt = False
        return BUSY if items else IDLE

    async def _deliver(self, item: OutboxItem) -> None:
        failed = await self._try(item)
        if failed is None:
            self._unsettled[item.id] = None
            self._tell(Happening.DELIVERED, item, {})
        else:
            gave_up = item.tries >= TRIES
            delay = min(FIRST_DELAY * 2 ** min(item.tries - 1, 20), LONGEST_DELAY) * (1 + 0.1 * self._random.random())
            self._unsettled[item.id] = (failed, None if gave_up else self._clock.now() + delay)
            self._tell(Happening.NOT_DELIVERED, item, {"message": failed, "gave_up": gave_up})
        await self._settle(item.id)

    async def _settle(self, id: UUID) -> None:
        failed = self._unsettled[id]
        if failed is None:
            await self._store.delivered(id)
        else:
            await self._store.not_delivered(id, *failed)
        del self._unsettled[id]

    async def _try(self, item: OutboxItem) -> str | None:
        """Why it failed, or None."""
        notifier = self._notifiers.get(item.kind)
        if notifier is None:
            return f"nobody delivers the kind {item.kind!r} here"
        try:
            async with asyncio.timeout(TIME_LIMIT):
                await notifier.deliver(item.target, item.body)
        except StepError as exc:
            return f"{exc.type}: {exc.message}"
        except TimeoutError:
            return f"not delivered within {TIME_LIMIT:g} s"
        except Exception as exc:
            # A notifier must raise StepError; if it raises anything else, the row must still be put off and not stay taken.
            return f"{type(exc).__name__}: {exc}"
        return None

    def _tell(self, name: Happening, item: OutboxItem, more: Mapping[str, object]) -> None:
        if self._observe is not None:
            data = {"id": str(item.id), "instance": item.instance, "kind": item.kind, "target": item.target, "tries": item.tries, **more}
            self._observe(Event(name, self._clock.now(), data=data))
