"""The outbox as people see it: what was to be delivered, how often it was tried, what the other side said.

Claiming and settling is the engine's side (`ports.store`); here is what is shown, sent again or sent for a trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from agiwo.ports.store import OutboxRow

STATES = ("pending", "delivered", "dead")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery; `due_at` is the next try of a pending one, `under_way` if a node is at it. Times in seconds since 1970."""

    id: UUID
    tenant: str
    instance: UUID | None
    seq: int
    kind: str
    target: str
    body: Mapping[str, Any]
    state: str
    tries: int
    due_at: float
    created_at: float
    under_way: bool = False
    last_status: int | None = None
    last_error: str | None = None
    settled_at: float | None = None


class Deliveries(Protocol):
    """All methods raise StoreUnavailable."""

    async def get(self, tenant: str, id: UUID) -> Delivery | None: ...

    async def listed(self, tenant: str, target: str | None, state: str | None, before: UUID | None, limit: int) -> list[Delivery]:
        """Newest first; those to one target, in one state, if asked for."""
        ...

    async def again(self, tenant: str, id: UUID) -> Delivery | None:
        """Have it delivered at once, whether it is pending, dead or was made; None if it is unknown or under way."""
        ...

    async def post(self, tenant: str, row: OutboxRow) -> None:
        """Put something into the outbox that belongs to no instance."""
        ...
