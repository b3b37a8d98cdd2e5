"""The answers of calls under a key, in memory; for services without a database.

Nothing here awaits, so every method is one transaction.
"""

from __future__ import annotations

from uuid import UUID

from agiwo.clock import Clock, SystemClock
from agiwo.ports.answered import CallKey, KeptAnswer, Standing


class MemoryAnsweredCalls:
    """AnsweredCalls of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._held: dict[CallKey, tuple[UUID, float, Standing]] = {}

    async def hold(self, key: CallKey, digest: str, claim: UUID, lease: float) -> Standing | None:
        now = self._clock.now()
        found = self._held.get(key)
        if found is not None and found[1] > now:
            return found[2]
        self._held = {known: value for known, value in self._held.items() if value[1] > now}
        self._held[key] = claim, now + lease, Standing(digest)
        return None

    async def renew(self, key: CallKey, claim: UUID, lease: float) -> None:
        if (standing := self._holding(key, claim)) is not None:
            self._held[key] = claim, self._clock.now() + lease, standing

    async def keep(self, key: CallKey, claim: UUID, answer: KeptAnswer, seconds: float) -> None:
        if (standing := self._holding(key, claim)) is not None:
            self._held[key] = claim, self._clock.now() + seconds, Standing(standing.digest, answer)

    async def free(self, key: CallKey, claim: UUID) -> None:
        if self._holding(key, claim) is not None:
            del self._held[key]

    def _holding(self, key: CallKey, claim: UUID) -> Standing | None:
        found = self._held.get(key)
        return found[2] if found is not None and found[0] == claim and found[2].answer is None else None
