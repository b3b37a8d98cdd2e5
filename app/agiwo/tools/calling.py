"""Calling a tool: arguments checked, the function run in the loop or a thread, whatever it raises or gives turned into the product's words.

It must not retry, time out or record: the engine does; it lets a cancellation through at once.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import re
from collections.abc import Mapping
from typing import Any

from agiwo.errors import NetworkError, StepError, ValidationError, ValueRefused, words_of
from agiwo.outbound.http import network_failure
from agiwo.schema.compiled import misfit
from agiwo.tools.context import ToolContext
from agiwo.tools.threads import ToolThreads
from agiwo.tools.tool import Probe, Tool
from agiwo.values import JSON, check, decode, encode

MAX_MESSAGE = 2000
_UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")
_UNREACHED = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL}
_BROKEN = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT, errno.ENOTCONN}


async def call_tool(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext, threads: ToolThreads | None = None) -> JSON:
    """The tool's result, which can be kept and fits its declared result.

    Raises StepError, always, with a type of the tree or the tool's own; asyncio.CancelledError passes through. `threads` bounds the sync
    functions; without it one thread is taken for this call.
    """
    given = tool.parameters.coerce(dict(arguments))
    if not tool.keeps_off:
        given = decode(encode(given))
    if tool.context is not None:
        given = {**given, tool.context: ctx}
    run = functools.partial(tool.function, **given)
    try:
        result = await ((threads or ToolThreads(1)).run(run) if tool.sync else run())
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise StepError(f"{tool.name} cancelled itself") from None
    except (Exception, SystemExit, KeyboardInterrupt) as exc:
        # The last two would end the loop, and with it the process; a signal to the process comes another way.
        error = step_error(exc)
        if error is exc:
            raise
        raise error from exc
    return kept(tool, result)


async def ask_tool(tool: Tool, idempotency_key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Probe:
    """Whether an earlier call with this key was done; `unavailable` if the tool cannot be asked or cannot say."""
    if tool.reconcile is None:
        return Probe("unavailable")
    try:
        answer = await tool.reconcile(idempotency_key, arguments, ctx)
        if answer.answer == "done":
            check(answer.result)
    except asyncio.CancelledError:
        raise
    except Exception as exc:
        ctx.log("the probe failed", tool=tool.name, error=step_error(exc).message)
        return Probe("unavailable")
    return answer


def kept(tool: Tool, result: Any) -> JSON:
    """What a tool gave, if it can be stored and fits its declared result. Raises ValidationError."""
    storable(tool, result)
    if not tool.keeps_off:
        result = decode(encode(result))  # the tool may still hold what it gave, and change it
    if tool.result is not None and (problems := tool.result.problems(result)):
        raise misfit(problems, "result")
    return result


def storable(tool: Tool, result: Any) -> None:
    """Raises ValidationError, which no other attempt would mend, if a tool gave what cannot be stored."""
    try:
        check(result)
    except ValueRefused as exc:
        raise ValidationError(f"the result of {tool.name} is not storable: {exc.message} (at {exc.pointer or 'the top'})") from None


def step_error(exc: BaseException) -> StepError:
    """The product's error for whatever a tool raised; its message and details can be kept."""
    if isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        return step_error(exc.exceptions[0])
    found = exc if isinstance(exc, StepError) else network_failure(exc) or _of_builtin(exc)
    clean = StepError(
        _clean(words_of(found)) or type(found).__name__,
        type=_clean(str(found.type)) or "ToolError",
        status=found.status if isinstance(found.status, int) else None,
        not_done=found.not_done is True,
        retry_after=_seconds(found.retry_after),
        details=_details(found.data),
    )
    return found if words_of(found) == clean.message and clean.failure() == found.failure() else clean


def _of_builtin(exc: BaseException) -> StepError:
    text = words_of(exc)
    if isinstance(exc, TimeoutError) and exc.errno is None:
        return StepError(text or "the tool's own time limit ran out", type="Timeout")
    if isinstance(exc, OSError):
        return _of_os(exc, text)
    if type(exc) is ValueError:
        return ValidationError(text or "a value does not fit")
    return StepError(f"{type(exc).__name__}: {text}" if text else type(exc).__name__)


def _of_os(exc: OSError, text: str) -> StepError:
    # A name that cannot be resolved (socket.gaierror) has error numbers of its own; nothing was sent to it.
    if exc.errno in _UNREACHED or isinstance(exc, ConnectionRefusedError) or type(exc).__name__ == "gaierror":
        return NetworkError(text or "the other side could not be reached", not_done=True)
    if exc.errno in _BROKEN or isinstance(exc, ConnectionError):
        return NetworkError(text or "the connection broke")
    if isinstance(exc, PermissionError):
        return StepError(text, type="PermissionDenied")
    if isinstance(exc, FileNotFoundError):
        return StepError(text, type="NotFound")
    return StepError(f"{type(exc).__name__}: {text}")


def _clean(text: str) -> str:
    clean = _UNKEEPABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return clean if len(clean) <= MAX_MESSAGE else clean[: MAX_MESSAGE - 1] + "…"


def _seconds(wait: Any) -> float | None:
    usable = isinstance(wait, int | float) and not isinstance(wait, bool) and 0 <= wait < float("inf")
    return float(wait) if usable else None


def _details(data: Any) -> Any:
    try:
        check(data)
    except ValueRefused as exc:
        return {"left_out": f"the details are not storable: {exc.message}"}
    return data
