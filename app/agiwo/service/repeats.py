"""Calls under an `Idempotency-Key`: made once, and answered again with the first answer, on whichever node the repetition arrives.

It knows neither requests nor routes. What is refused uses no key up; a process that dies in the middle loses its hold after a moment, and
the repetition is then made again, which is safe because every verb is idempotent or says clearly what stands in its way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar
from uuid import UUID, uuid4

from agiwo.clock import Clock
from agiwo.errors import Conflict
from agiwo.ports.answered import AnsweredCalls, CallKey, KeptAnswer
from agiwo.ports.store import StoreUnavailable

#: Seconds that an answer is kept, that a hold lasts without a sign of life, and that a repetition waits for the call before it.
KEPT, LEASE, PATIENCE = 24 * 3600.0, 10.0, 10.0
#: Bytes of the largest answer that is kept.
LARGEST = 1_000_000
_SHORTEST, _LONGEST = 0.02, 0.5  # seconds between looks at a call that runs

T = TypeVar("T")


class Repeats:
    """Makes calls once per key. `patience` is how long in seconds a repetition waits for the call that runs."""

    def __init__(self, calls: AnsweredCalls, clock: Clock, *, lease: float = LEASE, patience: float = PATIENCE) -> None:
        self._calls = calls
        self._clock = clock
        self._lease = lease
        self._patience = patience

    async def once(
        self, key: CallKey, digest: str, call: Callable[[], Awaitable[T]], kept: Callable[[T], KeptAnswer | None]
    ) -> T | KeptAnswer:
        """What `call` gives, or the kept answer of the same call before. `kept` says what to keep of it, None for nothing.

        Raises Conflict: `idempotency_key_reused` if the key stands for a call of another digest, `in_progress` if the same call still runs
        after the patience. What `call` raises goes through and frees the key.
        """
        claim = uuid4()
        until = self._clock.monotonic() + self._patience
        pause = _SHORTEST
        while (standing := await self._calls.hold(key, digest, claim, self._lease)) is not None:
            if standing.digest != digest:
                raise Conflict("this Idempotency-Key stands for another call", code="idempotency_key_reused")
            if standing.answer is not None:
                return standing.answer
            if self._clock.monotonic() >= until:
                raise Conflict("the call with this Idempotency-Key still runs; ask again", code="in_progress")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST)
        answer: KeptAnswer | None = None
        try:
            async with self._alive(key, claim):
                result = await call()
            answer = kept(result)
        finally:
            if answer is None or len(answer.body) > LARGEST:
                ending = self._calls.free(key, claim)
            else:
                ending = self._calls.keep(key, claim, answer, KEPT)
            # What was done is done: neither a client that goes away nor a storage that does may turn it into a failure.
            with contextlib.suppress(StoreUnavailable):
                await asyncio.shield(asyncio.ensure_future(ending))
        return result

    @contextlib.asynccontextmanager
    async def _alive(self, key: CallKey, claim: UUID) -> AsyncIterator[None]:
        beating = asyncio.create_task(self._beat(key, claim))
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait((beating,))

    async def _beat(self, key: CallKey, claim: UUID) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with contextlib.suppress(StoreUnavailable):
                await self._calls.renew(key, claim, self._lease)
