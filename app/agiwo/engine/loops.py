"""A loop of small rounds: each does its work once and says when the next is due.

It knows no purpose; it ends only by being cancelled, and one round's mistake does not end it.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterable

from agiwo.clock import Clock
from agiwo.engine.events import Event, Happening, Observe
from agiwo.ports.store import StoreUnavailable

AFTER_A_FAULT = 0.5  # seconds
ASK_AGAIN = 0.5  # seconds after which what was cancelled and goes on is cancelled again


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel these until all have ended: what a library in between does with a cancellation must not keep a node from stopping."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=ASK_AGAIN)


class Loop:
    """Runs `round` again and again; it returns the seconds until the next one."""

    def __init__(self, name: str, round: Callable[[], Awaitable[float]], clock: Clock, observe: Observe | None) -> None:
        self.name = name
        self._round = round
        self._clock = clock
        self._observe = observe
        self._hurry = asyncio.Event()
        self.lost = False

    def hurry(self) -> None:
        """Have the next round at once."""
        self._hurry.set()

    async def run(self) -> None:
        while True:
            self._hurry.clear()
            delay = await self._once()
            if delay > 0 and not self._hurry.is_set():
                try:
                    async with asyncio.timeout(delay):
                        await self._hurry.wait()
                except TimeoutError:
                    continue
            else:
                await asyncio.sleep(0)

    async def _once(self) -> float:
        try:
            delay = await self._round()
        except StoreUnavailable as exc:
            if not self.lost:
                self.lost = True
                self._tell(Happening.STORE_LOST, {"place": self.name, "message": str(exc)})
            return AFTER_A_FAULT
        except Exception:
            self._tell(Happening.LOOP_FAILED, {"loop": self.name, "traceback": traceback.format_exc()})
            return AFTER_A_FAULT
        if self.lost:
            self.lost = False
            self._tell(Happening.STORE_BACK, {"place": self.name})
        return delay

    def _tell(self, name: Happening, data: dict[str, str]) -> None:
        if self._observe is not None:
            self._observe(Event(name, self._clock.now(), data=data))
