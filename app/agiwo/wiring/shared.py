"""What nodes share over Redis, each part with its way without: leases, hints, live progress, news of circuits and of pauses, rates.

It opens one way to Redis for all of them, says once when that goes and comes, and keeps nothing that would be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from agiwo.clock import Clock
from agiwo.engine.events import Event, Happening, Observe
from agiwo.leases.local_rates import LocalRateLimits
from agiwo.leases.redis_leases import RedisShardLeases
from agiwo.leases.redis_link import RedisLink
from agiwo.leases.redis_news import RedisBreakerNews
from agiwo.leases.redis_pauses import RedisPauses
from agiwo.leases.redis_progress import RedisProgress
from agiwo.leases.redis_rates import RedisRateLimits
from agiwo.leases.redis_wakeup import RedisWakeup
from agiwo.ports.progress import Progress
from agiwo.ports.rates import RateLimits
from agiwo.telemetry.log import Log
from agiwo.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts, all over one `link`."""

    link: RedisLink
    leases: RedisShardLeases
    wakeup: RedisWakeup
    progress: RedisProgress
    news: RedisBreakerNews
    pauses: RedisPauses
    rates: RateLimits

    def show(self, metrics: Metrics) -> None:
        """Add their numbers."""
        metrics.gauge("agiwo_redis_up", "Whether Redis answered when it was last asked.", lambda: self.link.up)
        metrics.gauge("agiwo_redis_gap_seconds", "How long Redis did not answer, in all, since the start.", lambda: self.link.gap)
        metrics.gauge("agiwo_shard_groups_held", "Groups of shards whose lease this node holds.", lambda: self.leases.groups)


@asynccontextmanager
async def shared_over_redis(url: str, clock: Clock, log: Log, nodes: Callable[[], int]) -> AsyncIterator[Shared]:
    """The parts over the Redis at `url`, which need not be there; `nodes` says how many share what it would count."""
    link = RedisLink(url, changed=_teller(clock, log))
    rates = RedisRateLimits(link, LocalRateLimits(clock, nodes))
    shared = Shared(link, RedisShardLeases(link), RedisWakeup(link), RedisProgress(link), RedisBreakerNews(link), RedisPauses(link), rates)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(link.close)
        for part in (shared.wakeup, shared.progress, shared.news, shared.pauses):
            stack.push_async_callback(part.close)
        listening = asyncio.create_task(shared.progress.listen())
        stack.push_async_callback(asyncio.wait, [listening])
        stack.callback(listening.cancel)
        yield shared


def progress_of(progress: Progress) -> Observe:
    """An observer of the engine that tells what was committed."""

    def observe(event: Event) -> None:
        if event.name is Happening.COMMITTED and event.where is not None and event.data["records"]:
            progress.tell(event.where.instance_id, event.data["records"][-1].seq)

    return observe


def _teller(clock: Clock, log: Log) -> Callable[[bool, str], None]:
    def changed(up: bool, reason: str) -> None:
        if up:
            log.line("info", "redis is back", clock.now())
        else:
            log.line("warning", "redis is away", clock.now(), reason=reason)

    return changed
