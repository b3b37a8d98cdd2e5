"""`events.send`: a signal to another instance, in the form of a CloudEvent whose id is that of the step run.

All attempts of one step run are one signal to whoever gets it; how it is delivered the service knows.
"""

from __future__ import annotations

from typing import Any

from agiwo.clock import rfc3339
from agiwo.errors import StepError
from agiwo.tools.context import ToolContext
from agiwo.tools.tool import tool

_NAME = {"type": "string", "minLength": 1, "maxLength": 200}


@tool(
    name="events.send",
    description="Sends a signal to an instance, or to all live instances of a correlation key; gives the CloudEvent and who got it.",
    effect="idempotent_write",
    parameters={
        "type": "object",
        "properties": {
            "event": {**_NAME, "description": "The name of the event, as steps wait for it."},
            "payload": {"description": "What it carries: any JSON value."},
            "to": {
                "type": "object",
                "description": "Who gets it.",
                "properties": {
                    "instance": {"type": "string", "format": "uuid", "description": "The id of an instance."},
                    "correlation_key": {"type": "string", "minLength": 1, "maxLength": 256},
                },
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": False,
            },
        },
        "required": ["event", "to"],
        "additionalProperties": False,
    },
    result={
        "type": "object",
        "properties": {"event": {"type": "object"}, "receivers": {"type": "array", "items": {"type": "object"}}},
        "required": ["event", "receivers"],
        "additionalProperties": False,
    },
    keeps_off=True,
)
async def send(ctx: ToolContext, event: str, to: dict[str, str], payload: Any = None) -> dict[str, Any]:
    """Raises StepError: NotFound where nobody gets it, Conflict for an instance that has ended."""
    if ctx.signals is None:
        raise StepError("signals cannot be sent from here", type="ToolError", not_done=True)
    receivers = await ctx.signals(ctx.idempotency_key, event, payload, to.get("instance"), to.get("correlation_key"))
    envelope = {
        "specversion": "1.0",
        "id": ctx.idempotency_key,
        "type": event,
        "source": f"/workflows/{ctx.workflow}/instances/{ctx.instance_id}",
        "subject": ctx.step,
        "time": rfc3339(ctx.clock.now()),
        "datacontenttype": "application/json",
        "data": payload,
    }
    return {"event": envelope, "receivers": [dict(receiver) for receiver in receivers]}
