"""Tools that tell all that they were entrusted with, in every way that a tool has."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from agiwo.errors import StepError
from agiwo.toolkit import Tool, ToolContext, ToolExecutionError, tool

#: Where a call of `tell.later` is to be answered, by the path of its step.
ADDRESSES: dict[str, str] = {}


def forms(text: str) -> dict[str, Any]:
    """A text in the forms in which other sides quote it, as value, key and part."""
    return {
        "plain": text,
        "within": f"<{text}>",
        text: 1,
        "json": json.dumps({"t": text}),
        "unescaped": json.dumps({"t": text}, ensure_ascii=False),
        "html": escape(text),
        "url": quote(text, safe=""),
        "form": urlencode({"t": text}),
        "twice": json.dumps(json.dumps([text])),
        "base64": [b64encode(f"{before}{text}:".encode()).decode() for before in ("", "a", "ab")],
        "list": [[text]],
    }


@tool(name="tell.result", effect="read", breaker=False)
async def result(secret: str, ctx: ToolContext) -> dict[str, Any]:
    ctx.log(f"using {secret}", secret=secret, deep={"forms": forms(secret)})
    ctx.heartbeat({"with": secret})
    return forms(secret)


@tool(name="tell.error", effect="read", breaker=False)
async def error(secret: str) -> None:
    raise StepError(f"{secret} was refused", status=500, details=forms(secret))


@tool(name="tell.unexpected", effect="read", breaker=False)
async def unexpected(secret: str) -> None:
    raise RuntimeError(secret) from KeyError(secret)


@tool(name="tell.long", effect="read", breaker=False)
async def long(secret: str) -> None:
    # The end of what is kept of a message falls into the secret, wherever that end is.
    raise ToolExecutionError("".join(f"{n} {secret}" for n in range(3000)))


@tool(name="tell.silent", effect="read", breaker=False)
async def silent(secret: str, ctx: ToolContext) -> None:
    ctx.heartbeat({"at": secret})
    await asyncio.Event().wait()


@tool(name="tell.thread", effect="read", breaker=False)
def thread(secret: str) -> dict[str, Any]:
    return forms(secret)


@tool(name="tell.process", effect="read", breaker=False, isolation="process")
def process(secret: str, ctx: ToolContext) -> dict[str, Any]:
    ctx.log(secret)
    ctx.heartbeat(secret)
    return forms(secret)


@tool(name="tell.asked", effect="read", breaker=False)
async def asked(name: str, ctx: ToolContext) -> dict[str, Any]:
    return forms(ctx.secrets[name])


@tool(name="tell.later", effect="write", breaker=False)
async def later(ctx: ToolContext, url: str) -> dict[str, Any]:
    assert ctx.callback is not None
    ADDRESSES[ctx.step] = ctx.callback.url
    ctx.log(f"answer at {url}")
    return forms(url)


TOOLS: tuple[Tool, ...] = (result, error, unexpected, long, silent, thread, process, asked, later)
