"""A declared HTTP tool: each call is one request that is made of its declaration, and a result that is made of the answer.

Its origin is written by the operator and never by an argument, so that its credentials go nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from agiwo.definition.contract import Effect
from agiwo.definition.report import Path, Report
from agiwo.errors import PermissionDeniedError, StepError, ValidationError
from agiwo.outbound.guard import Guard
from agiwo.outbound.http import Answer
from agiwo.outbound.service import authorization
from agiwo.template import Expression
from agiwo.tools.context import ToolContext
from agiwo.tools.declared.filling import ANSWER, MISSING, Filling, evaluated, fill, scope_of, written
from agiwo.tools.declared.statuses import Meaning, meaning_of, meanings
from agiwo.tools.exchange import EFFECTS, MAX_BODY, Outgoing, exchange, failure, is_error, meant, read_body
from agiwo.tools.tool import Probe
from agiwo.values import shown

_PROBE_WITHIN = 10.0
_DONE, _NOT_DONE, _RUNNING = ("2xx",), (404,), (202,)
_ORIGIN = re.compile(r"https?://[^/?#{}\s]+(?=[/?]|$)")


@dataclass(frozen=True, slots=True)
class Asking:
    """One request as declared; the parts are those of `filling`."""

    method: str
    url: Any
    query: Any
    headers: Any
    body: Any
    connection: str | None
    auth: Mapping[str, Any]
    max_bytes: int
    follow_redirects: bool
    result: Expression | None
    pointer: tuple[str, ...] | None

    async def ask(self, tool: str, scope: Mapping[str, Any], ctx: ToolContext) -> Answer:
        """The answer, whatever its status. Raises StepError as `exchange` does, and for what the arguments make of the request."""
        url = fill(self.url, scope, ctx.secrets)
        if url is MISSING or not isinstance(url, str):
            raise ValidationError(f"{tool}: its URL needs a parameter that was not given", not_done=True)
        if any(unquote(part) in (".", "..") for part in re.split(r"[?#]", url, maxsplit=1)[0].split("/")):
            raise PermissionDeniedError(f"{tool}: an argument leads out of the path that the tool is for", not_done=True)
        headers = {}
        for name, value in fill(self.headers, scope, ctx.secrets).items():
            text = written(value)
            if text is None:
                raise ValidationError(f"{tool}: the header {name} would be {shown(value)}; expected a text or a number", not_done=True)
            headers[name] = text
        if self.auth:
            headers |= authorization(self.auth, ctx.secrets, f"the tool {tool!r}")
        body = fill(self.body, scope, ctx.secrets)
        call = Outgoing(
            self.method, url, fill(self.query, scope, ctx.secrets), headers, None if body is MISSING else body, self.connection,
            self.follow_redirects, self.max_bytes,
        )  # fmt: skip
        return await exchange(ctx, call)

    def read(self, answer: Answer, scope: Mapping[str, Any]) -> Any:
        """The result that an answer holds. Raises StepError (OutputInvalid) if it lacks a part."""
        body = None if self.method == "HEAD" else read_body(answer)
        whole: dict[str, Any] = {"status": answer.status, "headers": dict(answer.headers), "body": body}
        if self.pointer is not None:
            return _at(whole, self.pointer)
        return body if self.result is None else evaluated(self.result, {**scope, **whole})


@dataclass(frozen=True, slots=True)
class HttpTool:
    """What a declared HTTP tool does when it is called."""

    name: str
    asking: Asking
    errors: tuple[Meaning, ...]
    expect: tuple[int | str, ...] | None

    async def call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Raises StepError: by the declared errors, else by status; for the guard, the network, and a result that cannot be made."""
        scope = scope_of(arguments, ctx)
        answer = await self.asking.ask(self.name, scope, ctx)
        meaning = meaning_of(self.errors, answer.status)
        if meaning is not None:
            raise meant(answer, meaning.type, meaning.message, meaning.not_done, ctx.clock.now())
        if is_error(answer.status, self.expect):
            raise failure(answer, self.expect, ctx.clock.now())
        return self.asking.read(answer, scope)


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """Asks what became of an earlier call; a status that is none of the three kinds says nothing."""

    name: str
    asking: Asking
    done: tuple[int | str, ...]
    not_done: tuple[int | str, ...]
    running: tuple[int | str, ...]

    async def ask(self, idempotency_key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Probe:
        """Raises StepError if nobody could be asked."""
        scope = scope_of(arguments, ctx)
        scope["call"]["idempotency_key"] = idempotency_key
        answer = await self.asking.ask(self.name, scope, ctx)
        for kind, statuses in (("running", self.running), ("not_done", self.not_done)):
            if not is_error(answer.status, statuses):
                return Probe(kind)
        if is_error(answer.status, self.done):
            return Probe("unavailable")
        return Probe("done", self.asking.read(answer, scope))


def http_tool(name: str, declared: Mapping[str, Any], at: Path, filling: Filling, report: Report) -> HttpTool:
    """The tool of an `http` part whose form is right; what is wrong beyond that is noted."""
    auth = declared.get("auth", {})
    if "auth" in declared and len(auth) != 1:
        report.error(
            "wrong_form", "`auth` is one of bearer, basic and connection", (*at, "auth"), expected="one of bearer, basic, connection"
        )
    asking = _asking(declared, auth, at, filling, report)
    expect = declared.get("expect")
    return HttpTool(name, asking, meanings(declared.get("errors", {}), (*at, "errors"), report), None if expect is None else tuple(expect))


def http_probe(name: str, declared: Mapping[str, Any], auth: Mapping[str, Any], at: Path, filling: Filling, report: Report) -> HttpProbe:
    """The probe of a `reconcile` part; it goes with the credentials of the tool."""
    asking = _asking(declared, auth, at, filling, report)
    if EFFECTS[asking.method] is not Effect.READ:
        report.warning("unsafe_probe", f"a probe only looks, and {asking.method} may change something", (*at, "method"))
    kinds = [tuple(declared.get(key, usual)) for key, usual in (("done", _DONE), ("not_done", _NOT_DONE), ("running", _RUNNING))]
    return HttpProbe(name, asking, *kinds)


def _asking(declared: Mapping[str, Any], auth: Mapping[str, Any], at: Path, filling: Filling, report: Report) -> Asking:
    connection = auth.get("connection")
    _check_url(declared.get("url", ""), connection, (*at, "url"), report)
    result, pointer = declared.get("result"), None
    if isinstance(result, str) and result.startswith("/"):
        pointer, result = tuple(part.replace("~1", "/").replace("~0", "~") for part in result.split("/")[1:]), None
        if pointer[0] not in ANSWER:
            report.error(
                "wrong_value", f"an answer has no {shown(pointer[0])}", (*at, "result"), expected="one of /status, /headers, /body"
            )
    return Asking(
        method=declared.get("method", "GET"),
        url=filling.part(declared.get("url", ""), (*at, "url"), use="url"),
        query=filling.part(declared.get("query", {}), (*at, "query")),
        headers=filling.part(declared.get("headers", {}), (*at, "headers")),
        body=filling.part(declared.get("body"), (*at, "body")),
        connection=connection,
        auth={} if connection is not None else auth,
        max_bytes=declared.get("max_bytes", MAX_BODY),
        follow_redirects=declared.get("follow_redirects", False),
        result=None if result is None else filling.expression(result, (*at, "result"), ANSWER),
        pointer=pointer,
    )


def _check_url(url: str, connection: str | None, at: Path, report: Report) -> None:
    """With a connection a path below it, else an address whose origin is written out."""
    if connection is not None:
        if not url.startswith("/") or url.startswith("//"):
            report.error(
                "wrong_form",
                "with a connection the URL is a path below its base",
                at,
                found=shown(url),
                expected="a path such as /customers",
            )
        return
    found = _ORIGIN.match(url)
    if found is None:
        expected = "https://host/…, or `auth: {connection: NAME}` and a path"
        report.error("wrong_form", "the URL has to begin with its scheme and host written out", at, found=shown(url), expected=expected)
        return
    try:
        Guard().check_url(found[0])
    except StepError as exc:
        report.error("wrong_value", exc.message, at)


def _at(whole: Any, path: tuple[str, ...]) -> Any:
    value = whole
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise StepError(f"the answer has nothing at /{'/'.join(path)}", type="OutputInvalid")
    return value
