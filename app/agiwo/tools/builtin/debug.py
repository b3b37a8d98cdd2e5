"""Tools for trying a workflow out: one that answers, one that waits, one that fails.

They must not touch anything outside.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agiwo.errors import StepError
from agiwo.tools.context import ToolContext
from agiwo.tools.tool import tool


@tool(
    name="debug.echo",
    description="Gives back the value that it was given, unchanged.",
    effect="pure",
    parameters={
        "type": "object",
        "properties": {"value": {"description": "Any value."}},
        "required": ["value"],
        "additionalProperties": False,
    },
    keeps_off=True,
)
async def echo(value: Any) -> Any:
    """`value`, as it is."""
    return value


@tool(
    name="debug.sleep",
    description="Waits for some seconds and gives back how many.",
    effect="read",
    breaker=False,
    parameters={
        "type": "object",
        "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": 86400, "description": "How long to wait."}},
        "required": ["seconds"],
        "additionalProperties": False,
    },
    keeps_off=True,
)
async def sleep(seconds: float) -> dict[str, float]:
    """Waits without holding a thread; a cancellation ends it at once."""
    await asyncio.sleep(seconds)
    return {"slept": seconds}


@tool(
    name="debug.fail",
    description="Fails with the given error, always or only in the first attempts.",
    effect="read",
    breaker=False,
    parameters={
        "type": "object",
        "properties": {
            "error": {"type": "string", "minLength": 1, "maxLength": 100, "default": "ToolError", "description": "The type of the error."},
            "message": {"type": "string", "maxLength": 1000, "default": "failed on purpose", "description": "What the error says."},
            "not_done": {"type": "boolean", "default": False, "description": "Mark the error as proof that nothing was done."},
            "status": {"type": "integer", "minimum": 100, "maximum": 999, "description": "A status to go with the error."},
            "retry_after": {"type": "number", "minimum": 0, "description": "The least wait in seconds that the error asks for."},
            "until_attempt": {
                "type": "integer",
                "minimum": 1,
                "description": "Fail while the attempt's number is below this, then succeed; without it every attempt fails.",
            },
            "value": {"description": "What to give back on success.", "default": None},
        },
        "additionalProperties": False,
    },
    keeps_off=True,
)
async def fail(
    ctx: ToolContext,
    error: str = "ToolError",
    message: str = "failed on purpose",
    not_done: bool = False,
    status: int | None = None,
    retry_after: float | None = None,
    until_attempt: int | None = None,
    value: Any = None,
) -> Any:
    """Raises StepError as asked, unless `until_attempt` is reached."""
    if until_attempt is not None and ctx.attempt >= until_attempt:
        return value
    raise StepError(message, type=error, not_done=not_done, status=status, retry_after=retry_after)
