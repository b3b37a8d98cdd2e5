"""One HTTP call of a tool: what is sent with it, over which connection, and what an answer is read as.

Shared by all tools that speak HTTP; it decides no effect, and nothing goes out but through the guard.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from agiwo.definition.contract import Effect
from agiwo.errors import StepError, ValidationError, ValueRefused
from agiwo.outbound.connections import Close, ConnectionSpec
from agiwo.outbound.following import MAX_REDIRECTS, Request, call_following
from agiwo.outbound.http import Answer, HttpCalls, for_status
from agiwo.outbound.retry_after import retry_after
from agiwo.outbound.service import HEADER, HEADER_VALUE, OWN_HEADERS, open_service
from agiwo.tools.context import ToolContext
from agiwo.values import check, decode_strict, encode, shown

DEFAULT_TIMEOUT = 30.0
MAX_BODY = 5_000_000
MOST_BODY = 20_000_000
_SHOWN_BODY = 4_000
EFFECTS: Mapping[str, Effect] = {
    "GET": Effect.READ, "HEAD": Effect.READ, "OPTIONS": Effect.READ, "PUT": Effect.IDEMPOTENT_WRITE, "DELETE": Effect.IDEMPOTENT_WRITE,
    "POST": Effect.WRITE, "PATCH": Effect.WRITE,
}  # fmt: skip
#: What text comes in; other codecs of the language are no charsets, and some take their time.
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(le|be)?|(us-)?ascii|iso-8859-\d{1,2}|latin-?1|windows-125\d|koi8-[ru]|shift_jis|euc-(jp|kr)|gb2312|gbk|gb18030|big5",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One call as a tool wants it; with a `connection` the URL is a path below its base."""

    method: str
    url: str
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    connection: str | None = None
    follow_redirects: bool = False
    max_bytes: int = MAX_BODY


async def exchange(ctx: ToolContext, call: Outgoing) -> Answer:
    """The answer, whatever its status, within the time that the step has left.

    Raises StepError: for what cannot be sent, for what the guard or a connection refuses, for the network.
    """
    given = _headers(call.headers)
    url = call.url
    if call.connection is None:
        calls, own = ctx.connections.pool(ConnectionSpec("", "", ""), _opener(ctx)), {}
    else:
        spec = ctx.connections.get(call.connection, "http")
        service, calls = ctx.connections.pool(spec, lambda spec: open_service(spec, ctx.connections.guard))
        url, own = service.address(url), service.sent(ctx.secrets)
    marks = {"user-agent": "agiwo", "idempotency-key": ctx.idempotency_key, "traceparent": ctx.traceparent()}
    content, kind = _content(call.body)
    sent = {**({"content-type": kind} if kind else {}), **{name: value for name, value in marks.items() if value}, **own, **given}
    return await call_following(
        calls,
        Request(call.method, _with_query(url, call.query), sent, content),
        remaining=_remaining(ctx),
        max_body=call.max_bytes,
        redirects=MAX_REDIRECTS if call.follow_redirects else 0,
    )


def _opener(ctx: ToolContext) -> Callable[[ConnectionSpec], tuple[HttpCalls, Close]]:
    def open_calls(_: ConnectionSpec) -> tuple[HttpCalls, Close]:
        calls = HttpCalls(ctx.connections.guard)
        return calls, calls.close

    return open_calls


def _remaining(ctx: ToolContext) -> Callable[[], float]:
    """What is left of the step's time, or of DEFAULT_TIMEOUT: one clock over all hops."""
    left = ctx.remaining()
    end = ctx.clock.monotonic() + (DEFAULT_TIMEOUT if left is None else left)
    return lambda: max(0.0, end - ctx.clock.monotonic())


# What is sent


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for name, value in given.items():
        low = name.lower()
        if not HEADER.fullmatch(name) or low in OWN_HEADERS or low in out:
            raise ValidationError(f"headers: {shown(name[:100])} is no header that can be set, or stands twice", not_done=True)
        if not HEADER_VALUE.fullmatch(value):
            raise ValidationError(f"headers: the value of {name} holds a line end or what is not ASCII", not_done=True)
        out[low] = value.strip()
    return out


def _content(body: Any) -> tuple[bytes | None, str | None]:
    if body is None:
        return None, None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return encode(body).encode(), "application/json"


def _with_query(url: str, query: Mapping[str, Any]) -> str:
    pairs = [
        (name, one if isinstance(one, str) else encode(one))
        for name, value in query.items()
        for one in (value if isinstance(value, list) else [value])
        if one is not None
    ]
    if not pairs:
        return url
    bare = url.partition("#")[0]
    return f"{bare}{'&' if urlsplit(bare).query else '?'}{urlencode(pairs)}"


# What came back


def is_error(status: int, expect: Sequence[int | str] | None) -> bool:
    """Whether a status is none of the expected ones (`404`, `2xx`); without these, whether it is 400 or above."""
    return status >= 400 if expect is None else status not in expect and f"{status // 100}xx" not in expect


def failure(answer: Answer, expect: Sequence[int | str] | None, now: float) -> StepError:
    """The error that an answer stands for, with what the other side said of it and how long it asks to wait."""
    status = answer.status
    details: dict[str, Any] = {"body": _excerpt(answer)} if answer.body else {}
    if status < 400:
        wanted = ", ".join(map(str, expect or ()))
        return StepError(f"the other side answered {status}, expected {wanted}", status=status, details=details or None)
    named = for_status(status)
    wait = retry_after(answer.headers, now) if status in (429, 503) else None
    return StepError(named.message, type=named.type, status=status, not_done=named.not_done, retry_after=wait, details=details or None)


def meant(answer: Answer, type: str, message: str | None, not_done: bool, now: float) -> StepError:
    """The error that an author declares for an answer, with what the other side said of it and how long it asks to wait."""
    text = message or f"the other side answered {answer.status}"
    details = {"body": _excerpt(answer)} if answer.body else None
    wait = retry_after(answer.headers, now)
    return StepError(text, type=type, status=answer.status, not_done=not_done, retry_after=wait, details=details)


def _excerpt(answer: Answer) -> Any:
    """What the other side said of its error: its JSON if that is short, else the beginning of the text."""
    if len(answer.body) <= _SHOWN_BODY:
        try:
            return read_body(answer)
        except StepError:
            pass
    text = answer.body[:_SHOWN_BODY].decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text if len(answer.body) <= _SHOWN_BODY else text + "…"


def read_body(answer: Answer) -> Any:
    """The value of JSON, else text, else base64; None without a body. Raises ValidationError for JSON that is none."""
    kind, _, rest = answer.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if not answer.body:
        return None
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return decode_strict(answer.body)
        except ValueRefused as exc:
            message = f"the answer calls itself JSON and cannot be read as such: {exc.message}"
            raise ValidationError(message, status=answer.status) from None
    parts = (part.partition("=") for part in rest.split(";"))
    charset = next((value.strip(" \"'") for name, _, value in parts if name.strip().lower() == "charset"), "")
    if charset and not _CHARSETS.fullmatch(charset):
        return b64encode(answer.body).decode()
    if charset or not kind or kind.startswith("text/") or kind.endswith(("xml", "javascript", "x-www-form-urlencoded", "yaml")):
        try:
            text = answer.body.decode(charset or "utf-8")
            check(text)
        except (LookupError, UnicodeError, ValueError, ValueRefused):
            return b64encode(answer.body).decode()
        return text
    return b64encode(answer.body).decode()
