"""Threads for sync functions: a bounded number, each released only when its function has really returned.

It must not keep the process alive: the threads are daemons, since nothing can stop a function that hangs.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any


class ToolThreads:
    """At most `size` sync functions at once; belongs to the event loop that first uses it."""

    def __init__(self, size: int = 32) -> None:
        self.size = size
        self.in_use = 0
        self._free = asyncio.Semaphore(size)

    async def run(self, function: Callable[[], Any]) -> Any:
        """What `function` gives, run in a thread of its own.

        Cancelled, it stops waiting at once; the function runs on, keeps its place until it returns, and what it gives is dropped.
        """
        await self._free.acquire()
        self.in_use += 1
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            self._leave()
            if done.cancelled():
                return
            if error is None:
                done.set_result(value)
            else:
                done.set_exception(error)

        def work() -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = function()
            except StopIteration:
                error = RuntimeError("the function raised StopIteration")
            except BaseException as exc:  # the thread's last line: whatever it is goes to the caller
                error = exc
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                return  # the loop was closed meanwhile; nobody waits any more

        try:
            threading.Thread(target=contextvars.copy_context().run, args=(work,), name="agiwo-tool", daemon=True).start()
        except RuntimeError:
            self._leave()
            raise
        return await done

    def _leave(self) -> None:
        self.in_use -= 1
        self._free.release()
