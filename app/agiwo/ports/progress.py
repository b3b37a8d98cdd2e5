"""Live progress: the node that drives an instance tells which record it has committed last, and who follows it elsewhere looks at once.

What is told may be lost; whoever waits has a longest wait, after which it looks anyway.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class Follower(Protocol):
    """Hears of one instance from its making until it is closed."""

    async def beyond(self, seq: int, longest: float) -> None:
        """Return when a record above `seq` was told of, before or after this call, or after `longest` seconds."""
        ...

    def close(self) -> None: ...


class Progress(Protocol):
    """Tells and hears of commits."""

    def tell(self, instance: UUID, seq: int) -> None:
        """Records up to `seq` are durable. Never raises, never blocks."""
        ...

    def follow(self, instance: UUID) -> Follower:
        """Hear of this instance from now on."""
        ...
