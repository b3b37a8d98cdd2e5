"""Messages between nodes over Redis pub/sub: told once each few milliseconds, heard while a connection stands, lost otherwise.

It never raises and never blocks; whoever listens must have another way to learn what was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import RedisError

from agiwo.leases.redis_link import RedisAway, RedisLink

GATHER = 0.005  # seconds over which messages are gathered
MOST_WAITING = 1000  # messages; more are dropped
SILENCE = 5.0  # seconds without a message after which the connection is asked whether it is alive
PONG = 1.0  # seconds that the answer to that has

#: Makes what is sent of the messages that were gathered.
Pack = Callable[[Sequence[bytes]], Sequence[bytes]]


def together(messages: Sequence[bytes]) -> Sequence[bytes]:
    """Messages of one length in one."""
    return [b"".join(messages)]


def one_by_one(messages: Sequence[bytes]) -> Sequence[bytes]:
    """Each message for itself."""
    return messages


class RedisChannel:
    """One channel. A message that waits already is not told twice; `pack` makes fewer of many."""

    def __init__(self, link: RedisLink, name: str, pack: Pack = together) -> None:
        self._link = link
        self._name = name
        self._pack = pack
        self._waiting: dict[bytes, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()

    def tell(self, message: bytes) -> None:
        """Send it soon; one that cannot be sent is dropped."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting[message] = None
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def hear(self) -> AsyncIterator[bytes]:
        """What is told on the channel, by this node too, for ever: it connects again when Redis was away."""
        while True:
            try:
                async with self._link.subscribed(self._name) as subscription:
                    self.listening.set()
                    asked = False
                    while True:
                        message = await subscription.get_message(ignore_subscribe_messages=False, timeout=PONG if asked else SILENCE)
                        if message is None:
                            # Half-open connections look like silence.
                            if asked:
                                raise RedisError("no answer to a ping")
                            await subscription.ping()
                            asked = True
                            continue
                        asked = False
                        if message["type"] == "message" and isinstance(message["data"], bytes):
                            yield message["data"]
            except RedisAway:
                pass
            finally:
                self.listening.clear()
            await asyncio.sleep(self._link.pause())

    async def close(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        while self._waiting:
            await asyncio.sleep(GATHER)
            gathered, self._waiting = list(self._waiting), {}
            for message in self._pack(gathered):
                try:
                    await self._link.ask(partial(self._publish, message))
                except RedisAway:
                    break

    async def _publish(self, message: bytes, redis: Redis) -> None:
        await redis.publish(self._name, message)
