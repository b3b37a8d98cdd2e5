"""Limits on calls of models kept by this node for itself.

Forgets everything with the process, and knows nothing of other nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter, RateLimiter, SlidingWindowCounterRateLimiter

from agiwo.clock import Clock
from agiwo.errors import StepError
from agiwo.ports.model_limits import Allowance, Permit

#: Seconds over which those that waited for the end of a pause come back, at most.
SPREAD = 2.0
#: Seconds between two looks at a full window.
_LOOK = 0.05

Sleep = Callable[[float], Awaitable[None]]


class LocalModelLimits:
    """A ModelLimits of one node. `random` spreads those that come back after a pause; `sleep` waits so many seconds."""

    def __init__(self, clock: Clock, random: Random, sleep: Sleep = asyncio.sleep) -> None:
        self._clock = clock
        self._random = random
        self._sleep = sleep
        storage = MemoryStorage()
        self._calls: RateLimiter = MovingWindowRateLimiter(storage)
        # A moving window would keep one entry a token.
        self._tokens: RateLimiter = SlidingWindowCounterRateLimiter(storage)
        self._places: dict[str, asyncio.Semaphore] = {}
        self._pauses: dict[str, tuple[float, float]] = {}

    def cool_down(self, key: str, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        if end > self._pauses.get(key, (0.0, 0.0))[0]:
            self._pauses[key] = (end, min(SPREAD, seconds / 2))

    @asynccontextmanager
    async def call(self, key: str, allowance: Allowance, tokens: int, patience: float) -> AsyncIterator[Permit]:
        ends = self._clock.monotonic() + patience
        async with AsyncExitStack() as stack:
            if allowance.max_concurrency is not None:
                await self._place(stack, key, allowance.max_concurrency, ends)
            await self._pause(key, ends)
            charged = 0 if allowance.tpm is None else min(tokens, allowance.tpm)
            if allowance.rpm is not None:
                await self._window(self._calls, RateLimitItemPerMinute(allowance.rpm), f"{key}/calls", 1, ends)
            if allowance.tpm is not None:
                await self._window(self._tokens, RateLimitItemPerMinute(allowance.tpm), f"{key}/tokens", charged, ends)
            permit = Permit(tokens)
            try:
                yield permit
            finally:
                if allowance.tpm is not None and permit.tokens > charged:
                    item = RateLimitItemPerMinute(allowance.tpm)
                    await self._tokens.hit(item, f"{key}/tokens", cost=min(permit.tokens - charged, allowance.tpm))

    async def _place(self, stack: AsyncExitStack, key: str, most: int, ends: float) -> None:
        places = self._places.setdefault(f"{key}/{most}", asyncio.Semaphore(most))
        try:
            async with asyncio.timeout(max(0.0, ends - self._clock.monotonic())):
                await places.acquire()
        except TimeoutError:
            raise _held_back(f"{most} calls of {key} are under way already, and none ended in time", None) from None
        stack.callback(places.release)

    async def _pause(self, key: str, ends: float) -> None:
        end, spread = self._pauses.get(key, (0.0, 0.0))
        now = self._clock.monotonic()
        if now >= end + spread:
            return
        due = end + self._random.random() * spread
        if due > ends:
            raise _held_back(f"the endpoint of {key} has asked for a pause", due - now)
        if due > now:
            await self._sleep(due - now)

    async def _window(self, window: RateLimiter, item: RateLimitItemPerMinute, name: str, cost: int, ends: float) -> None:
        while not await window.hit(item, name, cost=cost):
            # The library tells its own time of day, so only the span until then is taken from it.
            wait = max(_LOOK, (await window.get_window_stats(item, name)).reset_time - self._clock.now())
            now = self._clock.monotonic()
            if now + wait > ends:
                raise _held_back(f"the limit of {item.amount} a minute is used up ({name})", wait)
            await self._sleep(wait)


def _held_back(why: str, wait: float | None) -> StepError:
    return StepError(f"held back here: {why}", type="RateLimited", not_done=True, retry_after=wait)
