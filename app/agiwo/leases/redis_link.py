"""The one way to Redis: every question has a short time limit, and while Redis is away nobody waits for it.

It holds no key and knows no purpose. What it cannot answer it says at once, and everybody has something else to do then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random, SystemRandom
from typing import TypeVar

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

TIMEOUT = 0.5  # seconds for any question, its connection included
SHORTEST, LONGEST = 0.25, 2.0  # seconds before Redis is asked again, from the first failure on
IDLE = 15.0  # seconds after which a connection that was not used is tried before it is used

T = TypeVar("T")
_AWAY = (RedisError, OSError, TimeoutError)

#: Told of every change: whether Redis answers now, and why not.
Notice = Callable[[bool, str], None]


class RedisAway(Exception):
    """Redis does not answer, or was found not to a moment ago."""


class RedisLink:
    """Asks the Redis at `url`. `changed` hears once of each change; `timeout` is seconds."""

    def __init__(self, url: str, *, changed: Notice | None = None, timeout: float = TIMEOUT, random: Random | None = None) -> None:
        self.client: Redis = Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            health_check_interval=IDLE,
            retry=Retry(NoBackoff(), 0),
            client_name="agiwo",
        )
        self._changed = changed
        self._timeout = timeout
        self._random = random or SystemRandom()
        self._down_since: float | None = None
        self._again_at = 0.0
        self._failures = 0
        self._gone = 0.0

    @property
    def up(self) -> bool:
        """Whether it answered when it was last asked."""
        return self._down_since is None

    @property
    def gap(self) -> float:
        """Seconds, in all, in which it did not answer."""
        return self._gone + (0.0 if self._down_since is None else time.monotonic() - self._down_since)

    async def ask(self, question: Callable[[Redis], Awaitable[T]]) -> T:
        """The answer. Raises RedisAway; while Redis is away that costs no time, but for one question now and then that tries again."""
        if self._down_since is not None:
            if time.monotonic() < self._again_at:
                raise RedisAway("it did not answer a moment ago")
            self._put_off()  # one question at a time tries again
        asking = asyncio.current_task()
        cancelled = 0 if asking is None else asking.cancelling()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await question(self.client)
        except _AWAY as exc:
            self.failed(exc)
            await self._hang_up()
            raise RedisAway(str(exc)) from exc
        finally:
            # The client takes some cancellations for its own and goes on: whoever was cancelled here would never end.
            if asking is not None and asking.cancelling() > cancelled:
                raise asyncio.CancelledError
        self._works()
        return answer

    @asynccontextmanager
    async def subscribed(self, channel: str) -> AsyncIterator[PubSub]:
        """A subscription that stands when the block begins. Raises RedisAway, also for what its user meets inside."""
        try:
            async with self.client.pubsub(ignore_subscribe_messages=True) as subscription:
                async with asyncio.timeout(self._timeout):
                    await subscription.subscribe(channel)
                self._works()
                yield subscription
        except _AWAY as exc:
            self.failed(exc)
            raise RedisAway(str(exc)) from exc

    def pause(self) -> float:
        """Seconds until it is worth to connect again."""
        return max(SHORTEST, self._again_at - time.monotonic())

    async def close(self) -> None:
        """Close all connections."""
        await self.client.aclose()

    def failed(self, exc: Exception) -> None:
        """Something did not come back."""
        if self._down_since is None:
            self._down_since = time.monotonic()
            self._failures = 0
            if self._changed is not None:
                self._changed(False, f"{type(exc).__name__}: {exc}")
        self._put_off()

    async def _hang_up(self) -> None:
        # What answers with a refusal may have become a replica: only a new connection finds who has taken its place.
        with suppress(*_AWAY):
            async with asyncio.timeout(self._timeout):
                await self.client.connection_pool.disconnect(inuse_connections=False)

    def _put_off(self) -> None:
        self._failures += 1
        pause = min(LONGEST, SHORTEST * 2 ** min(self._failures - 1, 10))
        # Not all nodes in the same moment.
        self._again_at = time.monotonic() + pause * self._random.uniform(0.5, 1.0)

    def _works(self) -> None:
        if self._down_since is not None:
            self._gone += time.monotonic() - self._down_since
            self._down_since = None
            self._failures = 0
            if self._changed is not None:
                self._changed(True, "")
