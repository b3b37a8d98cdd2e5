"""Webhooks and deliveries in memory; for services without a database.

Nothing here awaits, so every method is one transaction.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from agiwo.clock import Clock, SystemClock
from agiwo.ports.deliveries import Delivery
from agiwo.ports.store import OutboxRow
from agiwo.ports.webhooks import Subscription, Webhook
from agiwo.store import memory
from agiwo.store.memory import MemoryDatabase


class MemoryWebhooks:
    """WebhookStore of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._webhooks: dict[tuple[str, UUID], Webhook] = {}
        self._news = 0

    async def news(self) -> int:
        return self._news

    async def subscriptions(self) -> list[Subscription]:
        return [Subscription(w.id, w.tenant, w.events, w.workflow, w.include_output) for w in self._webhooks.values() if w.active]

    async def add(self, webhook: Webhook) -> Webhook:
        return self._keep(webhook)

    async def get(self, tenant: str, id: UUID) -> Webhook | None:
        return self._webhooks.get((tenant, id))

    async def listed(self, tenant: str, before: UUID | None, limit: int) -> list[Webhook]:
        found = [w for w in self._webhooks.values() if w.tenant == tenant and (before is None or w.id < before)]
        return sorted(found, key=lambda w: w.id, reverse=True)[:limit]

    async def change(self, webhook: Webhook) -> Webhook | None:
        stands = self._webhooks.get((webhook.tenant, webhook.id))
        return None if stands is None or stands.revision != webhook.revision else self._keep(webhook)

    async def disable(self, tenant: str, id: UUID, reason: str) -> None:
        stands = self._webhooks.get((tenant, id))
        if stands is not None and stands.active:
            self._keep(replace(stands, active=False, disabled_reason=reason, updated_at=self._clock.now()))

    async def remove(self, tenant: str, id: UUID) -> bool:
        self._news += 1
        return self._webhooks.pop((tenant, id), None) is not None

    def _keep(self, webhook: Webhook) -> Webhook:
        self._news += 1
        kept = self._webhooks[webhook.tenant, webhook.id] = replace(webhook, revision=self._news)
        return kept


class MemoryDeliveries:
    """Deliveries on a MemoryDatabase."""

    def __init__(self, database: MemoryDatabase, clock: Clock | None = None) -> None:
        self._db = database
        self._clock = clock or SystemClock()

    async def get(self, tenant: str, id: UUID) -> Delivery | None:
        found = self._db.outbox.get(id)
        return None if found is None or found.tenant != tenant else _shown(found)

    async def listed(self, tenant: str, target: str | None, state: str | None, before: UUID | None, limit: int) -> list[Delivery]:
        found = [
            _shown(d)
            for id, d in self._db.outbox.items()
            if d.tenant == tenant
            and (target is None or d.row.target == target)
            and (state is None or d.state == state)
            and (before is None or id < before)
        ]
        return sorted(found, key=lambda d: d.id, reverse=True)[:limit]

    async def again(self, tenant: str, id: UUID) -> Delivery | None:
        found = self._db.outbox.get(id)
        if found is None or found.tenant != tenant or found.owner is not None:
            return None
        if found.state != "pending":
            found.state, found.tries, found.settled_at = "pending", 0, None
        found.due_at = self._clock.now()
        return _shown(found)

    async def post(self, tenant: str, row: OutboxRow) -> None:
        self._db.deliver(row, tenant, None, self._clock.now())


def _shown(d: memory.Delivery) -> Delivery:
    return Delivery(
        d.row.id, d.tenant, d.instance, d.seq, d.row.kind, d.row.target, d.row.body, d.state, d.tries, d.due_at, d.created_at,
        d.owner is not None, d.last_status, d.last_error, d.settled_at,
    )  # fmt: skip
