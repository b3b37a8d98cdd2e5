"""The executor of tool calls: secrets in and out, every ending in the closed vocabulary, threads that cannot be stopped."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from agiwo.clock import SystemClock
from agiwo.definition.compiled import Kind, Step
from agiwo.errors import StepError
from agiwo.executors.tool_call import ToolCalls
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded
from agiwo.ports.executor import Circumstances, ProbeAnswer
from agiwo.telemetry.log import Log
from agiwo.template import SecretName, SecretSlot
from agiwo.tools.context import ToolContext
from agiwo.tools.registry import ToolRegistry
from agiwo.tools.tool import Probe, Tool, tool
from agiwo.values import decode

WHERE = Circumstances(UUID(int=7), "flow", "1", "default", "ab" * 16)
SECRET = "pa55/word"


def call(name: str, arguments: Any = None, secrets: Any = (), timeout: float = 5.0) -> StartAttempt:
    return StartAttempt("s~2", Step("s", 0, Kind.TOOL_CALL, tool=name), 2, 3, arguments or {}, secrets, timeout, "key")


def executor(*tools: Tool, secrets: Mapping[str, str] | None = None, log: Any = None) -> ToolCalls:
    return ToolCalls(ToolRegistry(tools), SystemClock(), secrets=secrets or {"TOKEN": SECRET}, log=log)


async def test_a_tool_is_told_where_its_call_belongs() -> None:
    seen: list[ToolContext] = []

    @tool(name="t.see", effect="pure")
    async def see(x: int, ctx: ToolContext) -> int:
        seen.append(ctx)
        return x + 1

    assert await executor(see).perform(call("t.see", {"x": 1}), WHERE) == Succeeded(2)
    (ctx,) = seen
    assert (ctx.instance_id, ctx.step, ctx.iteration, ctx.attempt, ctx.idempotency_key) == (str(WHERE.instance_id), "s~2", 2, 3, "key")
    assert ctx.trace_id == WHERE.trace_id
    left = ctx.remaining()
    assert left is not None and 0 < left <= 5


async def test_secrets_are_filled_in_and_taken_out_of_results_errors_and_lines() -> None:
    lines: list[tuple[Any, ...]] = []

    @tool(name="t.use", effect="read")
    async def use(auth: str, ctx: ToolContext) -> dict[str, str]:
        ctx.log(f"used {auth}", auth=auth)
        if auth == f"Bearer {SECRET}":
            return {"echo": auth, "other": ctx.secrets["OTHER"]}
        raise StepError("wrong")

    @tool(name="t.tell", effect="read")
    async def tell(auth: str) -> None:
        raise StepError(f"refused {auth}", details={"sent": auth})

    both = executor(use, tell, secrets={"TOKEN": SECRET, "OTHER": "0th3r"}, log=lambda *line: lines.append(line))
    slots = [SecretSlot("/auth", ("Bearer ", SecretName("TOKEN"))).to_json()]
    arguments = {"auth": "Bearer ***"}
    assert await both.perform(call("t.use", arguments, slots), WHERE) == Succeeded({"echo": "Bearer ***", "other": "***"})
    assert lines == [(WHERE, "s~2", 3, "used Bearer ***", {"auth": "Bearer ***"})]
    failed = await both.perform(call("t.tell", arguments, slots), WHERE)
    assert isinstance(failed, Failed)
    assert (failed.failure.message, failed.failure.details) == ("refused Bearer ***", {"sent": "Bearer ***"})
    assert arguments == {"auth": "Bearer ***"}


async def test_a_line_may_hold_anything_and_fails_no_call() -> None:
    class Odd:
        def __repr__(self) -> str:
            return f"<Odd {SECRET}>"

    @tool(name="t.use", effect="write")
    async def use(auth: str, ctx: ToolContext) -> str:
        ctx.log("said", odd=Odd(), call=1, lent=(1, {2: b"x"}), message="inner", half="\ud800")
        return "done"

    stream = io.StringIO()
    slots = [SecretSlot("/auth", (SecretName("TOKEN"),)).to_json()]
    made = executor(use, log=Log(stream, secrets=["other"]).tool)
    assert await made.perform(call("t.use", {"auth": "***"}, slots), WHERE) == Succeeded("done")
    line = decode(stream.getvalue())
    assert line["fields"] == {"odd": "<Odd ***>", "call": 1, "lent": [1, {"2": "b'x'"}], "message": "inner", "half": "?"}
    stream.close()
    assert await made.perform(call("t.use", {"auth": "***"}, slots), WHERE) == Succeeded("done")


async def test_a_missing_secret_or_tool_is_a_failure_that_names_it_and_calls_nothing() -> None:
    called: list[str] = []

    @tool(name="t.use", effect="write")
    async def use(auth: str) -> None:
        called.append(auth)

    slots = [SecretSlot("/auth", (SecretName("NOPE"),)).to_json()]
    failed = await executor(use).perform(call("t.use", {"auth": "***"}, slots), WHERE)
    assert isinstance(failed, Failed)
    assert (failed.failure.type, failed.failure.not_done) == ("PermissionDenied", True)
    assert "'NOPE'" in failed.failure.message
    unknown = await executor(use).perform(call("t.usee"), WHERE)
    assert isinstance(unknown, Failed)
    assert (unknown.failure.type, unknown.failure.not_done) == ("NotFound", True)
    assert "did you mean 't.use'" in unknown.failure.message
    assert called == []


@pytest.mark.parametrize(
    ("raised", "type"),
    [(ValueError("no"), "ValidationError"), (ConnectionRefusedError("no"), "NetworkError"), (KeyError("k"), "ToolError")],
)
async def test_whatever_a_tool_raises_is_a_failure(raised: Exception, type: str) -> None:
    @tool(name="t.raise", effect="pure")
    async def fail() -> None:
        raise raised

    failed = await executor(fail).perform(call("t.raise"), WHERE)
    assert isinstance(failed, Failed)
    assert failed.failure.type == type


async def test_a_cancelled_async_tool_stops_at_once() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool(name="t.hang", effect="pure")
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.create_task(executor(hang).perform(call("t.hang"), WHERE))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


async def test_a_function_in_a_thread_has_not_stopped_until_it_returns() -> None:
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()

    @tool(name="t.block", effect="pure")
    def block() -> str:
        loop.call_soon_threadsafe(begun.set)
        go.wait(30)
        return "at last"

    task = asyncio.create_task(executor(block).perform(call("t.block"), WHERE))
    await begun.wait()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    go.set()
    assert await task == Succeeded("at last")


async def test_a_second_cancellation_leaves_the_thread_behind() -> None:
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()

    @tool(name="t.block", effect="pure")
    def block() -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait(30)

    task = asyncio.create_task(executor(block).perform(call("t.block"), WHERE))
    await begun.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()


async def test_a_probe_says_what_the_tool_says_and_else_that_nobody_can() -> None:
    async def ask(key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Probe:
        assert (key, dict(arguments)) == ("key", {"auth": SECRET})
        return Probe("done", {"auth": SECRET})

    @tool(name="t.send", effect="write", reconcile=ask)
    async def send(auth: str) -> None:
        """Never called here."""

    slots = [SecretSlot("/auth", (SecretName("TOKEN"),)).to_json()]
    probe = StartProbe("s", Step("s", 0, Kind.TOOL_CALL, tool="t.send"), 1, 1, {"auth": "***"}, slots, "key")
    assert await executor(send).probe(probe, WHERE) == ProbeAnswer("done", {"auth": "***"})
    assert await executor().probe(probe, WHERE) == ProbeAnswer("unavailable")
