"""What the adapters have in common: a bounded connection to an endpoint, and the failures that its answers and silences stand for.

Names no vendor's fields; how an error reads is told by the adapter.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

from agiwo.clock import Clock
from agiwo.errors import StepError
from agiwo.models.profile import ModelProfile
from agiwo.models.raw import kept
from agiwo.outbound.retry_after import retry_after
from agiwo.values import JSON, shown

MAX_BODY = 8 * 1024 * 1024


def connection(profile: ModelProfile) -> httpx2.AsyncClient:
    """A client for one profile that follows no redirect, asks no proxy of the environment, and takes no answer beyond `MAX_BODY` bytes."""
    return httpx2.AsyncClient(
        transport=_BoundedTransport(httpx2.AsyncHTTPTransport(trust_env=False)),
        timeout=httpx2.Timeout(profile.timeout.read, connect=profile.timeout.connect),
        trust_env=False,
        follow_redirects=False,
    )


class Failures:
    """Makes the failures of one profile's calls; the key stands in none of them."""

    def __init__(self, profile: ModelProfile, clock: Clock, request_id: str) -> None:
        self._profile = profile
        self._clock = clock
        self._request_id = request_id

    def request_id(self, response: httpx2.Response) -> str | None:
        """The endpoint's name for this call."""
        found: str | None = response.headers.get(self._request_id) or response.headers.get("x-request-id")
        return found

    def late(self, cause: BaseException | None) -> StepError:
        """The client gave up waiting."""
        if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            return self.failure("NetworkError", f"no connection to {self._profile.base_url} in time", not_done=True)
        return self.failure("Timeout", f"the model sent nothing for {self._profile.timeout.read:g} s")

    def too_late(self, total: float) -> StepError:
        """The whole call took too long, whatever came."""
        return self.failure("Timeout", f"the model did not answer within {total:g} s")

    def unreached(self, cause: BaseException | None) -> StepError:
        """No connection, or one that broke."""
        if isinstance(cause, TooMuch):
            return self.failure("PayloadTooLarge", str(cause))
        if isinstance(cause, httpx2.ConnectError):
            return self.failure("NetworkError", f"no connection to {self._profile.base_url}: {cause}", not_done=True)
        return self.failure("NetworkError", f"the connection broke before the whole answer was there: {cause!r}")

    def refused(self, response: httpx2.Response, kind: str, said: str) -> StepError:
        """The endpoint answered with an error."""
        return self.failure(
            kind,
            f"the model's endpoint answered {response.status_code}: {shown(said or response.reason_phrase, 300)}",
            status=response.status_code,
            retry_after=retry_after(response.headers, self._clock.now()),
            response=response,
        )

    def unproven(self, response: httpx2.Response, why: str) -> StepError:
        """An answer that does not prove to be whole: a failed call, never an output."""
        return self.failure("Unavailable", why, status=response.status_code, response=response)

    def failure(
        self,
        type: str,
        message: str,
        *,
        not_done: bool = False,
        status: int | None = None,
        retry_after: float | None = None,
        response: httpx2.Response | None = None,
    ) -> StepError:
        details: dict[str, JSON] = {}
        if response is not None:
            body = loaded(response.content)
            raw = self._masked(response.content.decode("utf-8", "replace")) if body is None else body
            details = {"request_id": self.request_id(response), "raw": kept(raw, self._masked)}
        return StepError(self._masked(message), type=type, status=status, not_done=not_done, retry_after=retry_after, details=details)

    def _masked(self, text: str) -> str:
        # Some endpoints quote the key that they refuse.
        return text.replace(self._profile.api_key, "***") if self._profile.api_key else text


def loaded(body: bytes) -> JSON:
    """The body as JSON, None if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def error_of(body: JSON) -> dict[str, Any]:
    """The `error` in a body, empty if there is none."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def count(data: Any, key: str) -> int | None:
    """A number of tokens, None where there is no sensible one."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12 else None


def kind_of_status(status: int) -> str:
    """The failure that an HTTP status stands for where the body says no more."""
    known = {401: "PermissionDenied", 402: "PermissionDenied", 403: "PermissionDenied", 400: "ValidationError", 422: "ValidationError"}
    known |= {404: "NotFound", 408: "Timeout", 409: "Conflict", 413: "PayloadTooLarge", 429: "RateLimited"}
    return known.get(status, "Unavailable" if status >= 500 else "ToolError")


class TooMuch(Exception):
    """More came than an answer may hold."""


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Refuses answers that are longer than any honest one, compressed ones too, before they fill the memory."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise TooMuch("the answer is compressed, which was not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        bounded = _Bounded(response.stream)
        return httpx2.Response(response.status_code, headers=response.headers, stream=bounded, extensions=response.extensions)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._inner:
            seen += len(chunk)
            if seen > MAX_BODY:
                raise TooMuch(f"the answer is longer than {MAX_BODY} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
