"""Hints between processes that something is due. A hint may be lost; polling is the guarantee."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol
from uuid import UUID


class Wakeup(Protocol):
    """Tells other processes that an instance has news, and hears of theirs. Never raises, never blocks for long."""

    def tell(self, instance: UUID) -> None: ...

    def hear(self) -> AsyncIterator[UUID]: ...

    async def close(self) -> None: ...
