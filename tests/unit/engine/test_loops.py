"""The ends of loops: whatever their rounds do with a cancellation."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import agiwo.engine.loops as loops
from agiwo.engine.loops import Loop, end
from kit.engine import TestClock


async def test_a_loop_ends_though_its_round_takes_a_cancellation_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client library in between may swallow it, and the node would never stop."""
    monkeypatch.setattr(loops, "ASK_AGAIN", 0.01)
    begun, swallowed = asyncio.Event(), []

    async def round() -> float:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.append(1)
        return 60.0

    loop = Loop("stubborn", round, TestClock(), None)
    task = asyncio.create_task(loop.run())
    await begun.wait()
    await end([task])
    assert task.cancelled() and swallowed == [1]


async def test_to_end_nothing_takes_no_time() -> None:
    await end([])
