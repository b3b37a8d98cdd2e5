"""Webhooks of tenants: where to send which events, and what the engine has to know of them while it writes.

Secrets pass through here sealed; nothing here can open them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A signing secret; it signs from `since` until `until` (seconds since 1970, None for as long as it is not rotated)."""

    sealed: str
    since: float
    until: float | None = None

    def live(self, now: float) -> bool:
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook. `events` are names or `PREFIX.*`; `headers` are sealed, their names are not; `include_output` adds outputs.

    `revision` grows with every change; times in seconds since 1970.
    """

    id: UUID
    tenant: str
    url: str
    events: tuple[str, ...]
    secrets: tuple[SealedSecret, ...]
    created_at: float
    updated_at: float
    created_by: str | None = None
    workflow: str | None = None
    description: str | None = None
    header_names: tuple[str, ...] = ()
    headers: str | None = None
    include_output: bool = False
    active: bool = True
    disabled_reason: str | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the engine knows of an active webhook: which events of which workflow (None: of all) go there."""

    id: UUID
    tenant: str
    events: tuple[str, ...]
    workflow: str | None = None
    include_output: bool = False

    def wants(self, event: str) -> bool:
        return any(event == wanted or (wanted.endswith("*") and event.startswith(wanted[:-1])) for wanted in self.events)


class SubscriptionFeed(Protocol):
    """How nodes learn of webhooks. Raises StoreUnavailable."""

    async def news(self) -> int:
        """A number that is another one after every change of any webhook; costs next to nothing."""
        ...

    async def subscriptions(self) -> Sequence[Subscription]:
        """All active webhooks of all tenants."""
        ...


class WebhookStore(SubscriptionFeed, Protocol):
    """The webhooks themselves. All methods raise StoreUnavailable."""

    async def add(self, webhook: Webhook) -> Webhook: ...

    async def get(self, tenant: str, id: UUID) -> Webhook | None: ...

    async def listed(self, tenant: str, before: UUID | None, limit: int) -> list[Webhook]:
        """Newest first."""
        ...

    async def change(self, webhook: Webhook) -> Webhook | None:
        """Store it as it is given, if it still has the revision that it was read with; else None."""
        ...

    async def disable(self, tenant: str, id: UUID, reason: str) -> None:
        """Send nothing there any more; one that is disabled keeps its first reason."""
        ...

    async def remove(self, tenant: str, id: UUID) -> bool: ...
