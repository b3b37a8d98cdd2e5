"""The last good results of tools, in memory; for services without a database.

Nothing here awaits, so every method is one transaction.
"""

from __future__ import annotations

from agiwo.clock import Clock, SystemClock
from agiwo.ports.last_good import CallDigest, GoodResult
from agiwo.store.memory import kept


class MemoryLastGood:
    """LastGood of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._held: dict[CallDigest, tuple[GoodResult, float]] = {}

    async def keep(self, call: CallDigest, good: GoodResult, seconds: float) -> None:
        now = self._clock.now()
        self._held = {known: value for known, value in self._held.items() if value[1] > now}
        found = self._held.get(call)
        until = max(good.at + seconds, found[1] if found is not None else 0.0)
        if found is None or found[0].at <= good.at:
            self._held[call] = GoodResult(kept(good.result), good.at), until

    async def find(self, call: CallDigest, since: float) -> GoodResult | None:
        found = self._held.get(call)
        return found[0] if found is not None and found[0].at >= since else None
