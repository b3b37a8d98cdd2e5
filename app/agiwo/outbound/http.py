"""The one place that speaks HTTP for tools and notices: one client with limits, a clock over the whole call, and the marks of the trace.

It takes no proxy or credential from the environment, follows no redirect, and must not read a body of any size.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import httpx

from agiwo.errors import NetworkError, StepError
from agiwo.outbound.guard import Guard
from agiwo.values import decode_strict, shown

MAX_BODY = 10_000_000
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30.0)
#: Seconds for one of several addresses of a host; the last one has what is left of the call.
_EACH_ADDRESS = 3.0
#: How an answer may be packed, and once only: layers upon layers multiply.
_PACKED = ("gzip", "x-gzip")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: status, headers in lower case, and the body as bytes."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON; raises ValueRefused if it is none or cannot be kept."""
        return decode_strict(self.body)


class HttpCalls:
    """Calls over one pool of connections; belongs to the event loop that first uses it.

    With a guard only what it lets through is connected to. `trusted` is a TLS context for servers that are not known to the world.
    """

    def __init__(self, guard: Guard | None = None, trusted: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        transport = httpx.AsyncHTTPTransport(verify=trusted or True, trust_env=False, limits=_LIMITS)
        if guard is not None:
            _connect_through(guard, transport)
        self._client = httpx.AsyncClient(
            transport=transport,
            timeout=None,
            trust_env=False,
            follow_redirects=False,
            headers={"accept-encoding": "gzip"},
            event_hooks={"response": [_set_aside]},
        )
        # What one call is given as a cookie is nobody else's.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    async def call(
        self,
        method: str,
        url: str,
        *,
        within: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        traceparent: str | None = None,
        idempotency_key: str | None = None,
        max_body: int = MAX_BODY,
        cut: bool = False,
    ) -> Answer:
        """One call, from the wait for a connection to the last byte in `within` seconds; with `cut` a longer body is no error and not read.

        Raises NetworkError (`not_done` if no connection came about), StepError of type Timeout or PayloadTooLarge, and what the guard
        raises; a status is no error.
        """
        if self._guard is not None:
            self._guard.check_url(url)
        sent = dict(headers or {})
        if traceparent is not None:
            sent["traceparent"] = traceparent
        if idempotency_key is not None:
            sent["Idempotency-Key"] = idempotency_key
        try:
            async with asyncio.timeout(within), self._client.stream(method, url, headers=sent, content=body) as response:
                return Answer(response.status_code, _headers(response), await _bounded(response, max_body, cut))
        except TimeoutError:
            raise StepError(f"no complete answer within {within:g} s", type="Timeout") from None
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise network_failure(exc) or StepError(f"the call could not be made: {type(exc).__name__}") from None

    @asynccontextmanager
    async def listen(
        self, url: str, *, quiet: float, headers: Mapping[str, str] | None = None, max_body: int = MAX_BODY
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[str]]]:
        """GET an answer that goes on: its head, and its lines as they come; with a status of 400 and above the head has the body.

        Raises StepError as `call` does; `quiet` is how many seconds may pass without a sign of the other side.
        """
        try:
            timeout = httpx.Timeout(quiet, connect=min(quiet, 10.0))
            async with self._client.stream("GET", url, headers=dict(headers or {}), timeout=timeout) as response:
                body = await _bounded(response, max_body) if response.status_code >= 400 else b""
                yield Answer(response.status_code, _headers(response), body), _lines(response)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise network_failure(exc) or StepError(f"the call could not be made: {type(exc).__name__}") from None

    async def close(self) -> None:
        await self._client.aclose()


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """The lines as streams have them: text may hold what Python takes for a line's end too."""
    rest = b""
    async for part in response.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


class _CheckedBackend:
    """The client's own way to connect, by addresses that the guard gave and nothing else."""

    def __init__(self, guard: Guard, inner: Any) -> None:
        self._guard = guard
        self._inner = inner

    async def connect_tcp(self, host: str, port: int, **more: Any) -> Any:
        *others, last = await self._guard.addresses(host, port)
        for address in others:
            try:
                return await self._inner.connect_tcp(address, port, **{**more, "timeout": _EACH_ADDRESS})
            except Exception:
                continue
        return await self._inner.connect_tcp(last, port, **more)

    async def connect_unix_socket(self, path: str, **more: Any) -> Any:
        raise NetworkError("a unix socket is no address of an outbound call", not_done=True)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def _connect_through(guard: Guard, transport: httpx.AsyncHTTPTransport) -> None:
    # The host stays what it is for the Host header, for TLS and for the pool; only the way to its address changes. If another version of
    # the client has no such place, reading it fails and no call is made.
    pool: Any = transport._pool
    pool._network_backend = _CheckedBackend(guard, pool._network_backend)


async def _set_aside(response: httpx.Response) -> None:
    # The client reads a Location though it follows none, and fails for one that it does not like: as if no call had been made.
    if "location" in response.headers:
        response.extensions["location"] = response.headers.pop("location")


def _headers(response: httpx.Response) -> dict[str, str]:
    location = response.extensions.get("location")
    return {**response.headers, **({"location": location} if location is not None else {})}


async def _bounded(response: httpx.Response, most: int, cut: bool = False) -> bytes:
    """The body, unpacked piece by piece: a few bytes that unpack to gigabytes are never held."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in (*_PACKED, "identity"):
        raise StepError(f"the answer is packed as {shown(coding[:40])}, which was not asked for", type="ValidationError")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16) if coding in _PACKED else None
    out = bytearray()
    async for chunk in response.aiter_raw():
        try:
            out += chunk if unpacking is None else unpacking.decompress(chunk, most + 1 - len(out))
        except zlib.error:
            raise StepError("the answer cannot be unpacked", type="ValidationError") from None
        if len(out) > most and cut:
            return bytes(out[:most])
        if len(out) > most:
            raise StepError(f"the answer is longer than {most} bytes", type="PayloadTooLarge")
    if unpacking is not None and out and (not unpacking.eof or unpacking.unused_data):
        raise StepError("the answer is packed in more or less than one piece", type="ValidationError")
    return bytes(out)


def network_failure(exc: BaseException) -> StepError | None:
    """The product's error for an exception of the HTTP client; None if it is none of its."""
    if isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return NetworkError("no connection could be made", not_done=True)
    if isinstance(exc, httpx.TimeoutException):
        return StepError("the other side took too long", type="Timeout")
    if isinstance(exc, httpx.HTTPStatusError):
        return for_status(exc.response.status_code)
    if isinstance(exc, httpx.TransportError):
        return NetworkError(f"the connection failed ({type(exc).__name__})")
    if isinstance(exc, httpx.InvalidURL):
        return StepError("the address is no valid URL", type="ValidationError", not_done=True)
    return None


_BY_STATUS = {401: "PermissionDenied", 403: "PermissionDenied", 404: "NotFound", 408: "Timeout", 409: "Conflict", 429: "RateLimited"}


def for_status(status: int) -> StepError:
    """The error that an HTTP status of 400 and above stands for."""
    named = _BY_STATUS.get(status) or ("Unavailable" if status >= 500 else "ToolError")
    return StepError(f"the other side answered {status}", type=named, status=status, not_done=status == 429)
