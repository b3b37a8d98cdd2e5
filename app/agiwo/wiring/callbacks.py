"""Gives the executor of tools the addresses at which calls are answered later; executors know neither keys nor the public address."""

from __future__ import annotations

from agiwo.clock import Clock
from agiwo.executors.tool_call import Callbacks
from agiwo.ports.executor import Circumstances
from agiwo.service.tokens import Awaited, CallbackLinks
from agiwo.tools.context import CallbackUrls

#: Seconds beyond the step's own clocks for which an address is good, so that a late answer is told what became of the step.
GRACE = 3600.0


def callback_urls(links: CallbackLinks, clock: Clock) -> Callbacks:
    """Addresses for one run, good for as long as its step may wait."""

    def urls(where: Circumstances, path: str, attempt: int, seconds: float) -> CallbackUrls:
        url = links.url(Awaited(where.tenant, where.instance_id, path, attempt, clock.now() + seconds + GRACE))
        return CallbackUrls(url, f"{url}/fail", f"{url}/heartbeat")

    return urls
