"""Limits on calls of models: rates as they are counted for all nodes, pauses as nodes tell each other, places of this node alone.

Forgets with the process what it keeps, and knows nothing of who else counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from agiwo.clock import Clock
from agiwo.errors import StepError
from agiwo.ports.model_limits import Allowance, PauseNews, Permit
from agiwo.ports.rates import RateLimits

#: Seconds over which those that waited for the end of a pause come back, at most.
SPREAD = 2.0
MINUTE = 60

Sleep = Callable[[float], Awaitable[None]]


class LocalModelLimits:
    """A ModelLimits of one node over `rates`.

    `random` spreads those that come back after a pause; `sleep` waits so many seconds; `news` tells other nodes of pauses.
    """

    def __init__(
        self, clock: Clock, random: Random, rates: RateLimits, sleep: Sleep = asyncio.sleep, news: PauseNews | None = None
    ) -> None:
        self._clock = clock
        self._random = random
        self._sleep = sleep
        self._rates = rates
        self._news = news
        self._places: dict[str, asyncio.Semaphore] = {}
        self._pauses: dict[str, tuple[float, float]] = {}

    def cool_down(self, key: str, seconds: float) -> None:
        self.heard(key, seconds)
        if self._news is not None:
            self._news.tell(key, seconds)

    async def listen(self) -> None:
        """Follow what other nodes were told, for ever; returns at once without news."""
        if self._news is not None:
            async for key, seconds in self._news.hear():
                self.heard(key, seconds)

    def heard(self, key: str, seconds: float) -> None:
        """An endpoint has asked some node for a pause. Our own news, heard again, hardly changes anything."""
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
                await self._window(f"{key}/calls", allowance.rpm, 1, ends)
            if allowance.tpm is not None:
                await self._window(f"{key}/tokens", allowance.tpm, charged, ends)
            permit = Permit(tokens)
            try:
                yield permit
            finally:
                if allowance.tpm is not None and permit.tokens > charged:
                    await self._rates.charge(f"model:{key}/tokens", allowance.tpm, MINUTE, permit.tokens - charged)

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

    async def _window(self, name: str, limit: int, cost: int, ends: float) -> None:
        while wait := await self._rates.acquire(f"model:{name}", limit, MINUTE, cost):
            now = self._clock.monotonic()
            if now + wait > ends:
                raise _held_back(f"the limit of {limit} a minute is used up ({name})", wait)
            await self._sleep(wait)


def _held_back(why: str, wait: float | None) -> StepError:
    return StepError(f"held back here: {why}", type="RateLimited", not_done=True, retry_after=wait)
