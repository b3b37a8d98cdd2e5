"""Calls behind circuit breakers, on the real path: a local HTTP server, the real executor, and calls that are made at one time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from agiwo.clock import SystemClock
from agiwo.definition.compiled import Kind, Step
from agiwo.definition.contract import Breaker, ToolContract
from agiwo.engine.attempts import Attempt, Attempts
from agiwo.errors import Failure, StepError
from agiwo.executors.breakers import Breakers
from agiwo.executors.guarded import GuardedCalls, key_of, model_circuit, tool_circuit
from agiwo.executors.tool_call import ToolCalls
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Outcome, Succeeded
from agiwo.outbound.connections import Connections
from agiwo.outbound.guard import Guard
from agiwo.ports.breakers import Circuit
from agiwo.ports.executor import Circumstances, ProbeAnswer
from agiwo.tools.builtin.database import query
from agiwo.tools.builtin.http import request
from agiwo.tools.registry import ToolRegistry
from agiwo.tools.tool import Probe, Tool, tool
from kit.engine import TestClock, until
from kit.web import Asked, Web, answer

WHERE = Circumstances(UUID(int=7), "flow", "1", "acme", "ab" * 16)


@dataclass
class Site:
    """A server that a test breaks and mends, and the calls that go to it."""

    web: Web
    clock: TestClock
    breakers: Breakers
    calls: GuardedCalls

    async def get(self, path: str = "/", *, tenant: str = "acme", within: float = 10.0) -> Succeeded | Failed:
        return await self.calls.perform(call(request, {"url": self.web.url(path)}, within), replace(WHERE, tenant=tenant))


def call(of: Tool, arguments: Any = None, within: float = 10.0) -> StartAttempt:
    step = Step("s", 0, Kind.TOOL_CALL, tool=of.name, contract=of.contract)
    return StartAttempt("s", step, 1, 1, arguments or {}, (), within, "key")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    connections = Connections((), Guard(("127.0.0.0/8",)))
    clock = TestClock()
    breakers = Breakers(clock, policies={"http.request": {"failures": 5, "open_for": 10.0}})
    async with Web(says={"/": answer(503)}) as web:
        tools = ToolCalls(ToolRegistry([request]), SystemClock(), connections=connections)
        yield Site(web, clock, breakers, GuardedCalls(tools, breakers, tool_circuit))
        await connections.close()


def kinds(outcomes: list[Any]) -> list[str]:
    return [outcome.failure.type if isinstance(outcome, Failed) else "ok" for outcome in outcomes]


async def test_calls_to_what_keeps_failing_do_not_reach_it_and_one_probe_finds_out_that_it_works_again(site: Site) -> None:
    """REQ-14."""
    assert kinds([await site.get() for _ in range(10)]) == ["Unavailable"] * 5 + ["CircuitOpen"] * 5
    assert len(site.web.asked) == 5
    refused = await site.get()
    assert isinstance(refused, Failed)
    assert refused.failure.cause is not None and refused.failure.cause["status"] == 503

    answered, arrived = asyncio.Event(), asyncio.Event()

    async def slowly(asked: Asked, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await answered.wait()
        writer.write(answer(200, "1"))

    site.web.says["/"] = slowly
    site.clock.advance(10)
    five = [asyncio.create_task(site.get()) for _ in range(5)]
    await arrived.wait()
    answered.set()
    assert sorted(kinds([await one for one in five])) == ["CircuitOpen"] * 4 + ["ok"]
    assert len(site.web.asked) == 6
    assert kinds([await site.get() for _ in range(3)]) == ["ok"] * 3
    assert site.breakers.snapshot() == []


async def test_another_tenant_another_host_and_another_tool_are_not_affected(site: Site) -> None:
    """REQ-14."""

    @tool(name="t.other", effect="read")
    async def other() -> int:
        return 1

    for _ in range(5):
        await site.get()
    assert kinds([await site.get()]) == ["CircuitOpen"]
    assert kinds([await site.get(tenant="else")]) == ["Unavailable"]
    both = GuardedCalls(ToolCalls(ToolRegistry([other]), SystemClock()), site.breakers, tool_circuit)
    assert await both.perform(call(other), WHERE) == Succeeded(1)


async def test_answers_that_refuse_do_not_open_the_circuit(site: Site) -> None:
    site.web.says["/"] = answer(404)
    assert kinds([await site.get() for _ in range(9)]) == ["NotFound"] * 9
    site.web.says["/"] = answer(429, Retry_After="7")
    outcomes = [await site.get() for _ in range(9)]
    assert kinds(outcomes) == ["RateLimited"] * 9
    assert isinstance(outcomes[0], Failed) and outcomes[0].failure.retry_after == 7


async def test_calls_that_were_stopped_count_for_nothing_and_free_the_place_of_the_probe(site: Site) -> None:
    arrived = asyncio.Event()

    async def never(asked: Asked, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await asyncio.Event().wait()

    for _ in range(5):
        await site.get()
    site.clock.advance(10)
    site.web.says["/"] = never
    probe = asyncio.create_task(site.get())
    await arrived.wait()
    assert kinds([await site.get()]) == ["CircuitOpen"]
    probe.cancel("cancelled by user:ann@example.com")
    with pytest.raises(asyncio.CancelledError):
        await probe
    site.web.says["/"] = answer(200, "1")
    assert kinds([await site.get()]) == ["ok"]
    assert site.breakers.snapshot() == []


async def test_calls_that_the_engine_ends_at_their_deadline_open_the_circuit() -> None:
    """REQ-13, REQ-14: what hangs is the commonest way to fail, and its calls are ended from outside."""

    @tool(name="t.hangs", effect="read", breaker={"failures": 2})
    async def hangs() -> None:
        await asyncio.Event().wait()

    breakers = Breakers(TestClock())
    guarded = GuardedCalls(ToolCalls(ToolRegistry([hangs]), SystemClock()), breakers, tool_circuit)
    assert kinds([await ended_by_engine(guarded, call(hangs, within=0.01)) for _ in range(3)]) == ["Timeout", "Timeout", "CircuitOpen"]


async def ended_by_engine(guarded: GuardedCalls, start: StartAttempt) -> Outcome | ProbeAnswer:
    attempts = Attempts(lambda kind: guarded, SystemClock(), None, cancel_grace=0.05, max_uncommitted=9, may_start=lambda: True)
    told: asyncio.Future[Outcome | ProbeAnswer] = asyncio.get_running_loop().create_future()
    attempts.start(Attempt(start, WHERE, lambda attempt, outcome: told.set_result(outcome)))
    return await told


async def test_a_thread_that_hangs_counts_as_failed_and_does_not_keep_the_place_of_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiwo.executors.guarded.OVERDUE", 0.0)
    go = threading.Event()

    @tool(name="t.hangs", effect="read", breaker={"failures": 1})
    def hangs() -> None:
        go.wait()

    breakers = Breakers(TestClock())
    guarded = GuardedCalls(ToolCalls(ToolRegistry([hangs]), SystemClock()), breakers, tool_circuit)
    hanging = asyncio.create_task(guarded.perform(call(hangs, within=0.01), WHERE))
    await until(breakers.snapshot)
    assert breakers.snapshot()[0].state == "open"
    go.set()
    await hanging
    assert breakers.snapshot()[0].failures == 1


async def test_a_probe_of_an_unknown_outcome_goes_by_the_circuit() -> None:
    async def ask(key: str, arguments: Any, ctx: Any) -> Probe:
        return Probe("not_done")

    @tool(name="t.pays", effect="write", reconcile=ask, breaker={"failures": 1})
    async def pays() -> None:
        raise StepError("away", type="Unavailable")

    breakers = Breakers(TestClock())
    guarded = GuardedCalls(ToolCalls(ToolRegistry([pays]), SystemClock()), breakers, tool_circuit)
    await guarded.perform(call(pays), WHERE)
    assert kinds([await guarded.perform(call(pays), WHERE)]) == ["CircuitOpen"]
    asked = StartProbe("s", call(pays).step, 1, 1, {}, (), "key")
    assert (await guarded.probe(asked, WHERE)).answer == "not_done"


async def test_an_outcome_that_takes_an_exception_with_it_frees_its_place() -> None:
    class Broken:
        async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
            raise RuntimeError("a mistake")

        async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
            return ProbeAnswer("unavailable")

    clock = TestClock()
    breakers = Breakers(clock)
    breakers.trip(Circuit("acme", "http.request", "h"), 5, "x")
    clock.advance(5)
    guarded = GuardedCalls(Broken(), breakers, tool_circuit)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await guarded.perform(call(request, {"url": "http://h/"}), WHERE)


@pytest.mark.parametrize(
    ("of", "arguments", "key"),
    [
        (request, {"url": "https://user@CRM.example.com/x?y"}, "crm.example.com"),
        (request, {"url": "http://crm.example.com:8080/"}, "crm.example.com:8080"),
        (request, {"url": "/x", "connection": "crm"}, "crm"),
        (request, {"url": "http://[::1"}, ""),
        (request, {"url": "http://h:99999999/"}, ""),
        (request, "all of them", ""),
        (query, {"query": "SELECT 1"}, "default"),
        (query, {"query": "SELECT 1", "connection": "sales"}, "sales"),
    ],
)
def test_what_tells_the_circuits_of_a_tool_apart(of: Tool, arguments: Any, key: str) -> None:
    breaker = of.contract.breaker
    assert breaker is not None
    assert key_of(of.contract, breaker, arguments) == key


def test_a_pure_tool_and_one_that_wants_none_have_no_circuit_and_a_model_has_one_by_profile() -> None:
    @tool(name="t.pure", effect="pure")
    async def pure() -> None: ...

    @tool(name="t.none", effect="read", breaker=False)
    async def none() -> None: ...

    assert tool_circuit(call(pure), WHERE) is None
    assert tool_circuit(call(none), WHERE) is None
    model = StartAttempt("m", Step("m", 0, Kind.LLM_TASK, llm={"profile": "small"}), 1, 1, {}, (), 5, "key")
    assert model_circuit(model, WHERE) == (Circuit("acme", "llm_task", "small"), Breaker())
    other = replace(model, step=replace(model.step, llm={"profile": "small", "fallback": ["large"]}))
    assert model_circuit(other, WHERE) is None


def test_a_declared_breaker_stands_in_the_contract() -> None:
    @tool(name="t.x", effect="read", breaker={"failures": 2, "open_for": 3, "key": "host"})
    async def x(host: str) -> None: ...

    assert x.contract.to_json()["breaker"] == {"failures": 2, "open_for": 3.0, "key": ["host"], "counts": []}
    assert x.contract.digest == replace(x.contract, breaker=None).digest, "when calls are held back is nothing that an approver relies on"
    assert ToolContract("t.y").to_json()["breaker"] == {"failures": 5, "open_for": 30.0, "key": [], "counts": []}


@pytest.mark.parametrize(
    "breaker", [{"failure": 1}, {"failures": 0}, {"failures": True}, {"open_for": 0}, {"open_for": 1e9}, {"key": "nothing"}]
)
def test_a_breaker_that_makes_no_sense_is_refused(breaker: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"t\.x"):

        @tool(name="t.x", effect="read", breaker=breaker)
        async def x(host: str) -> None: ...


def test_failures_have_the_words_of_the_circuit() -> None:
    breakers = Breakers(TestClock())
    breakers.trip(Circuit("acme", "t.x"), 5, "closed for repairs")
    failure = breakers.admit(Circuit("acme", "t.x"), Breaker())
    assert isinstance(failure, Failure)
    assert failure.message == "the circuit of t.x is open, and the call was not made; last failure: CircuitOpen: closed for repairs"
