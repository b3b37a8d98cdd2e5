"""The adapter to every endpoint that speaks the Anthropic messages protocol, on that vendor's own client with its retries off.

Imported only where a profile asks for it; it sends exactly the body that `wire` shows, and once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import anthropic
import httpx2

from agiwo.clock import Clock, SystemClock
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import Mode, ModelReply, ModelRequest, ResponseFormat, Usage
from agiwo.models.wire import Failures, TooMuch, connection, count, error_of, kind_of_status, loaded
from agiwo.values import JSON, shown

#: The protocol wants a limit in every call; this one goes out where neither step nor profile has one.
MAX_TOKENS = 4096
_TOO_LONG = ("prompt is too long", "context window", "context limit", "exceed context", "too many total text bytes")
_NO_MONEY = ("credit balance", "spend limit")


class AnthropicProvider:
    """Asks one profile's endpoint; create it inside the running service and close it with it."""

    def __init__(self, profile: ModelProfile, clock: Clock | None = None) -> None:
        self._profile = profile
        self._clock = clock or SystemClock()
        self._failures = Failures(profile, self._clock, "request-id")
        absent = anthropic.Omit()
        # The key travels as the protocol's documents say; what the environment holds for other programs does not travel.
        self._headers: dict[str, Any] = {"Accept-Encoding": "identity", "Authorization": absent, "X-Api-Key": profile.api_key or absent}
        # An explicit key, even an empty one, keeps the client from looking for credentials in the environment and on the disk.
        self._client = anthropic.AsyncAnthropic(
            api_key=profile.api_key or "none", base_url=profile.base_url, max_retries=0, http_client=connection(profile)
        )
        for name in [name for name in self._client._custom_headers if name.lower() != "accept-encoding"]:
            self._headers.setdefault(name, absent)

    def wire(self, request: ModelRequest) -> dict[str, JSON]:
        """The body of the call, in the order in which it is sent."""
        system = "\n\n".join(message.content for message in request.messages if message.role == "system")
        body: dict[str, JSON] = {"model": request.model, "max_tokens": MAX_TOKENS if request.max_tokens is None else request.max_tokens}
        if system:
            body["system"] = system
        body["messages"] = [{"role": m.role, "content": m.content} for m in request.messages if m.role != "system"]
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.response_format is not None:
            body |= _form(request.response_format)
        return body

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once; see `ModelProvider.complete`."""
        total = self._profile.timeout.total if request.deadline is None else min(request.deadline, self._profile.timeout.total)
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(total):
                response = await self._send(request)
        except TimeoutError:
            raise self._failures.too_late(total) from None
        return self._reply(response, self._clock.monotonic() - began)

    async def close(self) -> None:
        await self._client.close()

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        headers = {**request.headers, **self._headers}
        body = self.wire(request)
        # The installed client puts some sampling parameters only into the body by this door.
        extra = {key: body.pop(key) for key in ("temperature",) if key in body}
        try:
            answer = await self._client.messages.with_raw_response.create(**body, extra_headers=headers, extra_body=extra or None)
        except anthropic.APITimeoutError as exc:
            raise self._failures.late(exc.__cause__) from None
        except anthropic.APIStatusError as exc:
            error = error_of(loaded(exc.response.content))
            kind = _kind_of_refusal(exc.response.status_code, error)
            raise self._failures.refused(exc.response, kind, str(error.get("message") or "")) from None
        except anthropic.APIConnectionError as exc:
            raise self._failures.unreached(exc.__cause__) from None
        except TooMuch as exc:
            raise self._failures.unreached(exc) from None
        return answer.http_response

    def _reply(self, response: httpx2.Response, latency: float) -> ModelReply:
        body = loaded(response.content)
        if not isinstance(body, dict):
            what = response.headers.get("content-type", "no content type")
            raise self._failures.unproven(response, f"the answer is no message ({what})")
        if error := error_of(body):
            said = f"the model's endpoint reports an error: {shown(str(error.get('message', '')), 300)}"
            status = _STATUS_OF.get(str(error.get("type")), 502)
            raise self._failures.failure(_kind_of_refusal(status, error), said, status=status, response=response)
        content = body.get("content")
        if not isinstance(content, list):
            raise self._failures.unproven(response, "the answer holds no content")
        reason = body.get("stop_reason")
        if not isinstance(reason, str) or not reason:
            raise self._failures.unproven(response, "the answer is incomplete: it names no end")
        blocks = [block for block in content if isinstance(block, dict)]
        return ModelReply(
            text=_text(blocks),
            finish_reason=reason,
            refusal=None,
            usage=usage_of(body.get("usage")),
            raw=body,
            model=body["model"] if isinstance(body.get("model"), str) else self._profile.model,
            request_id=self._failures.request_id(response),
            latency=latency,
            arguments=next((json.dumps(b.get("input")) for b in blocks if b.get("type") == "tool_use"), None),
        )


def _form(form: ResponseFormat) -> dict[str, JSON]:
    if form.mode is Mode.JSON_SCHEMA:
        return {"output_config": {"format": {"type": "json_schema", "schema": dict(form.schema)}}}
    if form.mode is Mode.TOOL:
        return {
            "tools": [{"name": form.name, "input_schema": dict(form.schema)}],
            "tool_choice": {"type": "tool", "name": form.name},
        }
    return {}


def usage_of(usage: Any) -> Usage | None:
    """The tokens that an answer reports, the cached ones among the input; None where it reports none."""
    fresh = count(usage, "input_tokens")
    if fresh is None:
        return None
    read = count(usage, "cache_read_input_tokens") or 0
    written = count(usage, "cache_creation_input_tokens") or 0
    return Usage(
        input_tokens=fresh + read + written,
        output_tokens=count(usage, "output_tokens") or 0,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count(usage.get("output_tokens_details"), "thinking_tokens") or 0,
    )


def _text(blocks: list[dict[str, Any]]) -> str | None:
    """The text that was said; thinking is a block of its own kind and no text."""
    parts = [block["text"] for block in blocks if block.get("type") == "text" and isinstance(block.get("text"), str)]
    return "".join(parts) if parts else None


_STATUS_OF: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def _kind_of_refusal(status: int, error: Mapping[str, Any]) -> str:
    words = str(error.get("message", "")).lower()
    if error.get("type") == "billing_error" or (status in (400, 429) and any(word in words for word in _NO_MONEY)):
        return "PermissionDenied"
    if status in (400, 413) and any(word in words for word in _TOO_LONG):
        return "ContextTooLong"
    return kind_of_status(status)
