"""Calls beyond an operator's rate are not made and say so; what is not limited is never asked for."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from agiwo.executors.rated import Rate, RatedCalls
from agiwo.machine.commands import StartAttempt
from agiwo.machine.reports import Failed, Succeeded
from agiwo.ports.executor import Circumstances
from kit.engine import Calls, row, tool


class Counting:
    """A RateLimits that lets so many in, ever."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.asked: list[tuple[str, int, int]] = []

    async def acquire(self, name: str, limit: int, window: int, cost: int = 1) -> float:
        self.asked.append((name, limit, window))
        self.left -= 1
        return 0.0 if self.left >= 0 else 7.5

    async def charge(self, name: str, limit: int, window: int, cost: int) -> None:
        raise AssertionError("nothing is charged afterwards")


WHERE = Circumstances(uuid4(), "flow", "1", "default", "0" * 32)


def call(name: str) -> StartAttempt:
    step = row(tool(name)).body.steps[0]
    return StartAttempt(path=name, iteration=0, attempt=1, step=step, arguments={}, timeout=1.0, idempotency_key="k", secrets=())


async def test_a_call_beyond_the_rate_is_not_made_and_is_told_when_to_come_again() -> None:
    inner, limits = Calls(), Counting(1)
    calls = RatedCalls(inner, limits, {"crm.find": Rate(1, 60)})
    assert isinstance(await calls.perform(call("crm.find"), WHERE), Succeeded)
    refused = await calls.perform(call("crm.find"), WHERE)
    assert isinstance(refused, Failed)
    assert (refused.failure.type, refused.failure.not_done, refused.failure.retry_after) == ("RateLimited", True, 7.5)
    assert inner.paths == ["crm.find"]
    assert limits.asked == [("tool:crm.find", 1, 60)] * 2


async def test_a_tool_without_a_rate_is_not_counted() -> None:
    inner, limits = Calls(), Counting(0)
    calls = RatedCalls(inner, limits, {"crm.find": Rate(1, 60)})
    assert isinstance(await calls.perform(replace(call("other"), attempt=2), WHERE), Succeeded)
    assert limits.asked == []
