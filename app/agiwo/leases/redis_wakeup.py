"""Wake-up hints over Redis pub/sub: told once each few milliseconds, heard while a connection stands, lost otherwise.

It never raises and never blocks for long: the poll of each node is the guarantee.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import UUID

from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

CHANNEL = "agw:wake"
GATHER = 0.005  # seconds over which hints are gathered into one message
TIMEOUT = 0.5  # seconds for any call
AGAIN = 1.0  # seconds before another connection is tried
MOST_WAITING = 1000  # hints; more are dropped
SILENCE = 10.0  # seconds without a message after which the connection is asked whether it is alive

Notice = Callable[[str], None]


class RedisWakeup:
    """Tells and hears over one channel of the Redis at `url`; `lost` is told once when it goes away, with the reason."""

    def __init__(self, url: str, *, channel: str = CHANNEL, lost: Notice | None = None) -> None:
        self._redis: Redis = Redis.from_url(
            url,
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )
        self._channel = channel
        self._lost = lost
        self._down = False
        self._waiting: dict[UUID, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()

    def tell(self, instance: UUID) -> None:
        """Send a hint soon; one that cannot be sent is dropped."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting[instance] = None
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def hear(self) -> AsyncIterator[UUID]:
        """The hints of all, our own too, for ever: it connects again when Redis was away."""
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:
                    await subscription.subscribe(self._channel)
                    self._is_up()
                    self.listening.set()
                    while True:
                        message = await subscription.get_message(timeout=SILENCE)
                        if message is None:
                            # Half-open connections look like silence.
                            await subscription.ping()
                            continue
                        for instance in _instances(message["data"]):
                            yield instance
            except (RedisError, OSError, TimeoutError) as exc:
                self._is_down(exc)
            finally:
                self.listening.clear()
            await asyncio.sleep(AGAIN)

    async def close(self) -> None:
        """Drop what waits and close the connections."""
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._redis.aclose()

    async def _send(self) -> None:
        while self._waiting:
            await asyncio.sleep(GATHER)
            gathered, self._waiting = self._waiting, {}
            try:
                await self._redis.publish(self._channel, b"".join(instance.bytes for instance in gathered))
            except (RedisError, OSError, TimeoutError) as exc:
                self._is_down(exc)
            else:
                self._is_up()

    def _is_up(self) -> None:
        self._down = False

    def _is_down(self, exc: Exception) -> None:
        if not self._down:
            self._down = True
            if self._lost is not None:
                self._lost(f"{type(exc).__name__}: {exc}")


def _instances(data: object) -> list[UUID]:
    """The ids in a message; a message that is none of ours has none."""
    if not isinstance(data, bytes) or len(data) % 16:
        return []
    return [UUID(bytes=data[at : at + 16]) for at in range(0, len(data), 16)]
