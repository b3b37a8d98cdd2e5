"""The node's one writer: whatever waits while a commit is in flight makes the next batch.

It judges nothing: the store says what became of each write, and the writer hands that back.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from random import Random
from typing import Protocol

from agiwo.clock import Clock
from agiwo.engine.events import Event, Happening, Observe
from agiwo.ports.store import InstanceStore, StoreUnavailable, Verdict, Write

MOST = 500  # writes a batch
TOO_MANY = 2000  # waiting writes that stop claiming
TOO_OLD = 0.25  # seconds that the oldest may wait before claiming stops
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between tries while the storage is away


class Waiting(Protocol):
    """One write and who wants to know what became of it."""

    @property
    def write(self) -> Write: ...

    @property
    def dropped(self) -> bool: ...

    def settle(self, verdict: Verdict) -> None: ...


class Writer:
    """Takes writes, at most one an instance at a time, and commits all that wait together."""

    def __init__(self, store: InstanceStore, clock: Clock, random: Random, observe: Observe | None) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._observe = observe
        self._queue: deque[tuple[Waiting, float]] = deque()
        self._in_flight_since: float | None = None
        self._wanted: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.down = False

    def put(self, waiting: Waiting) -> None:
        self._queue.append((waiting, self._clock.monotonic()))
        self._idle.clear()
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    @property
    def age(self) -> float:
        """Seconds that the oldest write has waited, the batch in flight included."""
        oldest = self._in_flight_since
        if oldest is None:
            if not self._queue:
                return 0.0
            oldest = self._queue[0][1]
        return self._clock.monotonic() - oldest

    @property
    def pressed(self) -> bool:
        """Whether so much waits that nothing more should be taken on."""
        return len(self._queue) > TOO_MANY or self.age > TOO_OLD

    async def idle(self) -> None:
        """Returns when nothing waits or is in flight."""
        await self._idle.wait()

    async def run(self) -> None:
        """Commits batch after batch, until cancelled."""
        while True:
            if not self._queue:
                self._idle.set()
                self._wanted = asyncio.get_running_loop().create_future()
                await self._wanted
                self._wanted = None
            self._idle.clear()
            await self._commit(self._take())  # under no name here: an idle writer would keep its last batch in memory
            self._in_flight_since = None

    def _take(self) -> list[Waiting]:
        batch: list[Waiting] = []
        queue = self._queue
        if queue:
            self._in_flight_since = queue[0][1]
        while queue and len(batch) < MOST:
            waiting, _ = queue.popleft()
            if not waiting.dropped:
                batch.append(waiting)
        return batch

    async def _commit(self, batch: list[Waiting]) -> None:
        pause = FIRST_PAUSE
        while batch:
            began = self._clock.monotonic()
            try:
                verdicts = await self._store.write([waiting.write for waiting in batch])
            except StoreUnavailable as exc:
                self._tell_lost(str(exc))
            except Exception:
                # A mistake of ours or of the driver: the writes must not be lost for it, and it must be seen.
                self._tell_lost(traceback.format_exc())
            else:
                self._tell_back()
                self._settle(batch, verdicts, self._clock.monotonic() - began)
                return
            await asyncio.sleep(pause * (0.5 + self._random.random()))
            pause = min(pause * 2, LONGEST_PAUSE)
            # What was dropped meanwhile is not begun late, when nobody here drives it any more.
            batch = [waiting for waiting in batch if not waiting.dropped]

    def _settle(self, batch: list[Waiting], verdicts: list[Verdict], seconds: float) -> None:
        if self._observe is not None:
            self._observe(Event(Happening.BATCH_WRITTEN, self._clock.now(), data={"writes": len(batch), "seconds": seconds}))
        for waiting, verdict in zip(batch, verdicts, strict=True):
            if waiting.dropped:
                continue
            try:
                waiting.settle(verdict)
            except Exception:
                # One instance's mistake must not end the loop on which all others depend.
                if self._observe is not None:
                    data = {"loop": "writer", "traceback": traceback.format_exc()}
                    self._observe(Event(Happening.LOOP_FAILED, self._clock.now(), data=data))

    def _tell_lost(self, message: str) -> None:
        self.down = True
        if self._observe is not None:
            self._observe(Event(Happening.STORE_LOST, self._clock.now(), data={"place": "writer", "message": message}))

    def _tell_back(self) -> None:
        if self.down:
            self.down = False
            if self._observe is not None:
                self._observe(Event(Happening.STORE_BACK, self._clock.now(), data={"place": "writer"}))
