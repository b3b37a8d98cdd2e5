"""The adapter to every endpoint that speaks the OpenAI chat protocol, on that vendor's own client with its retries off.

Imported only where a profile asks for it (the client takes a second to load); it sends exactly the body that `wire` shows, and once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx2
import openai

from agiwo.clock import Clock, SystemClock
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import Mode, ModelReply, ModelRequest, ResponseFormat, Usage
from agiwo.models.wire import Failures, TooMuch, connection, count, error_of, kind_of_status, loaded
from agiwo.values import JSON, shown

_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_TOO_LONG = ("context_length_exceeded", "string_above_max_length", "exceed_context_size_error")
_TOO_LONG_WORDS = ("maximum context length", "context window", "prompt is too long", "exceeds the available context", "too many tokens")
_FILTERED = ("content_filter", "content_policy_violation")


class OpenAIProvider:
    """Asks one profile's endpoint; create it inside the running service and close it with it."""

    def __init__(self, profile: ModelProfile, clock: Clock | None = None) -> None:
        self._profile = profile
        self._clock = clock or SystemClock()
        self._failures = Failures(profile, self._clock, "x-request-id")
        # What the environment holds for other programs must not go to this endpoint.
        absent = openai.Omit()
        self._headers: dict[str, Any] = {"OpenAI-Organization": absent, "OpenAI-Project": absent, "Accept-Encoding": "identity"}
        if profile.api_key is None:
            self._headers["Authorization"] = absent
        self._client = openai.AsyncOpenAI(
            api_key=profile.api_key or "none", base_url=profile.base_url, max_retries=0, http_client=connection(profile)
        )

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
        try:
            answer = await self._client.chat.completions.with_raw_response.create(**self.wire(request), extra_headers=headers)
        except openai.APITimeoutError as exc:
            raise self._failures.late(exc.__cause__) from None
        except openai.APIStatusError as exc:
            error = error_of(loaded(exc.response.content))
            kind = _kind_of_refusal(exc.response.status_code, error)
            raise self._failures.refused(exc.response, kind, str(error.get("message") or "")) from None
        except openai.APIConnectionError as exc:
            raise self._failures.unreached(exc.__cause__) from None
        except TooMuch as exc:
            raise self._failures.unreached(exc) from None
        return answer.http_response

    def _reply(self, response: httpx2.Response, latency: float) -> ModelReply:
        body = loaded(response.content)
        if not isinstance(body, dict):
            what = response.headers.get("content-type", "no content type")
            raise self._failures.unproven(response, f"the answer is no chat completion ({what})")
        if error := error_of(body):
            # Some gateways answer 200 and put the error of the endpoint behind them into the body.
            code = error.get("code")
            status = code if isinstance(code, int) and 400 <= code < 600 else 502
            said = f"the model's endpoint reports an error: {shown(str(error.get('message', '')), 300)}"
            raise self._failures.failure(_kind_of_refusal(status, error), said, status=status, response=response)
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        message = choice.get("message") if choice is not None else None
        if choice is None or not isinstance(message, dict):
            raise self._failures.unproven(response, "the answer holds no message")
        reason = choice.get("finish_reason")
        if not isinstance(reason, str) or not reason:
            raise self._failures.unproven(response, "the answer is incomplete: it names no end")
        return ModelReply(
            text=_text(message.get("content")),
            finish_reason=reason,
            refusal=message.get("refusal") if isinstance(message.get("refusal"), str) else None,
            usage=usage_of(body.get("usage")),
            raw=body,
            model=body["model"] if isinstance(body.get("model"), str) else self._profile.model,
            request_id=self._failures.request_id(response),
            latency=latency,
            arguments=_arguments(message.get("tool_calls")),
        )


def _form(form: ResponseFormat) -> dict[str, JSON]:
    if form.mode is Mode.JSON_SCHEMA:
        schema = {"name": form.name, "schema": dict(form.schema), "strict": form.strict}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if form.mode is Mode.TOOL:
        function = {"name": form.name, "parameters": dict(form.schema), "strict": form.strict}
        choice = {"type": "function", "function": {"name": form.name}}
        return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
    return {"response_format": {"type": "json_object"}} if form.mode is Mode.JSON_OBJECT else {}


def usage_of(usage: Any) -> Usage | None:
    """The tokens that an answer reports; None where it reports none."""
    read = count(usage, "prompt_tokens")
    if read is None:
        return None
    return Usage(
        input_tokens=read,
        output_tokens=count(usage, "completion_tokens") or 0,
        cache_read_tokens=count(usage.get("prompt_tokens_details"), "cached_tokens") or 0,
        reasoning_tokens=count(usage.get("completion_tokens_details"), "reasoning_tokens") or 0,
    )


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else None


def _arguments(calls: Any) -> str | None:
    """What the first called function was given; some endpoints send it as an object and not as its text."""
    first = calls[0] if isinstance(calls, list) and calls and isinstance(calls[0], dict) else {}
    function = first.get("function")
    given = function.get("arguments") if isinstance(function, dict) else None
    return given if given is None or isinstance(given, str) else json.dumps(given)


def _kind_of_refusal(status: int, error: Mapping[str, Any]) -> str:
    codes = {str(error.get("code")), str(error.get("type"))}
    words = str(error.get("message", "")).lower()
    if codes.intersection(_QUOTA):
        return "PermissionDenied"
    if status in (400, 413, 422):
        if codes.intersection(_TOO_LONG) or any(word in words for word in _TOO_LONG_WORDS):
            return "ContextTooLong"
        if codes.intersection(_FILTERED):
            return "Refused"
    return kind_of_status(status)
