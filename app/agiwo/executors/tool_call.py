"""Carries out a `tool_call` step: one call of a registered tool.

It neither retries nor times out; a cancellation goes through, except to a function that already runs in a thread, which nothing can stop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import Any

from agiwo.clock import Clock
from agiwo.definition.contract import CALLBACK_SECRETS
from agiwo.errors import NotFound, StepError
from agiwo.executors.secrets import Lent
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded
from agiwo.outbound.connections import Connections
from agiwo.ports.executor import Circumstances, ProbeAnswer
from agiwo.tools.calling import ask_tool, call_tool
from agiwo.tools.context import CallbackUrls, SendSignal, ToolContext, no_channel
from agiwo.tools.processes import ToolProcesses
from agiwo.tools.registry import ToolRegistry
from agiwo.tools.threads import ToolThreads
from agiwo.tools.tool import Tool
from agiwo.values import JSON, plain

#: Takes a line that a tool writes: where it belongs, the step's path, the attempt, the message, its fields.
ToolLog = Callable[[Circumstances, str, int, str, Mapping[str, Any]], None]


#: Gives the addresses at which a run's answer is awaited for so many seconds, as one of its attempts hands them out.
Callbacks = Callable[[Circumstances, str, int, float], CallbackUrls]
#: Sends a signal for a step: where it belongs, its path, and what `SendSignal` takes.
Signals = Callable[[Circumstances, str, str, str, Any, str | None, str | None], Awaitable[Sequence[Mapping[str, Any]]]]


#: Sends a message for a tenant over a channel to addresses; gives those that were told.
TellFor = Callable[[str, str, Sequence[str], Mapping[str, Any]], Awaitable[list[str]]]


class ToolCalls:
    """The executor of `tool_call`.

    `secrets` are the service's secrets by name; `callbacks` makes the addresses for steps that are answered later; `tell` reaches people;
    `signals` sends signals for tools; `log` takes the lines that tools write.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        clock: Clock,
        *,
        connections: Connections | None = None,
        secrets: Mapping[str, str] | None = None,
        threads: ToolThreads | None = None,
        processes: ToolProcesses | None = None,
        callbacks: Callbacks | None = None,
        tell: TellFor | None = None,
        signals: Signals | None = None,
        log: ToolLog | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._connections = connections or Connections()
        self._secrets = secrets or {}
        self._threads = threads or ToolThreads()
        self._processes = processes or ToolProcesses()
        self._callbacks = callbacks
        self._tell = tell
        self._signals = signals
        self._log = log

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        urls = self._urls(call, where)
        lent = Lent(self._secrets if urls is None else {**self._secrets, **dict(zip(CALLBACK_SECRETS, astuple(urls), strict=True))})
        try:
            tool = self._tool(call)
            arguments = lent.fill(call.arguments, call.secrets)
            context = self._context(call, where, lent, call.timeout, urls)
            if tool.isolated or call.step.isolated:
                result = await self._processes.call(tool, arguments, context)
            elif tool.sync:
                result = await self._in_a_thread(tool, arguments, context)
            else:
                result = await call_tool(tool, arguments, context, self._threads)
        except StepError as exc:
            return Failed(lent.hidden(exc.failure()))
        return Succeeded(lent.hide(result))

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
        lent = Lent(self._secrets)
        try:
            tool = self._tool(call)
            arguments = lent.fill(call.arguments, call.secrets)
        except StepError:
            return ProbeAnswer("unavailable")
        context = self._context(call, where, lent, call.step.timeout)
        answer = await ask_tool(tool, call.idempotency_key, arguments, context)
        return ProbeAnswer(answer.answer, lent.hide(answer.result))

    def _urls(self, call: StartAttempt, where: Circumstances) -> CallbackUrls | None:
        if call.step.callback is None or self._callbacks is None:
            return None
        return self._callbacks(where, call.path, call.attempt, call.timeout + call.step.callback)

    def _tool(self, call: StartAttempt | StartProbe) -> Tool:
        try:
            return self._registry.get(call.step.tool or "")
        except NotFound as exc:
            raise StepError(f"{exc.message} on this node", type="NotFound", not_done=True) from None

    def _context(
        self, call: StartAttempt | StartProbe, where: Circumstances, lent: Lent, seconds: float, urls: CallbackUrls | None = None
    ) -> ToolContext:
        return ToolContext(
            instance_id=str(where.instance_id),
            workflow=where.workflow,
            version=where.version,
            step=call.path,
            iteration=call.iteration,
            attempt=call.attempt,
            tenant=where.tenant,
            idempotency_key=call.idempotency_key,
            trace_id=where.trace_id or "0" * 32,
            deadline=self._clock.monotonic() + seconds,
            clock=self._clock,
            connections=self._connections.seen_by(where.tenant, call.step.tool or ""),
            secrets=lent,
            log=partial(self._line, where, call, lent),
            heartbeat=_signing(where, lent),
            callback=urls,
            tell=no_channel if self._tell is None else partial(self._tell, where.tenant),
            signals=None if self._signals is None else _sending(partial(self._signals, where, call.path), lent),
        )

    def _line(self, where: Circumstances, call: StartAttempt | StartProbe, lent: Lent, message: str, /, **fields: Any) -> None:
        if self._log is not None:
            self._log(where, call.path, call.attempt, lent.hide(str(plain(message))), lent.hide(plain(fields)))

    async def _in_a_thread(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> JSON:
        """The call of a sync tool. Cancelled once its function runs, it goes on until that returns, for it has not stopped.

        A second cancellation goes through, so that a function that hangs keeps no process from ending.
        """
        begun = threading.Event()
        plain = tool.function

        def function(**given: Any) -> Any:
            begun.set()
            return plain(**given)

        task = asyncio.ensure_future(call_tool(replace(tool, function=function), arguments, context, self._threads))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not begun.is_set():
                task.cancel()
                raise
        return await task


def _signing(where: Circumstances, lent: Lent) -> Callable[..., None]:
    def heartbeat(progress: Any = None) -> None:
        where.sign(lent.hide(plain(progress)))

    return heartbeat


def _sending(send: SendSignal, lent: Lent) -> SendSignal:
    """A signal is kept where it arrives, and shown to whoever may look there."""

    async def sending(id: str, event: str, payload: Any, instance: str | None, correlation_key: str | None) -> Sequence[Mapping[str, Any]]:
        return await send(id, lent.hide(event), lent.hide(payload), instance, correlation_key)

    return sending
