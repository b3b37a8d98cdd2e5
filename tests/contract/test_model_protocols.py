"""What goes over the wire to each kind of endpoint, to the letter, and what only one of them says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agiwo.errors import StepError
from agiwo.models.calls import ModelResult
from agiwo.models.profile import ModelProfile
from agiwo.models.providers import provider_for
from agiwo.models.task import ModelTask, Way, run_model_task
from agiwo.testing.model_server import Answer, ModelServer, Say, error

SCHEMA = {
    "type": "object",
    "required": ["label", "orders"],
    "properties": {"label": {"enum": ["good", "bad"]}, "orders": {"type": "integer"}, "note": {"type": "string"}},
    "additionalProperties": False,
}
GOOD = '{"label": "good", "orders": 8, "note": null}'


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


class Asker:
    """One profile on one server."""

    def __init__(self, server: ModelServer, **changes: Any) -> None:
        self.profile = ModelProfile.from_mapping("default", {"base_url": server.base_url, "model": "m", "max_tokens": 300, **changes})

    async def ask(self, prompt: str = "Hello", *, llm: dict[str, Any] | None = None, **task: Any) -> ModelResult:
        provider = provider_for(self.profile)
        try:
            return await run_model_task([Way(self.profile, provider, self.profile.options(llm or {}))], ModelTask(prompt, **task))
        finally:
            await provider.close()

    async def fails(self, prompt: str = "Hello", **task: Any) -> StepError:
        with pytest.raises(StepError) as caught:
            await self.ask(prompt, **task)
        return caught.value


def claude(server: ModelServer, **changes: Any) -> Asker:
    return Asker(server, kind="anthropic", **{"base_url": server.base_url.removesuffix("/v1"), **changes})


async def test_the_prompt_goes_out_to_the_letter_and_is_kept_as_sent(server: ModelServer) -> None:
    prompt = " Sum this up, {{ not a template }} 😀\r\n"
    result = await Asker(server).ask(prompt, system_prompt="Be brief.", llm={"temperature": 0, "seed": 7})
    sent = server.requests[0].body
    assert sent == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}],
        "max_tokens": 300,
        "temperature": 0,
        "seed": 7,
    }
    assert result.calls[0].request == sent


async def test_cost_and_usage_come_from_what_the_endpoint_reports(server: ModelServer) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 20}}
    server.script.append(Say("hi", usage={"prompt_tokens": 1000, "completion_tokens": 100, **details}))
    result = await Asker(server, price={"in": 2.5, "out": 10, "cache_read": 1.25}).ask()
    assert result.usage.to_json() == {
        "input_tokens": 1000,
        "output_tokens": 100,
        "cache_read_tokens": 400,
        "cache_write_tokens": 0,
        "reasoning_tokens": 20,
    }
    assert result.cost_micro_usd == 3000
    assert result.model()["usage"] == result.usage.to_json()


async def test_the_trace_and_the_key_go_along_and_nothing_of_the_environment(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-another-program")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-another-program")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    await Asker(server, api_key="k-1").ask(headers={"traceparent": "00-aa-bb-01"})
    headers = server.requests[0].headers
    assert headers["traceparent"] == "00-aa-bb-01"
    assert headers["authorization"] == "Bearer k-1"
    assert "of-another-program" not in str(headers)


async def test_without_a_key_none_is_sent(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-another-program")
    await Asker(server).ask()
    assert "authorization" not in server.requests[0].headers


async def test_output_schema_asks_for_that_json_and_gives_the_value(server: ModelServer) -> None:
    server.script.append(Say(GOOD))
    result = await Asker(server).ask(output_schema=SCHEMA)
    assert result.output == {"label": "good", "orders": 8}
    form = server.requests[0].body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["strict"] is True
    assert form["json_schema"]["schema"]["required"] == ["label", "orders", "note"]


async def test_the_scripted_model_streams_with_usage_and_an_end_mark(server: ModelServer) -> None:
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": "Hi"}]}
    server.script.append(Say("a text that takes more than one piece"))
    events = await _post(server, body)
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"])
    assert text == "a text that takes more than one piece"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] > 0


async def _post(server: ModelServer, body: dict[str, Any]) -> list[str]:
    host, port = server.base_url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    raw = json.dumps(body).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(raw), raw))
    answer = (await reader.read()).decode()
    writer.close()
    return [line.removeprefix("data: ") for line in answer.partition("\r\n\r\n")[2].split("\n\n") if line]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": []}'])
async def test_the_scripted_model_refuses_what_the_protocol_does_not_know(server: ModelServer, body: bytes) -> None:
    host, port = server.base_url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    writer.close()


async def test_anthropic_the_prompt_goes_out_to_the_letter(server: ModelServer) -> None:
    prompt = " Sum this up, {{ not a template }} 😀\r\n"
    result = await claude(server).ask(prompt, system_prompt="Be brief.", llm={"temperature": 0})
    sent = server.requests[0].body
    assert sent == {
        "model": "m",
        "max_tokens": 300,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
    }
    assert result.calls[0].request == sent
    assert result.calls[0].request_id == "1"


async def test_anthropic_no_sampling_goes_out_unasked_and_a_limit_always_does(server: ModelServer) -> None:
    await claude(server, max_tokens=None).ask()
    assert set(server.requests[0].body) == {"model", "max_tokens", "messages"}
    assert server.requests[0].headers["anthropic-version"]


async def test_anthropic_nothing_of_the_environment_goes_along(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-another-program")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "of-another-program")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Team: of-another-program")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    await claude(server).ask()
    await claude(server, api_key="k-1").ask(headers={"traceparent": "00-aa-bb-01"})
    assert "of-another-program" not in str([request.headers for request in server.requests])
    assert "x-api-key" not in server.requests[0].headers
    assert server.requests[1].headers["x-api-key"] == "k-1"
    assert server.requests[1].headers["traceparent"] == "00-aa-bb-01"


async def test_anthropic_usage_counts_the_cache_as_input(server: ModelServer) -> None:
    usage = {"input_tokens": 100, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 300, "output_tokens": 50}
    server.script.append(Say("hi", usage={**usage, "output_tokens_details": {"thinking_tokens": 20}}))
    result = await claude(server, price={"in": 3, "out": 15, "cache_read": 0.3, "cache_write": 3.75}).ask()
    assert result.usage.to_json() == {
        "input_tokens": 1000, "output_tokens": 50, "cache_read_tokens": 600, "cache_write_tokens": 300, "reasoning_tokens": 20,
    }  # fmt: skip
    assert result.cost_micro_usd == 300 + 180 + 1125 + 750


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("max_tokens", "Truncated"),
        ("refusal", "Refused"),
        ("model_context_window_exceeded", "ContextTooLong"),
        ("pause_turn", "Unavailable"),
        ("tool_use", "OutputInvalid"),
        (None, "Unavailable"),
    ],
)
async def test_anthropic_the_end_is_looked_at_before_the_text(server: ModelServer, reason: str | None, kind: str) -> None:
    """REQ-41: the end reason goes before parsing; REQ-42: no end, no answer."""
    server.script.append(Say(GOOD, finish_reason=reason))
    assert (await claude(server).fails(output_schema=SCHEMA)).type == kind


async def test_anthropic_a_schema_is_sent_as_that_protocol_takes_it(server: ModelServer) -> None:
    server.script.extend([Say(GOOD), Say(GOOD)])
    await claude(server).ask(output_schema=SCHEMA)
    await claude(server).ask(output_schema=SCHEMA, llm={"structured": "tool"})
    form = server.requests[0].body["output_config"]["format"]
    assert (form["type"], form["schema"]["required"]) == ("json_schema", ["label", "orders"])
    tool = server.requests[1].body
    assert tool["tool_choice"] == {"type": "tool", "name": "output"}
    assert tool["tools"][0]["input_schema"]["properties"]["orders"] == {"type": "integer"}


async def test_anthropic_a_schema_that_cannot_be_enforced_is_asked_for_through_a_tool(server: ModelServer) -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
    server.script.append(Say("{}"))
    result = await claude(server).ask(output_schema={"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert result.calls[0].mode == "tool"


async def test_anthropic_thinking_is_no_text(server: ModelServer) -> None:
    content = [{"type": "thinking", "thinking": GOOD}, {"type": "text", "text": '{"label": "bad", "orders": 1}'}]
    server.script.append(Answer(200, {"content": content, "stop_reason": "end_turn", "model": "m", "usage": {"input_tokens": 1}}))
    assert (await claude(server).ask(output_schema=SCHEMA)).output["label"] == "bad"


@pytest.mark.parametrize(
    ("asker", "status", "code", "message", "kind"),
    [
        (Asker, 400, "context_length_exceeded", "bad", "ContextTooLong"),
        (Asker, 400, None, "This model's maximum context length is 4096 tokens", "ContextTooLong"),
        (Asker, 400, "content_filter", "bad", "Refused"),
        (Asker, 429, "insufficient_quota", "bad", "PermissionDenied"),
        (claude, 429, "rate_limit_error", "bad", "RateLimited"),
        (claude, 529, "overloaded_error", "Overloaded", "Unavailable"),
        (claude, 402, "billing_error", "bad", "PermissionDenied"),
        (claude, 400, "invalid_request_error", "Your credit balance is too low", "PermissionDenied"),
        (claude, 413, "request_too_large", "bad", "PayloadTooLarge"),
    ],
)
async def test_what_one_protocol_says_becomes_the_trees_failure(
    server: ModelServer, asker: Any, status: int, code: str, message: str, kind: str
) -> None:
    server.script.append(error(status, code, message))
    failure = await asker(server).fails(output_schema=SCHEMA)
    assert (failure.type, failure.status) == (kind, status)


async def test_openai_the_modes_on_the_wire(server: ModelServer) -> None:
    for mode in ("tool", "json_object", "prompt"):
        server.script.append(Say('{"label": "good", "orders": 8}'))
        await Asker(server).ask(output_schema=SCHEMA, llm={"structured": mode})
    tool, thing, prompt = (request.body for request in server.requests)
    assert tool["tool_choice"] == {"type": "function", "function": {"name": "output"}}
    assert tool["tools"][0]["function"]["strict"] is True
    assert thing["response_format"] == {"type": "json_object"}
    assert "JSON" in thing["messages"][0]["content"]
    assert set(prompt) == {"model", "messages", "max_tokens"}


async def test_openai_arguments_that_come_as_an_object_are_taken(server: ModelServer) -> None:
    call = {"type": "function", "function": {"name": "output", "arguments": {"label": "bad", "orders": 2}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    server.script.append(Answer(200, {"choices": [{"message": message, "finish_reason": "tool_calls"}]}))
    result = await Asker(server).ask(output_schema=SCHEMA, llm={"structured": "tool"})
    assert result.output == {"label": "bad", "orders": 2}


@pytest.mark.parametrize(("headers", "problem"), [("anthropic-version: 1\r\n", b"max_tokens"), ("", b"anthropic-version")])
async def test_the_scripted_model_keeps_to_the_anthropic_protocol(server: ModelServer, headers: str, problem: bytes) -> None:
    host, port = server.base_url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    raw = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    writer.write(f"POST /v1/messages HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(raw)}\r\n\r\n".encode() + raw)
    answer = await reader.read()
    assert b" 400 " in answer.splitlines()[0]
    assert problem in answer
    writer.close()
