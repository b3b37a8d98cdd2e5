"""`time.now`: the time of day, which a template must not ask for since its rendering is pure."""

from __future__ import annotations

from agiwo.clock import rfc3339
from agiwo.tools.context import ToolContext
from agiwo.tools.tool import tool


@tool(
    name="time.now",
    description="Gives the time as RFC 3339 text in UTC, with microseconds.",
    effect="read",
    breaker=False,
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
    result={"type": "string"},
    keeps_off=True,
)
async def now(ctx: ToolContext) -> str:
    """By the clock of the node that makes the call."""
    return rfc3339(ctx.clock.now())
