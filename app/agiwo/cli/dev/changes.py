"""Whether files have changed, told by their size and time, once they have stood still for a moment.

It looks again and again instead of asking the system for news: the files are few, and this works on every kind of folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

#: Seconds between two looks.
LOOK = 0.2

Marks = Mapping[Path, tuple[int, int, int]]


def marks(files: Iterable[Path]) -> Marks:
    """What tells the present state of these files from any other; those that are not there are left out."""
    found = {}
    for path in files:
        with suppress(OSError):
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return found


async def changed(look: Callable[[], Marks], known: Marks) -> Marks:
    """The next marks that differ from `known`, once they have stood still for one look: no file is read while it is written."""
    before = known
    while True:
        await asyncio.sleep(LOOK)
        now = await asyncio.to_thread(look)
        if now == before and now != known:
            return now
        before = now


def differing(old: Marks, new: Marks) -> list[Path]:
    """The files that came, went or changed."""
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
