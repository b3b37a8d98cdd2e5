"""Following an instance in the same process: what was committed, batch by batch, for as long as the follower keeps up.

It holds nobody up: a follower that falls behind is cut off and reads on from the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from agiwo.machine.commands import Record

LONGEST = 256  # batches that may wait for a follower

Batch = Sequence[Record]


class Watch:
    """The records of one instance from now on. Iterating ends when the instance ends, is let go, or the follower fell behind (`lagged`)."""

    def __init__(self, watchers: Watchers | None) -> None:
        self._watchers = watchers
        self._queue: asyncio.Queue[Batch | None] = asyncio.Queue()
        self.lagged = False
        if watchers is None:
            self._queue.put_nowait(None)
        else:
            watchers.add(self)

    def tell(self, batch: Batch) -> None:
        if self._queue.qsize() >= LONGEST:
            self.lagged = True
            self.close()
        else:
            self._queue.put_nowait(batch)

    def close(self) -> None:
        """End the iteration after what waits."""
        if self._watchers is not None:
            self._watchers.remove(self)
            self._watchers = None
            self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        try:
            while (batch := await self._queue.get()) is not None:
                yield batch
        finally:
            self.close()


class Watchers:
    """All that follow one instance."""

    def __init__(self) -> None:
        self._all: list[Watch] = []

    def add(self, watch: Watch) -> None:
        self._all.append(watch)

    def remove(self, watch: Watch) -> None:
        if watch in self._all:
            self._all.remove(watch)

    def tell(self, batch: Batch) -> None:
        for watch in list(self._all):
            watch.tell(batch)

    def close(self) -> None:
        for watch in list(self._all):
            watch.close()
