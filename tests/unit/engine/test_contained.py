"""A call in its task, whenever the task ends."""

from __future__ import annotations

import asyncio
import gc

import pytest

from agiwo.engine.attempts import _contained


async def test_a_call_that_is_cancelled_before_its_first_step_is_never_made() -> None:
    made: list[int] = []

    async def call(number: int) -> None:
        made.append(number)

    task = asyncio.create_task(_contained(call, 1))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # A coroutine that was made and not awaited would complain here, and complaints are errors.
    gc.collect()
    assert made == []
