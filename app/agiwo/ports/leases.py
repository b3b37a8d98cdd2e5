"""Leases on groups of shards: which part of the queue this node looks at first. They spare nodes from reaching for the same rows.

No lease permits a write, and none is needed for one: the fence in the storage judges alone, and what is overdue anybody may take.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

#: Seconds after which what is due may be claimed by any node, whoever holds its group.
OVERDUE = 1.0


class ShardLeases(Protocol):
    """The leases of one node."""

    @property
    def shards(self) -> Collection[int] | None:
        """The shards whose leases this node holds; None while there is nobody to ask, and all may be claimed."""
        ...

    async def renew(self, able: bool) -> None:
        """Renew, take what is this node's share and give back what is more; a node that is not `able` to work gives back everything.

        To be called every second. Never raises, and answers within a moment whatever becomes of the other side.
        """
        ...
