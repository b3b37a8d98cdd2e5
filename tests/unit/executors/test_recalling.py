"""Last good results: kept beside the calls whose steps may ask for them, handed on when they do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agiwo.definition.compiled import Fallback, FallbackKind, Kind, Step
from agiwo.errors import Failure
from agiwo.executors.recalling import RecallingCalls
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded
from agiwo.ports.executor import Circumstances, ProbeAnswer
from agiwo.ports.last_good import CallDigest, GoodResult
from agiwo.ports.store import StoreUnavailable
from agiwo.store.memory_last_good import MemoryLastGood
from kit.engine import TestClock

WHERE = Circumstances(UUID(int=7), "flow", "1", "acme", "ab" * 16)
RECALL = Step("s", 0, Kind.TOOL_CALL, tool="t", recall=60.0)
STEP = Step("s", 0, Kind.TOOL_CALL, tool="t", fallback=Fallback(FallbackKind.LAST_GOOD, RECALL))


class Answers:
    """An executor that gives what a test puts there."""

    def __init__(self) -> None:
        self.says: Succeeded | Failed = Succeeded({"n": 1})
        self.calls = 0

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        self.calls += 1
        return self.says

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
        return ProbeAnswer("running")


class Away:
    """A storage that is not there."""

    async def keep(self, call: CallDigest, good: GoodResult, seconds: float) -> None:
        raise StoreUnavailable("away")

    async def find(self, call: CallDigest, since: float) -> GoodResult | None:
        raise StoreUnavailable("away")


def call(step: Step, arguments: Any = None, secrets: Any = None) -> StartAttempt:
    return StartAttempt("s", step, 1, 1, {"q": 1} if arguments is None else arguments, secrets, 5.0, "key")


async def test_the_last_good_result_of_the_same_call_is_handed_on_if_it_is_not_too_old() -> None:
    inner, clock = Answers(), TestClock()
    calls = RecallingCalls(inner, MemoryLastGood(clock), clock)
    assert await calls.perform(call(STEP), WHERE) == Succeeded({"n": 1})
    await calls.settled()
    inner.says = Failed(Failure("NetworkError", "away"))
    await calls.perform(call(STEP), WHERE)
    clock.advance(59)
    assert await calls.perform(call(RECALL), WHERE) == Succeeded({"n": 1})
    assert inner.calls == 2
    for other in (call(RECALL, {"q": 2}), call(RECALL, secrets=[{"pointer": "/q", "parts": [{"secret": "K"}]}])):
        assert isinstance(await calls.perform(other, WHERE), Failed)
    clock.advance(2)
    gone = await calls.perform(call(RECALL), WHERE)
    assert isinstance(gone, Failed)
    assert (gone.failure.type, gone.failure.message) == (
        "NotFound",
        "there is no good result of t with these arguments from the last 1m",
    )


async def test_another_tenant_has_results_of_its_own() -> None:
    clock = TestClock()
    calls = RecallingCalls(Answers(), MemoryLastGood(clock), clock)
    await calls.perform(call(STEP), WHERE)
    await calls.settled()
    other = Circumstances(UUID(int=7), "flow", "1", "other", "ab" * 16)
    assert isinstance(await calls.perform(call(RECALL), other), Failed)


async def test_only_steps_that_may_ask_for_it_keep_their_result() -> None:
    clock = TestClock()
    calls = RecallingCalls(Answers(), MemoryLastGood(clock), clock)
    await calls.perform(call(Step("s", 0, Kind.TOOL_CALL, tool="t")), WHERE)
    await calls.settled()
    assert isinstance(await calls.perform(call(RECALL), WHERE), Failed)
    assert (await calls.probe(StartProbe("s", STEP, 1, 1, {}, None, "key"), WHERE)).answer == "running"


async def test_a_storage_that_is_away_costs_no_step_its_result() -> None:
    calls = RecallingCalls(Answers(), Away(), TestClock())
    assert await calls.perform(call(STEP), WHERE) == Succeeded({"n": 1})
    await calls.settled()
    away = await calls.perform(call(RECALL), WHERE)
    assert isinstance(away, Failed)
    assert away.failure.type == "Unavailable"
