"""Notifiers of what goes to other systems: an event to a webhook, the end of an instance to the `callback_url` of its trigger.

Secrets are opened for one delivery and kept nowhere; an endpoint that says that it is gone gets nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from agiwo.clock import Clock, rfc3339
from agiwo.errors import NotFound
from agiwo.outbound.http import HttpCalls
from agiwo.outbound.sealing import Sealer
from agiwo.outbound.signatures import post_signed
from agiwo.ports.notifier import Undeliverable
from agiwo.ports.webhooks import WebhookStore
from agiwo.service.callers import PAYLOAD_VIEWER, Caller
from agiwo.service.instances import Instances
from agiwo.service.webhooks import about
from agiwo.values import decode, encode

GONE = "the endpoint said that it is gone (410)"


class WebhookNotices:
    """A Notifier of rows of kind `webhook`: `target` is the webhook's id, `body` has `id`, `tenant` and `event`."""

    def __init__(self, webhooks: WebhookStore, sealer: Sealer, calls: HttpCalls, clock: Clock) -> None:
        self._webhooks = webhooks
        self._sealer = sealer
        self._calls = calls
        self._clock = clock

    async def deliver(self, target: str, body: Mapping[str, Any]) -> int:
        """Send one event; gives the endpoint's status. Raises StepError, Undeliverable."""
        tenant, id = str(body["tenant"]), UUID(target)
        webhook = await self._webhooks.get(tenant, id)
        if webhook is None:
            raise Undeliverable("the webhook was deleted")
        if not webhook.active:
            raise Undeliverable(f"the webhook is off: {webhook.disabled_reason}")
        now = self._clock.now()
        keys = [self._sealer.open(secret.sealed, about(tenant, id)) for secret in webhook.secrets if secret.live(now)]
        headers = decode(self._sealer.open(webhook.headers, about(tenant, id))) if webhook.headers is not None else None
        try:
            return await post_signed(self._calls, webhook.url, body["id"], now, encode(body["event"]).encode(), keys, headers)
        except Undeliverable as exc:
            if exc.status == 410:
                await self._webhooks.disable(tenant, id, GONE)
            raise


class CallbackNotices:
    """A Notifier of rows of kind `callback`: `body` has `id`, `tenant`, `instance` and `url`; `secret` gives a tenant's secret."""

    def __init__(self, instances: Instances, secret: Callable[[str], str], calls: HttpCalls, clock: Clock) -> None:
        self._instances = instances
        self._secret = secret
        self._calls = calls
        self._clock = clock

    async def deliver(self, target: str, body: Mapping[str, Any]) -> int:
        """Send the view of an instance that has ended; gives the endpoint's status. Raises StepError, Undeliverable."""
        tenant = str(body["tenant"])
        try:
            # Whoever may start an instance may see what it gives, so whoever asked for it here does.
            view = await self._instances.view(Caller(tenant, "key:callback", frozenset({PAYLOAD_VIEWER})), UUID(body["instance"]))
        except NotFound:
            raise Undeliverable("the instance is no longer kept") from None
        now = self._clock.now()
        event = {"type": "instance.ended", "timestamp": view["ended_at"] or rfc3339(now), "data": view}
        return await post_signed(self._calls, body["url"], body["id"], now, encode(event).encode(), [self._secret(tenant)])
