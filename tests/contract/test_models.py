"""What every kind of provider promises, against a real server behind its wire protocol: what comes back, what a bad answer becomes."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agiwo.clock import SystemClock
from agiwo.errors import StepError
from agiwo.models.calls import ModelResult
from agiwo.models.ladder import Rungs
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import ModelProvider
from agiwo.models.providers import provider_for
from agiwo.models.task import ModelTask, Way, run_model_task
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


@pytest.fixture(params=["openai", "anthropic"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        KIND[running] = request.param
        yield running
        del KIND[running]


#: Which protocol a test speaks with its server.
KIND: dict[ModelServer, str] = {}


class Asker:
    """One profile on one server, asked as a model step asks."""

    def __init__(self, server: ModelServer, **changes: Any) -> None:
        kind = KIND.get(server, "openai")
        url = server.base_url if kind == "openai" else server.base_url.removesuffix("/v1")
        given = {"kind": kind, "base_url": url, "model": "m", "max_tokens": 300, **changes}
        self.profile = ModelProfile.from_mapping("default", given)
        self.provider: ModelProvider = provider_for(self.profile)

    async def ask(
        self, prompt: str = "Hello", *, llm: dict[str, Any] | None = None, rungs: Rungs | None = None, **task: Any
    ) -> ModelResult:
        try:
            way = Way(self.profile, self.provider, self.profile.options(llm or {}))
            return await run_model_task([way], ModelTask(prompt, **task), rungs=rungs)
        finally:
            await self.provider.close()

    async def fails(self, prompt: str = "Hello", **task: Any) -> StepError:
        with pytest.raises(StepError) as caught:
            await self.ask(prompt, **task)
        encode(caught.value.failure().to_json())
        return caught.value


def said(raw: Any) -> str:
    """The text of an answer as it came, of either protocol."""
    if "choices" in raw:
        return str(raw["choices"][0]["message"]["content"])
    return "".join(block["text"] for block in raw["content"])


async def test_the_answer_is_made_from_the_prompt_and_kept_as_it_came(server: ModelServer) -> None:
    result = await Asker(server).ask(f"Summarise: {json.dumps(ROWS)}")
    assert "orders 8" in result.output
    assert "amount 13.49" in result.output
    assert "The best region is North" in result.output
    call = result.calls[0]
    assert said(call.raw) == result.output
    assert (call.finish_reason, call.request_id) in (("stop", "1"), ("end_turn", "1"))
    assert result.usage.input_tokens > 0
    assert result.cost_micro_usd is None


async def test_usage_that_is_not_reported_is_unknown_and_not_free(server: ModelServer) -> None:
    server.script.append(Say("hi", usage=None))
    result = await Asker(server, price={"in": 1, "out": 1}).ask()
    assert result.calls[0].usage is None
    assert result.cost_micro_usd is None


async def test_a_wrong_key_is_permission_denied_and_never_shown() -> None:
    async with ModelServer(api_key="right") as server:
        server.script.append(Say())
        failure = await Asker(server, api_key="s3cr3t-9f").fails()
        assert (failure.type, failure.status) == ("PermissionDenied", 401)
        assert len(server.requests) == 1
    async with ModelServer([error(403, "x", "the key s3cr3t-9f is blocked")]) as server:
        failure = await Asker(server, api_key="s3cr3t-9f").fails()
        assert "s3cr3t-9f" not in encode(failure.failure().to_json())


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
    failure = await Asker(server).fails(output_schema=SCHEMA, repairs=1)
    assert failure.type == "OutputInvalid"
    assert failure.data["reason"] == "schema"
    assert len(server.requests) == 2
    assert [said(call["raw"]) for call in failure.data["calls"]] == [
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
    """REQ-41: cut in a string, cut to something that fits, cut to nothing: truncated, not asked again unchanged."""
    server.script.append(Say(text, finish_reason="length"))
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert (failure.type, failure.message) == ("Truncated", "truncated: raise max_tokens (now 300)")
    assert len(server.requests) == 1
    assert failure.data["calls"][0]["usage"]["input_tokens"] > 0
    assert said(failure.data["calls"][0]["raw"]) == text


async def test_a_refusal_is_refused_and_not_asked_again(server: ModelServer) -> None:
    server.script.append(Say(refusal="I cannot help with that"))
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert failure.type == "Refused"
    assert "refus" in failure.message
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (400, "invalid_request_error", "bad", "ValidationError"),
        (400, "invalid_request_error", "prompt is too long: 4097 tokens > 4096 maximum", "ContextTooLong"),
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
    """REQ-12: seconds, milliseconds and dates are a floor; what makes no sense asks for nothing."""
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
        (Answer(200, {"content": [{"type": "text", "text": GOOD}]}), "Unavailable"),
        (Answer(200, {"error": {"message": "upstream", "code": 429, "type": "rate_limit_error"}}), "RateLimited"),
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
    """REQ-42: no end mark, half a body, an HTML page: a failed call, never an output."""
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
    assert said(failure.data["calls"][0]["raw"]) == "a\N{REPLACEMENT CHARACTER}b"


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


@pytest.mark.parametrize(("mode", "source"), [("json_schema", "text"), ("tool", "tool"), ("prompt", "text")])
async def test_every_mode_gives_the_value_and_is_recorded(server: ModelServer, mode: str, source: str) -> None:
    server.script.append(Say('{"label": "good", "orders": 8}'))
    result = await Asker(server).ask(output_schema=SCHEMA, llm={"structured": mode})
    assert (result.output, result.source) == ({"label": "good", "orders": 8}, source)
    assert (str(result.calls[0].mode), result.model()["mode"]) == (mode, mode)
    assert result.calls[0].blocks == (("output_schema",) if mode == "prompt" else ())


@pytest.mark.parametrize("schema", [{"type": "array", "items": {"type": "integer"}}, {"enum": ["a", "b"]}])
async def test_an_answer_that_is_no_object_comes_through_a_tool_too(server: ModelServer, schema: dict[str, Any]) -> None:
    result = await Asker(server).ask("a", output_schema=schema, llm={"structured": "tool"})
    assert result.output == ([2] if "items" in schema else "a") or isinstance(result.output, list | str)
    assert result.source == "tool"


async def test_a_mode_that_the_endpoint_refuses_gives_way_to_the_next_within_the_attempt_and_is_remembered(server: ModelServer) -> None:
    refusal = error(400, "invalid_request_error", "response_format / output_config: json_schema is not supported by this model")
    server.script.extend([refusal, Say(GOOD), Say(GOOD)])
    rungs = Rungs(SystemClock())
    result = await Asker(server).ask(output_schema=SCHEMA, rungs=rungs)
    assert [(call.mode, call.error is None, str(call.purpose)) for call in result.calls] == [
        ("json_schema", False, "main"),
        ("tool", True, "main"),
    ]
    again = await Asker(server).ask(output_schema=SCHEMA, rungs=rungs)
    assert [call.mode for call in again.calls] == ["tool"]


async def test_no_step_down_past_the_last_rung_nor_from_a_mode_that_the_step_insists_on(server: ModelServer) -> None:
    refusal = error(400, "invalid_request_error", "tools: tool_choice is not supported")
    server.script.append(refusal)
    failure = await Asker(server).fails(output_schema=SCHEMA, llm={"structured": "tool"})
    assert (failure.type, len(server.requests)) == ("ValidationError", 1)


async def test_a_bad_answer_is_no_reason_to_step_down(server: ModelServer) -> None:
    server.script.extend([Say("no json"), Say("none"), Say("none")])
    failure = await Asker(server).fails(output_schema=SCHEMA)
    assert [call["mode"] for call in failure.data["calls"]] == ["json_schema"] * 3
    assert [call["purpose"] for call in failure.data["calls"]] == ["main", "repair", "repair"]


async def test_a_repair_of_a_tool_call_shows_what_was_called(server: ModelServer) -> None:
    server.script.extend([Say('{"label": "ugly", "orders": 8}'), Say(GOOD)])
    result = await Asker(server).ask("Judge", output_schema=SCHEMA, llm={"structured": "tool"})
    assert result.output["label"] == "good"
    turns = server.requests[1].body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert json.loads(turns[1]["content"]) == {"label": "ugly", "orders": 8}


async def test_a_cut_answer_is_asked_for_with_more_room_only_where_the_step_says_so(server: ModelServer) -> None:
    """REQ-41: not retried unchanged; raised within the profile's bound, each call recorded."""
    server.script.extend([Say('{"a', finish_reason="length"), Say("", finish_reason="length"), Say(GOOD)])
    result = await Asker(server).ask(output_schema=SCHEMA, llm={"max_tokens": 100, "on_truncated": "raise_limit"})
    assert [request.body["max_tokens"] for request in server.requests] == [100, 200, 300]
    assert [str(call.purpose) for call in result.calls] == ["main", "raised", "raised"]
    server.script.extend([Say("", finish_reason="length")] * 3)
    failure = await Asker(server).fails(output_schema=SCHEMA, llm={"max_tokens": 100, "on_truncated": "raise_limit"})
    assert failure.message == "truncated: raise max_tokens (now 300)"


async def test_a_value_inside_thinking_is_never_the_answer(server: ModelServer) -> None:
    server.script.extend([Say(f"<think>{GOOD}</think>I do not know"), Say(GOOD.replace("8", "9"))])
    result = await Asker(server).ask(output_schema=SCHEMA)
    assert result.output["orders"] == 9


async def test_what_is_included_stands_before_the_prompt_in_one_block(server: ModelServer) -> None:
    result = await Asker(server).ask("Say it", include={"state": {"total": 3}})
    assert result.calls[0].blocks == ("include",)
    assert server.requests[0].body["messages"][-1]["content"] == '<include>\n{"state":{"total":3}}\n</include>\n\nSay it'


class Two:
    """Two profiles, each on a server of its own, the second as fallback of the first."""

    def __init__(self, first: Asker, second: Asker) -> None:
        self.askers = (first, second)

    async def ask(self, **task: Any) -> ModelResult:
        first, second = self.askers
        ways = [
            Way(first.profile, first.provider, first.profile.options({})),
            Way(second.profile, second.provider, second.profile.fallback_options({})),
        ]
        try:
            return await run_model_task(ways, ModelTask("Hello", **task))
        finally:
            for asker in self.askers:
                await asker.provider.close()


@pytest.mark.parametrize(
    "failure",
    [error(503, "x", "away"), Cut(), html(), error(400, "x", "prompt is too long"), error(429, "x", "later", {"retry-after": "999"})],
)
async def test_another_profile_answers_where_one_cannot(server: ModelServer, failure: Any) -> None:
    async with ModelServer() as other:
        server.script.append(failure)
        result = await Two(Asker(server), Asker(other, model="spare")).ask(deadline=30.0)
        assert [(str(call.purpose), call.asked) for call in result.calls] == [("main", "m"), ("fallback", "spare")]


@pytest.mark.parametrize(
    "answer",
    [Say("no", finish_reason="content_filter"), error(401, "x", "who"), error(429, "x", "soon", {"retry-after": "1"}), Say("no json")],
)
async def test_no_other_profile_is_asked_after_a_refusal_a_misfit_or_a_short_wait(server: ModelServer, answer: Any) -> None:
    async with ModelServer() as other:
        server.script.append(answer)
        with pytest.raises(StepError):
            await Two(Asker(server), Asker(other)).ask(output_schema=SCHEMA, repairs=0, deadline=30.0)
        assert other.requests == []
