"""Which webhooks want what, as this node knows it: read anew whenever any of them has changed, looked at each second.

An event within a second of a change may still go by what was known before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agiwo.clock import Clock
from agiwo.engine.events import Observe
from agiwo.engine.loops import Loop
from agiwo.ports.webhooks import Subscription, SubscriptionFeed

LOOK = 1.0  # seconds


class Subscriptions:
    """The active webhooks by tenant; empty without a feed."""

    def __init__(self, feed: SubscriptionFeed | None, clock: Clock, observe: Observe | None) -> None:
        self._feed = feed
        self._known: int | None = None
        self.by_tenant: Mapping[str, Sequence[Subscription]] = MappingProxyType({})
        self._loop = Loop("subscriptions", self.round, clock, observe)

    def hurry(self) -> None:
        """Something changed."""
        self._loop.hurry()

    async def run(self) -> None:
        """Keep them fresh until cancelled."""
        if self._feed is not None:
            await self._loop.run()

    async def round(self) -> float:
        """Read them anew if they changed; gives the seconds until the next look. Raises StoreUnavailable."""
        if self._feed is not None and (news := await self._feed.news()) != self._known:
            found: dict[str, list[Subscription]] = {}
            for subscription in await self._feed.subscriptions():
                found.setdefault(subscription.tenant, []).append(subscription)
            self.by_tenant = {tenant: tuple(all) for tenant, all in found.items()}
            self._known = news
        return LOOK
