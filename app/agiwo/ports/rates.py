"""Limits on rates: so much in a window of time, counted for all nodes together where they share something, else by each for its part.

A limit is never gone: where nothing is shared, each node has its share of it.
"""

from __future__ import annotations

from typing import Protocol


class RateLimits(Protocol):
    """Counts by name. Never raises."""

    async def acquire(self, name: str, limit: int, window: int, cost: int = 1) -> float:
        """Count `cost` if no more than `limit` were counted in the last `window` seconds with it.

        Gives 0.0 if so, else the seconds after which to ask again; nothing is counted then. A cost above the limit counts as the limit.
        """
        ...

    async def charge(self, name: str, limit: int, window: int, cost: int) -> None:
        """Count what was already spent, whatever the limit says; later calls wait for it."""
        ...
