"""Pauses that endpoints of models asked for, told to all nodes over a channel of Redis: the number of milliseconds, and the key.

Lost news is no harm: a node that did not hear asks once, and is told by the endpoint.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from agiwo.leases.redis_channel import RedisChannel, one_by_one
from agiwo.leases.redis_link import RedisLink
from agiwo.ports.model_limits import LONGEST_PAUSE

CHANNEL = "agw:pauses"


class RedisPauses:
    """A PauseNews."""

    def __init__(self, link: RedisLink, channel: str = CHANNEL) -> None:
        self._channel = RedisChannel(link, channel, one_by_one)
        self.listening = self._channel.listening

    def tell(self, key: str, seconds: float) -> None:
        """Send it soon."""
        self._channel.tell(f"{int(1000 * min(seconds, LONGEST_PAUSE))} {key}".encode())

    async def hear(self) -> AsyncIterator[tuple[str, float]]:
        """What is told by all, this node too, for ever."""
        async for message in self._channel.hear():
            number, _, key = message.decode(errors="replace").partition(" ")
            # A message that is none of ours says nothing.
            if key and number.isascii() and number.isdigit() and len(number) < 12 and int(number) <= 1000 * LONGEST_PAUSE:
                yield key, int(number) / 1000

    async def close(self) -> None:
        """Drop what waits."""
        await self._channel.close()
