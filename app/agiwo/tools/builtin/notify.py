"""`notify.send`: a message over a channel of the configuration, whose address and credentials no definition ever sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agiwo.tools.context import ToolContext
from agiwo.tools.tool import tool

_ADDRESS = {"type": "string", "minLength": 3, "maxLength": 400, "pattern": r"^[^\r\n\x00]+$"}


@tool(
    name="notify.send",
    description="Sends a message over a configured channel: mail, a chat, a webhook; gives the channel and the addresses that were told.",
    effect="write",
    parameters={
        "type": "object",
        "properties": {
            "channel": {"type": "string", "default": "mail", "description": "The name of the channel."},
            "text": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "The message."},
            "subject": {"type": "string", "maxLength": 200, "default": "", "description": "One line above it."},
            "to": {
                "anyOf": [_ADDRESS, {"type": "array", "items": _ADDRESS, "minItems": 1, "maxItems": 100}],
                "description": "Addresses, for a channel of kind mail; without it those of the channel.",
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    },
    result={
        "type": "object",
        "properties": {"channel": {"type": "string"}, "to": {"type": "array", "items": {"type": "string"}}},
        "required": ["channel", "to"],
        "additionalProperties": False,
    },
    breaker={"key": "channel"},
    keeps_off=True,
)
async def send(ctx: ToolContext, text: str, channel: str = "mail", subject: str = "", to: str | Sequence[str] = ()) -> dict[str, Any]:
    """Raises StepError; marked `not_done` where it is certain that nobody was told."""
    whom = [to] if isinstance(to, str) else list(to)
    body = {"subject": subject or text.strip().partition("\n")[0], "text": text, "key": ctx.idempotency_key, "trace_id": ctx.trace_id}
    return {"channel": channel, "to": await ctx.tell(channel, whom, body)}
