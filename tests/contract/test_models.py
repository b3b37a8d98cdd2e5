"""Model steps against a real server behind the wire protocol: what goes out, what comes back, what every bad answer becomes."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agiwo.errors import StepError
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import ModelProvider
from agiwo.models.providers import provider_for
from agiwo.models.task import ModelResult, ModelTask, run_model_task
from agiwo.testing.model_server import Answer, Cut, Drip, ModelServer, Say, Stall, error, html
from agiwo.values import encode

ROWS = [{"region": "North", "orders": 3, "amount_cents": 1250}, {"region": 'O\'Brien "West"', "orders": 5, "amount_cents": 99}]
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
    """One profile on one server, asked as a model step asks."""

    def __init__(self, server: ModelServer, **changes: Any) -> None:
        self.profile = ModelProfile.from_mapping("default", {"base_url": server.base_url, "model": "m", "max_tokens": 300, **changes})
        self.provider: ModelProvider = provider_for(self.profile)

    async def ask(self, prompt: str = "Hello", *, llm: dict[str, Any] | None = None, **task: Any) -> ModelResult:
        try:
            return await run_model_task(self.profile, self.provider, ModelTask(prompt, self.profile.options(llm or {}), **task))
        finally:
            await self.provider.close()

    async def fails(self, prompt: str = "Hello", **task: Any) -> StepError:
        with pytest.raises(StepError) as caught:
            await self.ask(prompt, **task)
        encode(caught.value.failure().to_json())
        return caught.value


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


async def test_the_answer_is_made_from_the_prompt_and_kept_as_it_came(server: ModelServer) -> None:
    result = await Asker(server).ask(f"Summarise: {json.dumps(ROWS)}")
    assert "orders 8" in result.output
    assert "amount 13.49" in result.output
    assert "The best region is North" in result.output
    call = result.calls[0]
    assert call.raw["choices"][0]["message"]["content"] == result.output
    assert (call.finish_reason, call.request_id) == ("stop", "1")
    assert result.usage.input_tokens > 0
    assert result.cost_micro_usd is None


async def test_cost_and_usage_come_from_what_the_endpoint_reports(server: ModelServer) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 20}}
    server.script.append(Say("hi", usage={"prompt_tokens": 1000, "completion_tokens": 100, **details}))
    result = await Asker(server, price={"in": 2.5, "out": 10, "cache_read": 1.25}).ask()
    assert result.usage.to_json() == {"input_tokens": 1000, "output_tokens": 100, "cached_tokens": 400, "reasoning_tokens": 20}
    assert result.cost_micro_usd == 3000
    assert result.model()["usage"] == result.usage.to_json()


async def test_usage_that_is_not_reported_is_unknown_and_not_free(server: ModelServer) -> None:
    server.script.append(Say("hi", usage=None))
    result = await Asker(server, price={"in": 1, "out": 1}).ask()
    assert result.calls[0].usage is None
    assert result.cost_micro_usd is None


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


async def test_a_wrong_key_is_permission_denied_and_never_shown() -> None:
    async with ModelServer(api_key="right") as server:
        server.script.append(Say())
        failure = await Asker(server, api_key="s3cr3t-9f").fails()
        assert (failure.type, failure.status) == ("PermissionDenied", 401)
        assert len(server.requests) == 1
    async with ModelServer([error(403, "x", "the key s3cr3t-9f is blocked")]) as server:
        failure = await Asker(server, api_key="s3cr3t-9f").fails()
        assert "s3cr3t-9f" not in encode(failure.failure().to_json())


async def test_output_schema_asks_for_that_json_and_gives_the_value(server: ModelServer) -> None:
    server.script.append(Say(GOOD))
    result = await Asker(server).ask(output_schema=SCHEMA)
    assert result.output == {"label": "good", "orders": 8}
    form = server.requests[0].body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["strict"] is True
    assert form["json_schema"]["schema"]["required"] == ["label", "orders", "note"]


async def test_the_scripted_model_fits_the_schema_from_the_prompts_data(server: ModelServer) -> None:
    result = await Asker(server).ask(f"Is it good or bad? I think bad. {json.dumps(ROWS)}", output_schema=SCHEMA)
    assert result.output["label"] == "bad"
    assert result.output["orders"] == 8
    assert len(result.calls) == 1


async def test_a_misfit_is_asked_again_once_with_the_validators_words(server: ModelServer) -> None:
    server.script.extend([Say('{"label": "ugly", "orders": 8}'), Say(GOOD)])
    result = await Asker(server).ask("Judge", output_schema=SCHEMA)
    assert result.output == {"label": "good", "orders": 8}
    assert [call.purpose for call in result.calls] == ["main", "repair"]
    first, again = server.requests[0].body["messages"], server.requests[1].body["messages"]
    assert again[: len(first)] == first
    assert again[1] == {"role": "assistant", "content": '{"label": "ugly", "orders": 8}'}
    assert "at /label: " in again[2]["content"]
    assert again[2]["content"].endswith("Return only the corrected JSON.")
    assert result.usage.output_tokens == sum(call.usage.output_tokens for call in result.calls if call.usage)


async def test_a_second_misfit_fails_and_keeps_both_calls(server: ModelServer) -> None:
    server.script.extend([Say("Let us think step by step."), Say('{"label": "ugly"}')])
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert failure.type == "OutputInvalid"
    assert failure.data["reason"] == "schema"
    assert len(server.requests) == 2
    assert [call["raw"]["choices"][0]["message"]["content"] for call in failure.data["calls"]] == [
        "Let us think step by step.",
        '{"label": "ugly"}',
    ]
    assert [call["problem"]["reason"] for call in failure.data["calls"]] == ["parse", "schema"]
    assert all(call["usage"]["input_tokens"] > 0 for call in failure.data["calls"])


async def test_no_repair_means_one_call(server: ModelServer) -> None:
    server.script.append(Say("no json"))
    failure = await Asker(server).fails(output_schema=SCHEMA, repairs=0)
    assert (failure.type, failure.data["reason"], len(server.requests)) == ("OutputInvalid", "parse", 1)


async def test_a_transport_error_during_the_repair_is_that_error(server: ModelServer) -> None:
    server.script.extend([Say("no json"), error(503, "overloaded", "later", {"retry-after": "7"})])
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert (failure.type, failure.retry_after, len(server.requests)) == ("Unavailable", 7, 2)
    assert [call["purpose"] for call in failure.data["calls"]] == ["main", "repair"]


@pytest.mark.parametrize("text", ['{"label": "good", "or', GOOD, ""])
async def test_a_cut_answer_is_truncated_after_one_call_with_its_usage(server: ModelServer, text: str) -> None:
    server.script.append(Say(text, finish_reason="length"))
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert (failure.type, failure.message) == ("Truncated", "truncated: raise max_tokens (now 300)")
    assert len(server.requests) == 1
    assert failure.data["calls"][0]["usage"]["input_tokens"] > 0
    assert failure.data["calls"][0]["raw"]["choices"][0]["message"]["content"] == text


async def test_a_refusal_is_refused_and_not_asked_again(server: ModelServer) -> None:
    server.script.append(Say(refusal="I cannot help with that"))
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert failure.type == "Refused"
    assert "I cannot help" in failure.message
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (400, "invalid_request_error", "bad", "ValidationError"),
        (400, "context_length_exceeded", "bad", "ContextTooLong"),
        (400, None, "This model's maximum context length is 4096 tokens", "ContextTooLong"),
        (400, "content_filter", "bad", "Refused"),
        (401, "x", "bad", "PermissionDenied"),
        (402, "x", "bad", "PermissionDenied"),
        (403, "x", "bad", "PermissionDenied"),
        (404, "model_not_found", "bad", "NotFound"),
        (408, "x", "bad", "Timeout"),
        (409, "x", "bad", "Conflict"),
        (413, "x", "bad", "PayloadTooLarge"),
        (418, "x", "bad", "ToolError"),
        (422, "x", "bad", "ValidationError"),
        (429, "rate_limit_exceeded", "bad", "RateLimited"),
        (429, "insufficient_quota", "bad", "PermissionDenied"),
        (500, "x", "bad", "Unavailable"),
        (503, "x", "bad", "Unavailable"),
        (529, "x", "bad", "Unavailable"),
        (307, "x", "bad", "ToolError"),
    ],
)
async def test_a_refused_call_becomes_the_trees_failure(server: ModelServer, status: int, code: str, message: str, kind: str) -> None:
    server.script.append(error(status, code, message))
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert (failure.type, failure.status) == (kind, status)
    assert len(server.requests) == 1
    call = failure.data["calls"][0]
    assert call["request"] == server.requests[0].body
    assert call["raw"]["error"]["message"] == message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"date": "Mon, 30 Nov 2026 10:00:00 GMT", "retry-after": "Mon, 30 Nov 2026 10:00:20 GMT"}, 20.0),
        ({"date": "Mon, 30 Nov 2026 10:00:00 GMT", "retry-after": "Mon, 30 Nov 2026 09:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
async def test_the_wait_that_was_asked_for_is_handed_on(server: ModelServer, headers: dict[str, str], seconds: float | None) -> None:
    server.script.append(error(429, "rate_limit_exceeded", "slow down", headers))
    assert (await Asker(server).fails()).retry_after == seconds


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (html(), "Unavailable"),
        (html(502), "Unavailable"),
        (Answer(200, ""), "Unavailable"),
        (Answer(200, "{"), "Unavailable"),
        (Answer(200, [1]), "Unavailable"),
        (Answer(200, {"choices": []}), "Unavailable"),
        (Answer(200, {"choices": [{"finish_reason": "stop"}]}), "Unavailable"),
        (Answer(200, {"error": {"message": "upstream", "code": 429}}), "RateLimited"),
        (Answer(200, {"error": "upstream"}), "Unavailable"),
        (Say(GOOD, finish_reason=None), "Unavailable"),
        (Say(GOOD, finish_reason="error"), "Unavailable"),
        (Say(GOOD, finish_reason="tool_calls"), "OutputInvalid"),
        (Cut(), "NetworkError"),
        (Cut(0), "NetworkError"),
        (Answer(200, "{}", (("content-encoding", "gzip"),)), "PayloadTooLarge"),
    ],
)
async def test_an_answer_without_proof_of_its_end_is_a_failed_attempt(server: ModelServer, answer: Any, kind: str) -> None:
    server.script.append(answer)
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert failure.type == kind
    assert not failure.not_done
    assert len(server.requests) == 1


async def test_an_answer_that_fills_the_memory_is_refused(server: ModelServer) -> None:
    server.script.append(Answer(200, " " * (9 * 1024 * 1024)))
    assert (await Asker(server).fails()).type == "PayloadTooLarge"


async def test_a_long_raw_answer_is_kept_cut(server: ModelServer) -> None:
    server.script.append(Say("x" * 100_000))
    result = await Asker(server).ask()
    assert len(result.output) == 100_000
    assert result.calls[0].raw["bytes"] > 100_000


async def test_silence_ends_at_the_idle_limit(server: ModelServer) -> None:
    server.script.append(Stall())
    failure = await Asker(server, timeout={"read": 0.05}).fails()
    assert (failure.type, failure.not_done) == ("Timeout", False)


async def test_an_answer_that_drips_ends_at_the_whole_calls_limit(server: ModelServer) -> None:
    server.script.append(Drip())
    failure = await Asker(server, timeout={"read": 5, "total": 0.1}).fails()
    assert failure.type == "Timeout"


async def test_a_steps_deadline_is_shared_by_all_its_calls(server: ModelServer) -> None:
    server.script.extend([Say("no json"), Drip()])
    failure = await Asker(server).fails(output_schema=SCHEMA, deadline=0.3)
    assert failure.type == "Timeout"
    assert len(failure.data["calls"]) == 2


async def test_nobody_there_proves_that_nothing_was_done(server: ModelServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        asker = Asker(server, base_url=f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        failure = await asker.fails()
    assert (failure.type, failure.not_done) == ("NetworkError", True)


async def test_a_cancelled_step_stops_its_call(server: ModelServer) -> None:
    server.script.append(Stall())
    asking = asyncio.ensure_future(Asker(server).ask())
    await server.seen(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_an_answer_that_cannot_be_stored_fails_once_and_its_record_can(server: ModelServer) -> None:
    server.script.append(Say('{"label": "good", "orders": 1, "note": "x\\u0000y"}'))
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert (failure.type, failure.data["reason"], len(server.requests)) == ("OutputInvalid", "not_storable", 1)
    server.script.append(Say("a\x00b"))
    failure = await Asker(server).fails()
    assert failure.data["calls"][0]["raw"]["choices"][0]["message"]["content"] == "a\N{REPLACEMENT CHARACTER}b"


async def test_secrets_of_the_prompt_are_in_no_record(server: ModelServer) -> None:
    def mask(text: str) -> str:
        return text.replace("s3cr3t-9f", "***")

    server.script.extend([Say("you said s3cr3t-9f"), error(500, "x", "while reading s3cr3t-9f")])
    result = await Asker(server).ask("Use s3cr3t-9f", mask=mask)
    assert server.requests[0].body["messages"][0]["content"] == "Use s3cr3t-9f"
    assert "s3cr3t-9f" not in encode([call.to_json() for call in result.calls])
    failure = await Asker(server).fails("Use s3cr3t-9f", mask=mask)
    assert "s3cr3t-9f" not in encode(failure.failure().to_json())


async def test_a_schema_that_is_none_is_refused_before_any_call(server: ModelServer) -> None:
    failure = await Asker(server).fails(output_schema={"type": "objekt"})
    assert failure.type == "ValidationError"
    assert server.requests == []


async def test_the_scripted_model_obeys_the_limit(server: ModelServer) -> None:
    failure = await Asker(server).fails(f"Summarise {json.dumps(ROWS)}", llm={"max_tokens": 3})
    assert failure.type == "Truncated"


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
