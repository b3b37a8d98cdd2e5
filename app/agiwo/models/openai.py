"""The adapter to every endpoint that speaks the OpenAI chat protocol, on that vendor's own client with its retries off.

Imported only where a profile asks for it (the client takes a second to load); it sends exactly the body that `wire` shows, and once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NoReturn

import httpx2
import openai

from agiwo.clock import Clock, SystemClock
from agiwo.errors import StepError
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import ModelReply, ModelRequest, Usage
from agiwo.models.raw import kept
from agiwo.outbound.retry_after import retry_after
from agiwo.values import JSON, shown

MAX_BODY = 8 * 1024 * 1024
_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_TOO_LONG = ("context_length_exceeded", "string_above_max_length", "exceed_context_size_error")
_TOO_LONG_WORDS = ("maximum context length", "context window", "prompt is too long", "exceeds the available context", "too many tokens")
_FILTERED = ("content_filter", "content_policy_violation")


class OpenAIProvider:
    """Asks one profile's endpoint; create it inside the running service and close it with it."""

    def __init__(self, profile: ModelProfile, clock: Clock | None = None) -> None:
        self._profile = profile
        self._clock = clock or SystemClock()
        limits = profile.timeout
        http = httpx2.AsyncClient(
            transport=_BoundedTransport(httpx2.AsyncHTTPTransport(trust_env=False)),
            timeout=httpx2.Timeout(limits.read, connect=limits.connect),
            trust_env=False,
            follow_redirects=False,
        )
        # What the environment holds for other programs must not go to this endpoint.
        absent = openai.Omit()
        self._headers: dict[str, Any] = {"OpenAI-Organization": absent, "OpenAI-Project": absent, "Accept-Encoding": "identity"}
        if profile.api_key is None:
            self._headers["Authorization"] = absent
        self._client = openai.AsyncOpenAI(api_key=profile.api_key or "none", base_url=profile.base_url, max_retries=0, http_client=http)

    def wire(self, request: ModelRequest) -> dict[str, JSON]:
        """The body of the call, in the order in which it is sent."""
        body: dict[str, JSON] = {
            "model": request.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        }
        if request.max_tokens is not None:
            body[self._profile.max_tokens_field] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.seed is not None:
            body["seed"] = request.seed
        if request.response_format is not None:
            form = request.response_format
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": form.name, "schema": dict(form.schema), "strict": form.strict},
            }
        return body

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once; see `ModelProvider.complete`."""
        total = self._profile.timeout.total if request.deadline is None else min(request.deadline, self._profile.timeout.total)
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(total):
                response = await self._send(request)
        except TimeoutError:
            raise self._failed("Timeout", f"the model did not answer within {total:g} s") from None
        return self._reply(response, self._clock.monotonic() - began)

    async def close(self) -> None:
        await self._client.close()

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        headers = {**request.headers, **self._headers}
        try:
            answer = await self._client.chat.completions.with_raw_response.create(**self.wire(request), extra_headers=headers)
        except openai.APITimeoutError as exc:
            not_sent = isinstance(exc.__cause__, httpx2.ConnectTimeout | httpx2.PoolTimeout)
            if not_sent:
                raise self._failed("NetworkError", f"no connection to {self._profile.base_url} in time", not_done=True) from None
            raise self._failed("Timeout", f"the model sent nothing for {self._profile.timeout.read:g} s") from None
        except openai.APIStatusError as exc:
            self._refused(exc.response)
        except _TooMuch as exc:
            raise self._failed("PayloadTooLarge", str(exc)) from None
        except openai.APIConnectionError as exc:
            self._unreached(exc.__cause__)
        return answer.http_response

    def _unreached(self, cause: BaseException | None) -> NoReturn:
        if isinstance(cause, httpx2.ConnectError):
            raise self._failed("NetworkError", f"no connection to {self._profile.base_url}: {cause}", not_done=True) from None
        raise self._failed("NetworkError", f"the connection broke before the whole answer was there: {cause!r}") from None

    def _refused(self, response: httpx2.Response) -> NoReturn:
        body = _json(response.content)
        error = _error_of(body)
        kind = _kind_of_refusal(response.status_code, error)
        said = error.get("message") or response.reason_phrase
        raise self._failed(
            kind,
            f"the model's endpoint answered {response.status_code}: {shown(str(said), 300)}",
            status=response.status_code,
            retry_after=retry_after(response.headers, self._clock.now()),
            response=response,
        )

    def _reply(self, response: httpx2.Response, latency: float) -> ModelReply:
        body = _json(response.content)
        if not isinstance(body, dict):
            what = response.headers.get("content-type", "no content type")
            raise self._failed("Unavailable", f"the answer is no chat completion ({what})", status=response.status_code, response=response)
        if _error_of(body):
            # Some gateways answer 200 and put the error of the endpoint behind them into the body.
            error = _error_of(body)
            code = error.get("code")
            status = code if isinstance(code, int) and 400 <= code < 600 else 502
            said = f"the model's endpoint reports an error: {shown(str(error.get('message', '')), 300)}"
            raise self._failed(_kind_of_refusal(status, error), said, status=status, response=response)
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        message = choice.get("message") if choice is not None else None
        if choice is None or not isinstance(message, dict):
            raise self._failed("Unavailable", "the answer holds no message", status=response.status_code, response=response)
        reason = choice.get("finish_reason")
        if not isinstance(reason, str) or not reason:
            raise self._failed("Unavailable", "the answer is incomplete: it names no end", status=response.status_code, response=response)
        return ModelReply(
            text=_text(message.get("content")),
            finish_reason=reason,
            refusal=message.get("refusal") if isinstance(message.get("refusal"), str) else None,
            usage=usage_of(body.get("usage")),
            raw=body,
            model=body["model"] if isinstance(body.get("model"), str) else self._profile.model,
            request_id=response.headers.get("x-request-id"),
            latency=latency,
        )

    def _failed(
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
            body = _json(response.content)
            details = {
                "request_id": response.headers.get("x-request-id"),
                "raw": kept(self._masked(response.content.decode("utf-8", "replace")) if body is None else body, self._masked),
            }
        return StepError(self._masked(message), type=type, status=status, not_done=not_done, retry_after=retry_after, details=details)

    def _masked(self, text: str) -> str:
        # Some endpoints quote the key that they refuse.
        return text.replace(self._profile.api_key, "***") if self._profile.api_key else text


def usage_of(usage: Any) -> Usage | None:
    """The tokens that an answer reports; None where it reports none."""
    if not isinstance(usage, Mapping) or _count(usage, "prompt_tokens") is None:
        return None
    return Usage(
        input_tokens=_count(usage, "prompt_tokens") or 0,
        output_tokens=_count(usage, "completion_tokens") or 0,
        cached_tokens=_count(usage.get("prompt_tokens_details"), "cached_tokens") or 0,
        reasoning_tokens=_count(usage.get("completion_tokens_details"), "reasoning_tokens") or 0,
    )


def _count(data: Any, key: str) -> int | None:
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12 else None


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else None


def _json(body: bytes) -> JSON:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error_of(body: JSON) -> dict[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _kind_of_refusal(status: int, error: Mapping[str, Any]) -> str:
    codes = {str(error.get("code")), str(error.get("type"))}
    words = str(error.get("message", "")).lower()
    if status in (401, 402, 403) or codes.intersection(_QUOTA):
        return "PermissionDenied"
    if status in (400, 413, 422):
        if codes.intersection(_TOO_LONG) or any(word in words for word in _TOO_LONG_WORDS):
            return "ContextTooLong"
        if codes.intersection(_FILTERED):
            return "Refused"
        return "PayloadTooLarge" if status == 413 else "ValidationError"
    by_status = {404: "NotFound", 408: "Timeout", 409: "Conflict", 429: "RateLimited"}
    return by_status.get(status, "Unavailable" if status >= 500 else "ToolError")


class _TooMuch(openai.OpenAIError):
    """More came than an answer may hold."""


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Refuses answers that are longer than any honest one, compressed ones too, before they fill the memory."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise _TooMuch("the answer is compressed, which was not asked for")
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
                raise _TooMuch(f"the answer is longer than {MAX_BODY} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
