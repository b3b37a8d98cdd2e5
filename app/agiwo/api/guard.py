"""What stands before every route: who calls, how much may be sent, in which form, and under which trace.

Plain ASGI, so that it costs microseconds and neither buffers answers nor holds up streams.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agiwo.api.answers import problem, store_away
from agiwo.errors import Denied, InvalidInput, NotFound, Problem, ServiceError, TooLarge, Unauthenticated
from agiwo.ports.store import StoreUnavailable
from agiwo.service.callers import Caller, Credentials

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HOST = re.compile(r":\d*$")
#: Bytes of an address with its query, and of all headers.
ADDRESS_LIMIT, HEADERS_LIMIT = 16_384, 65_536
_REPEATABLE = frozenset({"label"})


@dataclass(frozen=True, slots=True)
class Seen:
    """What the guard found out about a request; routes find it in `scope["agiwo"]`. `caller` is None only on open paths."""

    caller: Caller | None
    trace_id: str


class Guard:
    """The outermost layer of the application.

    `open_paths` are prefixes that need no credential (a wrong one is refused there too); `body_limit` counts bytes,
    `body_within` the seconds that a body may take to arrive. Without keys every
    caller is the operator, and a browser calls for any page that it shows: then only the names in `hosts` are answered to (None: any), and
    what another site's page sends is refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Credentials,
        open_paths: Sequence[str],
        body_limit: int,
        body_within: float,
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._open_paths = tuple(open_paths)
        self._body_limit = body_limit
        self._body_within = body_within
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        trace_id = _trace_id(headers.get(b"traceparent"))
        answer_line = (b"traceparent", f"00-{trace_id}-{secrets.token_hex(8)}-01".encode())

        streaming = over = False

        async def traced(message: Message) -> None:
            nonlocal streaming, over
            if message["type"] == "http.response.start":
                streaming = any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"])
                message["headers"] = [*message.get("headers", ()), answer_line]
            elif over:
                return
            elif streaming and message.get("more_body") and not await self._still_known(headers):
                over = True
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        try:
            caller = await self._caller(scope["path"], headers)
            if not self._is_open(scope["path"]) and await self._keys.open():
                self._check_page(scope["method"], headers)
            self._check_form(scope, headers)
        except ServiceError as exc:
            await problem(exc)(scope, receive, traced)
            return
        except StoreUnavailable:
            await store_away()(scope, receive, traced)
            return
        scope["agiwo"] = Seen(caller, trace_id)
        await self._app(scope, self._bounded(receive) if scope["method"] not in ("GET", "HEAD") else receive, traced)

    async def _caller(self, path: str, headers: dict[bytes, bytes]) -> Caller | None:
        given = headers.get(b"authorization")
        if given is None and self._is_open(path):
            return None
        caller = await self._keys.caller(None if given is None else given.decode("latin-1"))
        if caller is None and not self._is_open(path):
            raise Unauthenticated("an API key is needed: `Authorization: Bearer …`")
        return caller

    async def _still_known(self, headers: dict[bytes, bytes]) -> bool:
        """Whether the credential that a stream was opened with is still good; it may be revoked meanwhile."""
        given = headers.get(b"authorization")
        try:
            return given is None or await self._keys.caller(given.decode("latin-1")) is not None
        except Unauthenticated:
            return False
        except StoreUnavailable:
            return True

    def _is_open(self, path: str) -> bool:
        return any(path == known or (known.endswith("/") and path.startswith(known)) for known in self._open_paths)

    def _check_page(self, method: str, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and _HOST.sub("", host).strip("[]") not in self._hosts:
            raise Denied(
                "this service has no API keys, so it answers only to its own name; set AGIWO_PUBLIC_URL to the address that you use",
                code="unknown_host",
                host=host[:200],
            )
        origin = headers.get(b"origin")
        if origin is not None and method not in ("GET", "HEAD") and origin.decode("latin-1").lower().partition("://")[2] != host:
            raise Denied("this service has no API keys, so it takes nothing from the pages of other sites", code="foreign_page")

    def _check_form(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        if len(scope["raw_path"]) + len(scope["query_string"]) > ADDRESS_LIMIT:
            raise InvalidInput(f"an address may have at most {ADDRESS_LIMIT} bytes", code="address_too_long")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADERS_LIMIT:
            raise InvalidInput(f"the headers may have at most {HEADERS_LIMIT} bytes", code="headers_too_large")
        if "\x00" in scope["path"]:
            raise NotFound("there is nothing here")
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding not in (b"", b"identity"):
            raise InvalidInput("compressed bodies are not taken; send the body as it is", code="unsupported_encoding")
        length = headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > self._body_limit:
            raise self._too_large()
        if scope["query_string"]:
            _check_query(scope["query_string"])

    def _bounded(self, receive: Receive) -> Receive:
        seen, whole, until = 0, False, asyncio.get_running_loop().time() + self._body_within

        async def bounded() -> Message:
            nonlocal seen, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise InvalidInput(f"the body did not arrive within {self._body_within:g} seconds", code="body_timeout") from None
            if message["type"] == "http.request":
                whole = not message.get("more_body", False)
                seen += len(message.get("body", b""))
                if seen > self._body_limit:
                    raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> TooLarge:
        return TooLarge(f"a request body may have at most {self._body_limit} bytes", limit=self._body_limit)


def _headers(scope: Scope) -> dict[bytes, bytes]:
    return dict(scope["headers"])


def _trace_id(traceparent: bytes | None) -> str:
    if traceparent is not None and (found := _TRACEPARENT.fullmatch(traceparent.strip())) is not None:
        return found[1].decode()
    return secrets.token_hex(16)


def _check_query(raw: bytes) -> None:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except (UnicodeDecodeError, ValueError):
        raise InvalidInput("the query string is not percent-encoded UTF-8", code="malformed") from None
    names = [name for name, _ in pairs]
    wrong = [
        Problem("repeated_parameter", "is given more than once", f"?{name[:80]}")
        for name in dict.fromkeys(names)
        if names.count(name) > 1 and name not in _REPEATABLE
    ]
    wrong += [Problem("value_refused", "holds the character NUL", f"?{name[:80]}") for name, value in pairs if "\x00" in name + value]
    if wrong:
        raise InvalidInput("the query parameters cannot be taken", code="invalid_parameters", problems=wrong)
