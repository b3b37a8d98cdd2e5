"""A long call gives signs of life, or is stopped: LANGUAGE 5, "Clocks"."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from agiwo.definition.compiled import Retry, Step
from agiwo.machine.commands import StartAttempt
from agiwo.machine.reports import Failed, Succeeded
from agiwo.ports.executor import Circumstances
from kit.engine import Calls, World, row, tool

Make = Callable[..., World]


def beating(seconds: float) -> Callable[[int], Step]:
    made = tool("a", timeout=60.0, retry=Retry(1, 0.0))
    return lambda index: replace(made(index), heartbeat=seconds)


async def test_a_silent_call_is_stopped_long_before_its_timeout(world: Make) -> None:
    w = world(row(beating(0.02)), Calls(held=["a"]))
    _, ended = await w.begin(await w.node())
    error = (await ended).runs["a"].error
    assert (error["type"], error["details"]["clock"]) == ("Timeout", "heartbeat")
    assert w.calls.cancelled == [("a", 1)]


class Signing(Calls):
    """A call that says something more often than it has to, for many times as long as it may be silent."""

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        for done in range(10):
            where.sign({"done": done})
            await asyncio.sleep(0.01)
        return Succeeded("done")


async def test_a_call_that_gives_signs_may_take_its_time(world: Make) -> None:
    w = world(row(beating(0.05)), Signing())
    _, ended = await w.begin(await w.node())
    assert (await ended).runs["a"].output == "done"
