"""`email_sender.send`: a mail over a named connection, and the probe that says whether an earlier call sent it.

The Message-ID comes from the idempotency key, so that all attempts of one step run are one message to whoever looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agiwo.outbound.mail import MAX_RECIPIENTS, MAX_SUBJECT, Mail, addresses, message_id, send_mail, was_accepted
from agiwo.tools.context import ToolContext
from agiwo.tools.tool import Probe, tool

DEFAULT_CONNECTION = "mail"
_PROBE_WITHIN = 10.0
_ADDRESS = {"type": "string", "minLength": 3, "maxLength": 400, "pattern": r"^[^\r\n\x00]+$"}
_ADDRESSES = {"anyOf": [_ADDRESS, {"type": "array", "items": _ADDRESS, "minItems": 1, "maxItems": MAX_RECIPIENTS}]}


def _listed(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


async def _probe(idempotency_key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Probe:
    spec = ctx.connections.get(arguments.get("connection", DEFAULT_CONNECTION), "smtp")
    wanted = message_id(spec, idempotency_key)
    within = ctx.remaining(_PROBE_WITHIN) or _PROBE_WITHIN
    answer = await was_accepted(spec, ctx.connections, wanted, within, ctx.traceparent())
    if answer != "done":
        return Probe(answer)
    to, cc = addresses(_listed(arguments["to"]), "To"), addresses(_listed(arguments.get("cc", ())), "Cc")
    return Probe("done", {"message_id": wanted, "accepted": list(dict.fromkeys([*to, *cc]))})


@tool(
    name="email_sender.send",
    description="Sends a mail over a configured mail server; gives its Message-ID and the addresses that it was accepted for.",
    effect="write",
    uses={"html": "html"},
    breaker={"key": "connection"},
    reconcile=_probe,
    parameters={
        "type": "object",
        "properties": {
            "to": {**_ADDRESSES, "description": "The recipient or recipients: name@domain or Name <name@domain>."},
            "subject": {"type": "string", "maxLength": MAX_SUBJECT, "pattern": r"^[^\r\n\x00]*$", "description": "One line."},
            "body": {"type": "string", "description": "The text of the mail."},
            "html": {"type": "string", "description": "The same as HTML, shown instead of the text where it can be; values are escaped."},
            "cc": {**_ADDRESSES, "description": "Who gets a copy."},
            "reply_to": {**_ADDRESS, "description": "Where answers go."},
            "connection": {"type": "string", "default": DEFAULT_CONNECTION, "description": "The name of the mail connection."},
        },
        "required": ["to", "subject", "body"],
        "additionalProperties": False,
    },
    result={
        "type": "object",
        "properties": {"message_id": {"type": "string"}, "accepted": {"type": "array", "items": {"type": "string"}}},
        "required": ["message_id", "accepted"],
        "additionalProperties": False,
    },
    keeps_off=True,
    connections=["connection"],
)
async def send(
    ctx: ToolContext,
    to: str | Sequence[str],
    subject: str,
    body: str,
    html: str | None = None,
    cc: str | Sequence[str] = (),
    reply_to: str | None = None,
    connection: str = DEFAULT_CONNECTION,
) -> dict[str, Any]:
    """Raises StepError; marked `not_done` where it is certain that the server did not take the mail."""
    spec = ctx.connections.get(connection, "smtp")
    mail = Mail(_listed(to), subject, body, message_id(spec, ctx.idempotency_key), html, _listed(cc), reply_to, ctx.trace_id)
    accepted = await send_mail(spec, mail, ctx.clock.now(), ctx.remaining())
    return {"message_id": mail.message_id, "accepted": accepted}
