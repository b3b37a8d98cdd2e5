"""Streams of server-sent events: so many at once for each tenant, each counted from its first byte until its connection is gone.

Knows nothing of what is streamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from agiwo.errors import Overloaded

#: Seconds without news after which a comment is sent, and after which a client that takes nothing is given up.
HEARTBEAT, GIVEN_UP = 15, 30
STREAMS = 200


class Streams:
    """Counts the open streams of this process; `most` for each tenant."""

    def __init__(self, most: int = STREAMS) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def answer(self, tenant: str, events: AsyncIterator[ServerSentEvent]) -> EventSourceResponse:
        """The answer that streams these events. Raises Overloaded if the tenant has as many streams open as it may."""
        if self._open[tenant] >= self._most:
            raise Overloaded(
                f"{self._most} streams are open already; close some, or ask another node", code="too_many_streams", limit=self._most
            )
        return _Counted(events, tenant, self._open)


class _Counted(EventSourceResponse):
    def __init__(self, events: AsyncIterator[ServerSentEvent], tenant: str, opened: Counter[str]) -> None:
        super().__init__(events, ping=HEARTBEAT, send_timeout=GIVEN_UP)
        self._tenant = tenant
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._opened[self._tenant] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._opened[self._tenant] -= 1
            if not self._opened[self._tenant]:
                del self._opened[self._tenant]
