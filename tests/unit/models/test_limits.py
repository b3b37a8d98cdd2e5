"""Limits on calls that a node keeps for itself, over a clock that only the test moves."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from agiwo.errors import StepError
from agiwo.leases.local_rates import LocalRateLimits
from agiwo.models.limits import SPREAD, LocalModelLimits
from agiwo.ports.model_limits import Allowance
from kit.engine import TestClock

FREE = Allowance()


class Waiting:
    """Limits whose waits move the clock, and are written down."""

    def __init__(self) -> None:
        self.clock = TestClock()
        self.waits: list[float] = []
        self.limits = LocalModelLimits(self.clock, Random(1), LocalRateLimits(self.clock), self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)

    async def call(self, allowance: Allowance = FREE, *, tokens: int = 1, patience: float = 0.0, used: int | None = None) -> None:
        async with self.limits.call("p/m", allowance, tokens, patience) as permit:
            permit.tokens = tokens if used is None else used

    async def held_back(self, allowance: Allowance = FREE, *, tokens: int = 1, patience: float = 0.0) -> StepError:
        with pytest.raises(StepError) as caught:
            await self.call(allowance, tokens=tokens, patience=patience)
        assert (caught.value.type, caught.value.not_done) == ("RateLimited", True)
        return caught.value


async def test_without_limits_nobody_waits() -> None:
    world = Waiting()
    for _ in range(100):
        await world.call()
    assert world.waits == []


async def test_calls_of_a_minute_are_counted_and_the_next_is_told_how_long_to_wait() -> None:
    world = Waiting()
    for _ in range(3):
        await world.call(Allowance(rpm=3))
    assert (await world.held_back(Allowance(rpm=3))).retry_after is not None


async def test_tokens_are_counted_by_what_a_call_took() -> None:
    world = Waiting()
    await world.call(Allowance(tpm=100), tokens=10, used=95)
    await world.held_back(Allowance(tpm=100), tokens=10)


async def test_a_prompt_above_the_whole_limit_is_not_held_back_for_ever() -> None:
    await Waiting().call(Allowance(tpm=100), tokens=5000)


async def test_only_so_many_calls_are_under_way_and_a_place_comes_free() -> None:
    world = Waiting()
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(world.limits.call("p/m", Allowance(max_concurrency=2), 1, 10))
        await world.held_back(Allowance(max_concurrency=2))
        waiting = asyncio.ensure_future(world.call(Allowance(max_concurrency=2), patience=60))
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def test_after_a_pause_nobody_comes_too_early_and_all_come_spread() -> None:
    """REQ-12: Retry-After is a floor for every step, and the second calls are spread."""
    begun = TestClock().now()
    came = []
    for number in range(50):
        world = Waiting()
        world.limits = LocalModelLimits(world.clock, Random(number), LocalRateLimits(world.clock), world._sleep)
        world.limits.cool_down("p/m", 7)
        await world.call(patience=60)
        came.append(world.clock.now() - begun)
    assert min(came) >= 7
    assert max(came) <= 7 + SPREAD
    assert max(came) - min(came) > 1


async def test_who_comes_back_exactly_at_the_end_of_a_pause_is_spread_too() -> None:
    """REQ-12: a retry without jitter of its own."""
    world = Waiting()
    world.limits.cool_down("p/m", 7)
    world.clock.advance(7)
    await world.call(patience=60)
    assert len(world.waits) == 1


async def test_a_pause_longer_than_the_step_can_wait_fails_at_once_and_says_so() -> None:
    """REQ-12: a wait longer than the remaining time fails at once with a clear reason."""
    world = Waiting()
    world.limits.cool_down("p/m", 86_400)
    failure = await world.held_back(patience=30)
    assert failure.retry_after is not None and failure.retry_after >= 86_400
    assert "pause" in failure.message
    assert world.waits == []


async def test_a_shorter_pause_does_not_shorten_a_longer_one() -> None:
    world = Waiting()
    world.limits.cool_down("p/m", 50)
    world.limits.cool_down("p/m", 1)
    await world.held_back(patience=30)
