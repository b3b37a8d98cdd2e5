"""News of circuits over a channel of Redis, one message a change, as JSON.

Lost news is no harm: each node counts for itself then. What is none of ours on the channel is passed over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from agiwo.leases.redis_channel import RedisChannel, one_by_one
from agiwo.leases.redis_link import RedisLink
from agiwo.ports.breakers import CLOSED, OPEN, BreakerChange, Circuit
from agiwo.values import decode, encode

CHANNEL = "agw:circuits"
LONGEST = 86_400.0  # seconds that anybody's news may keep a circuit open


class RedisBreakerNews:
    """A BreakerNews."""

    def __init__(self, link: RedisLink, channel: str = CHANNEL) -> None:
        self._channel = RedisChannel(link, channel, one_by_one)
        self.listening = self._channel.listening

    def tell(self, change: BreakerChange) -> None:
        """Send it soon."""
        circuit = change.circuit
        body = {
            "tenant": circuit.tenant,
            "name": circuit.name,
            "key": circuit.key,
            "state": change.state,
            "seconds": change.seconds,
            "error": None if change.error is None else dict(change.error),
        }
        self._channel.tell(encode(body).encode())

    async def hear(self) -> AsyncIterator[BreakerChange]:
        """What is told by all, this node too, for ever."""
        async for message in self._channel.hear():
            if (change := _change(message)) is not None:
                yield change

    async def close(self) -> None:
        """Drop what waits."""
        await self._channel.close()


def _change(message: bytes) -> BreakerChange | None:
    try:
        body = decode(message.decode())
        tenant, name, key, state = (body[word] for word in ("tenant", "name", "key", "state"))
        seconds, error = float(body["seconds"]), body["error"]
    except (ValueError, TypeError, KeyError):
        return None
    if not all(isinstance(word, str) for word in (tenant, name, key)) or state not in (OPEN, CLOSED) or not 0 <= seconds <= LONGEST:
        return None
    if error is not None and not (isinstance(error, dict) and {"type", "message"} <= error.keys()):
        return None
    return BreakerChange(Circuit(tenant, name, key), state, seconds, error)
