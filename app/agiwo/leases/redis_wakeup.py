"""Wake-up hints over a channel of Redis: the instances that have news, many in one message.

It never raises and never blocks: the poll of each node is the guarantee.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from agiwo.leases.redis_channel import RedisChannel
from agiwo.leases.redis_link import RedisLink

CHANNEL = "agw:wake"


class RedisWakeup:
    """A Wakeup."""

    def __init__(self, link: RedisLink, channel: str = CHANNEL) -> None:
        self._channel = RedisChannel(link, channel)
        self.listening = self._channel.listening

    def tell(self, instance: UUID) -> None:
        """Send a hint soon; one that cannot be sent is dropped."""
        self._channel.tell(instance.bytes)

    async def hear(self) -> AsyncIterator[UUID]:
        """The hints of all, our own too, for ever."""
        async for message in self._channel.hear():
            # A message that is none of ours holds none.
            if len(message) % 16 == 0:
                for at in range(0, len(message), 16):
                    yield UUID(bytes=message[at : at + 16])

    async def close(self) -> None:
        """Drop what waits."""
        await self._channel.close()
