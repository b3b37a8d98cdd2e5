"""`http.request`: one call to an HTTP service, over a named connection or to an address that the operator's rules let through.

What it does to the world follows from its method, or is what the author says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agiwo.definition.contract import Effect
from agiwo.outbound.following import MAX_REDIRECTS
from agiwo.tools.context import ToolContext
from agiwo.tools.exchange import EFFECTS, MAX_BODY, MOST_BODY, Outgoing, exchange, failure, is_error, read_body
from agiwo.tools.tool import tool

_SAID = (Effect.READ, Effect.IDEMPOTENT_WRITE, Effect.WRITE)
_ONE = {"type": ["string", "number", "boolean", "null"]}


def effect_of(parameters: Mapping[str, Any]) -> Effect:
    """What a call does: what its `effect` says, else by its method; a template says nothing, and then it is a write."""
    said = parameters.get("effect")
    if said is not None:
        return Effect(said) if said in _SAID else Effect.WRITE
    method = parameters.get("method", "GET")
    return EFFECTS.get(method, Effect.WRITE) if isinstance(method, str) else Effect.WRITE


@tool(
    name="http.request",
    description="Calls an HTTP service; gives the status, the headers in small letters and the body: the value of JSON, text, or base64.",
    effect="write",
    effect_of=effect_of,
    uses={"url": "url"},
    breaker={"key": ["connection", "url"]},
    parameters={
        "type": "object",
        "properties": {
            "url": {
                "type": "string",
                "minLength": 1,
                "maxLength": 8000,
                "description": "The address, or with a connection a path below its base; a {{ }} inside it is percent-encoded.",
            },
            "method": {"enum": list(EFFECTS), "default": "GET", "description": "The method."},
            "query": {
                "type": "object",
                "additionalProperties": {"anyOf": [_ONE, {"type": "array", "items": _ONE}]},
                "description": "Added to the URL; a list repeats its name, null is left out.",
            },
            "headers": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Sent with the call; they win over those of the connection.",
            },
            "body": {"description": "Text is sent as it is, anything else as JSON."},
            "connection": {"type": "string", "description": "The name of an http connection, with its address and credentials."},
            "follow_redirects": {
                "type": "boolean",
                "default": False,
                "description": f"Follow at most {MAX_REDIRECTS} redirects; headers and body are not carried to another origin.",
            },
            "expect": {
                "type": "array",
                "items": {"anyOf": [{"type": "integer", "minimum": 100, "maximum": 599}, {"type": "string", "pattern": "^[1-5]xx$"}]},
                "minItems": 1,
                "description": "The statuses that are no error, such as [2xx, 404]; without it all below 400.",
            },
            "max_bytes": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_BODY,
                "default": MAX_BODY,
                "description": "An answer with a longer body is an error.",
            },
            "effect": {
                "enum": [effect.value for effect in _SAID],
                "description": "What the call does, where the method does not tell: a POST that only searches is a read.",
            },
        },
        "required": ["url"],
        "additionalProperties": False,
    },
    result={
        "type": "object",
        "properties": {
            "status": {"type": "integer"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "body": {},
        },
        "required": ["status", "headers", "body"],
        "additionalProperties": False,
    },
    keeps_off=True,
    connections=["connection"],
)
async def request(
    ctx: ToolContext,
    url: str,
    method: str = "GET",
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    connection: str | None = None,
    follow_redirects: bool = False,
    expect: Sequence[int | str] | None = None,
    max_bytes: int = MAX_BODY,
    effect: str | None = None,
) -> dict[str, Any]:
    """`effect` is read when the definition is published. Raises StepError: by status, for what the guard refuses, for the network."""
    call = Outgoing(method, url, query or {}, headers or {}, body, connection, follow_redirects, max_bytes)
    answer = await exchange(ctx, call)
    if is_error(answer.status, expect):
        raise failure(answer, expect, ctx.clock.now())
    return {"status": answer.status, "headers": dict(answer.headers), "body": None if method == "HEAD" else read_body(answer)}
