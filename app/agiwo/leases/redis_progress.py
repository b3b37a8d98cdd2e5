"""Live progress over a channel of Redis: instances with the number of their last committed record, many in one message.

No record travels here: whoever is woken reads the history, so that nothing older, newer or other than what is committed is ever shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from agiwo.leases.redis_channel import RedisChannel
from agiwo.leases.redis_link import RedisLink

CHANNEL = "agw:live"
_LENGTH = 20  # bytes: the id, and the number of the record


class RedisFollower:
    """A Follower. `told` is the highest number that was heard."""

    def __init__(self, instance: UUID, all: dict[UUID, list[RedisFollower]]) -> None:
        self._instance = instance
        self._all = all
        self._moved = asyncio.Event()
        self._told = 0
        all.setdefault(instance, []).append(self)

    def heard(self, seq: int) -> None:
        """A node has committed the record of this number."""
        if seq > self._told:
            self._told = seq
            self._moved.set()

    async def beyond(self, seq: int, longest: float) -> None:
        try:
            async with asyncio.timeout(longest):
                while self._told <= seq:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        followers = self._all.get(self._instance, [])
        if self in followers:
            followers.remove(self)
        if not followers:
            self._all.pop(self._instance, None)


class RedisProgress:
    """A Progress; `listen` must run for anything to be heard."""

    def __init__(self, link: RedisLink, channel: str = CHANNEL) -> None:
        self._channel = RedisChannel(link, channel, _newest)
        self._followers: dict[UUID, list[RedisFollower]] = {}
        self.listening = self._channel.listening

    def tell(self, instance: UUID, seq: int) -> None:
        self._channel.tell(instance.bytes + seq.to_bytes(4, "big"))

    def follow(self, instance: UUID) -> RedisFollower:
        return RedisFollower(instance, self._followers)

    async def listen(self) -> None:
        """Hear what is told, for ever."""
        async for message in self._channel.hear():
            # A message that is none of ours holds nothing.
            if len(message) % _LENGTH == 0:
                for at in range(0, len(message), _LENGTH):
                    for follower in self._followers.get(UUID(bytes=message[at : at + 16]), ()):
                        follower.heard(int.from_bytes(message[at + 16 : at + _LENGTH], "big"))

    async def close(self) -> None:
        """Drop what waits to be told."""
        await self._channel.close()


def _newest(messages: Sequence[bytes]) -> Sequence[bytes]:
    """Of each instance what was told last, all in one message."""
    last = {message[:16]: message for message in messages}
    return [b"".join(last.values())]
