"""Work that takes a processor for long, done beside the event loop: leases are kept and streams are fed there.

Two threads of its own, so that neither tools nor a storm of large texts can hold up what an instance needs to go on; it must not wait for
anything outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(2, thread_name_prefix="agiwo-beside")


async def beside(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """What `function` gives, computed in another thread."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: function(*args, **options))
