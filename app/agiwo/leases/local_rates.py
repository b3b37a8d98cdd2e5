"""Rates that one node counts for itself, in its memory: its share of what all nodes may have together.

It forgets everything with the process, and knows of other nodes no more than their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from limits import RateLimitItem, RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter, RateLimiter, SlidingWindowCounterRateLimiter

from agiwo.clock import Clock

#: Limits up to this are counted exactly; a moving window keeps an entry for each of them.
EXACT = 1000
#: Seconds, at least, until a full window is looked at again.
LOOK = 0.05


class LocalRateLimits:
    """A RateLimits of one of so many `nodes`."""

    def __init__(self, clock: Clock, nodes: Callable[[], int] = lambda: 1) -> None:
        self._clock = clock
        self._nodes = nodes
        storage = MemoryStorage()
        self._exact: RateLimiter = MovingWindowRateLimiter(storage)
        self._close: RateLimiter = SlidingWindowCounterRateLimiter(storage)

    async def acquire(self, name: str, limit: int, window: int, cost: int = 1) -> float:
        counter, item = self._of(limit, window)
        if await counter.hit(item, name, cost=min(cost, item.amount)):
            return 0.0
        # The library tells its own time of day, so only the span until then is taken from it.
        return max(LOOK, (await counter.get_window_stats(item, name)).reset_time - self._clock.now())

    async def charge(self, name: str, limit: int, window: int, cost: int) -> None:
        counter, item = self._of(limit, window)
        left = (await counter.get_window_stats(item, name)).remaining
        if (counted := min(cost, left)) > 0:
            await counter.hit(item, name, cost=counted)

    def _of(self, limit: int, window: int) -> tuple[RateLimiter, RateLimitItem]:
        nodes = max(1, self._nodes())
        # Less than one for each: one in a longer time.
        item = RateLimitItemPerSecond(*((limit // nodes, window) if limit >= nodes else (1, math.ceil(window * nodes / limit))))
        return self._exact if item.amount <= EXACT else self._close, item
