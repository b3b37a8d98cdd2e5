"""Whether the storage answers, told within a moment even where it neither answers nor refuses.

It asks one question at a time: a storage that is stuck is not asked again by everybody who wants to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

WITHIN = 2.0


class Readiness:
    """`ask` is the question; what has not answered it `within` seconds is not ready."""

    def __init__(self, ask: Callable[[], Awaitable[bool]], within: float = WITHIN) -> None:
        self._ask = ask
        self._within = within
        self._asking: asyncio.Future[bool] | None = None

    async def now(self) -> bool:
        """The answer; an earlier question that is still open counts as this one."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        done, _ = await asyncio.wait({self._asking}, timeout=self._within)
        return self._asking.result() if done else False
