"""Processes for sync functions that may have to be ended: each call in a child of its own, which is killed when its time is over.

It must not leave a child behind: they run in sessions of their own, end with their pipe, and see that their owner is gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from agiwo.errors import Failure, StepError
from agiwo.tools.calling import kept
from agiwo.tools.context import ToolContext
from agiwo.tools.isolated import LENGTH, frame
from agiwo.tools.tool import Tool
from agiwo.values import JSON, decode

IDLE = 4  # children of a module that are kept warm
LARGEST = 64 * 1024 * 1024  # bytes of one message; what may be stored is less
_SHOWN = ("instance_id", "workflow", "version", "step", "iteration", "attempt", "tenant", "idempotency_key", "trace_id")


class TooLarge(StepError):
    """A result that is not even read, so that its process cannot be used again."""

    type = "PayloadTooLarge"


class ToolProcesses:
    """At most `size` isolated calls at once; belongs to the event loop that first uses it."""

    def __init__(self, size: int = 8) -> None:
        self.size = size
        self.in_use = 0
        self._free = asyncio.Semaphore(size)
        self._idle: defaultdict[str, list[asyncio.subprocess.Process]] = defaultdict(list)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> JSON:
        """The tool's result, from a process of its own. A cancellation kills that process, and is let through when it is gone.

        Raises StepError: what the tool raised, or NodeLost if its process died.
        """
        given = tool.parameters.coerce(dict(arguments))
        module = tool.function.__module__
        if module == "__main__":
            raise StepError(
                f"{tool.name} stands in the program itself; only a tool of a module can run in a process of its own", not_done=True
            )
        async with self._place():
            process = self._idle[module].pop() if self._idle[module] else await _begin()
            try:
                result = await _asked(process, tool, module, given, context)
            except StepError as exc:
                await (_end(process) if isinstance(exc, TooLarge) else self._keep(module, process))
                raise
            except BaseException:
                await _end(process)
                raise
            await self._keep(module, process)
        return kept(tool, result)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        async with self._free:
            self.in_use += 1
            try:
                yield
            finally:
                self.in_use -= 1

    async def close(self) -> None:
        """End every child."""
        for idle in self._idle.values():
            for process in idle:
                await _end(process)
        self._idle.clear()

    async def _keep(self, module: str, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None and len(self._idle[module]) < IDLE:
            self._idle[module].append(process)
        else:
            await _end(process)


async def _begin() -> asyncio.subprocess.Process:
    # The service's own settings and secrets are nothing for it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGIWO_")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agiwo.tools.isolated",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment, start_new_session=True,
    )  # fmt: skip


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the child with all that it started, and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    if process.stdin is not None:
        process.stdin.close()


async def _asked(process: asyncio.subprocess.Process, tool: Tool, module: str, given: Mapping[str, Any], context: ToolContext) -> JSON:
    assert process.stdin is not None
    assert process.stdout is not None
    shown: dict[str, Any] = {name: getattr(context, name) for name in _SHOWN}
    if context.callback is not None:
        shown["callback"] = asdict(context.callback)
    if (left := context.remaining()) is not None:
        shown["remaining"] = left
    try:
        process.stdin.write(frame({"module": module, "tool": tool.name, "arguments": given, "context": shown}))
        await process.stdin.drain()
        while True:
            message = await _message(process.stdout)
            if "result" in message:
                return message["result"]
            if "failure" in message:
                raise _raised(Failure.from_json(message["failure"]))
            if "log" in message:
                text, fields = message["log"]
                context.log(text, **fields)
            else:
                context.heartbeat(message.get("sign"))
    except (asyncio.IncompleteReadError, ConnectionError):
        status = await process.wait()
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        raise StepError(f"the process of {tool.name} ended {how} during the call", type="NodeLost") from None


def _raised(failure: Failure) -> StepError:
    return StepError(
        failure.message,
        type=failure.type,
        status=failure.status,
        not_done=failure.not_done,
        retry_after=failure.retry_after,
        details=failure.details,
    )


async def _message(stream: asyncio.StreamReader) -> dict[str, Any]:
    size = LENGTH.unpack(await stream.readexactly(LENGTH.size))[0]
    if size > LARGEST:
        raise TooLarge(f"the result has {size} bytes, at most {LARGEST} can be taken")
    message: dict[str, Any] = decode((await stream.readexactly(size)).decode())
    return message
