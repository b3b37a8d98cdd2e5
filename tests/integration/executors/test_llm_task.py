"""The executor of model steps against a real server behind the wire protocol: what is kept, what is masked, what each failure becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from agiwo.clock import SystemClock
from agiwo.definition.compiled import Kind, Step
from agiwo.engine.usage import usage_rows
from agiwo.executors.llm_task import ModelTasks
from agiwo.machine.commands import Record, StartAttempt
from agiwo.machine.reports import Failed, Succeeded
from agiwo.models.profile import ModelProfile
from agiwo.models.providers import provider_for
from agiwo.ports.executor import Circumstances
from agiwo.schema import Schema
from agiwo.template import SecretName, SecretSlot
from agiwo.testing.model_server import ModelServer, Say, Stall, error
from agiwo.values import encode

WHERE = Circumstances(UUID(int=7), "flow", "1", "default", "ab" * 16)
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture
async def tasks(server: ModelServer) -> AsyncIterator[ModelTasks]:
    profile = ModelProfile.from_mapping("default", {"base_url": server.base_url, "model": "m", "max_tokens": 300})
    made = ModelTasks({"default": profile}, provider_for, SystemClock(), secrets={"TOKEN": "pa55"})
    yield made
    await made.close()


def call(prompt: str, *, secrets: Any = (), **step: Any) -> StartAttempt:
    made = Step("say", 0, Kind.LLM_TASK, **step)
    return StartAttempt("say", made, 1, 1, {"task_prompt": prompt, "system_prompt": "Be brief."}, secrets, 20.0, "key")


async def test_the_answer_comes_with_its_model_and_every_call_as_sent_and_received(server: ModelServer, tasks: ModelTasks) -> None:
    server.script.append(Say("Hello there"))
    outcome = await tasks.perform(call("Say hello"), WHERE)
    assert isinstance(outcome, Succeeded)
    assert outcome.result == "Hello there"
    assert (outcome.model["finish_reason"], outcome.model["calls"]) == ("stop", 1)
    assert outcome.model["usage"]["output_tokens"] >= 0
    (kept,) = outcome.calls
    assert [message["content"] for message in kept["request"]["messages"]] == ["Be brief.", "Say hello"]
    assert kept["raw"]["choices"][0]["message"]["content"] == "Hello there"
    assert server.requests[0].headers["traceparent"].startswith(f"00-{WHERE.trace_id}-")
    encode(outcome.calls)


async def test_an_answer_that_does_not_fit_is_asked_for_again_as_often_as_the_step_says(server: ModelServer, tasks: ModelTasks) -> None:
    server.script.extend([Say('{"n": "many"}'), Say('{"n": 3}')])
    outcome = await tasks.perform(call("Count", output_schema=Schema.compile(SCHEMA), repair_attempts=1), WHERE)
    assert isinstance(outcome, Succeeded)
    assert outcome.result == {"n": 3}
    assert [kept["purpose"] for kept in outcome.calls] == ["main", "repair"]


async def test_a_failure_keeps_its_calls_apart_from_its_details(server: ModelServer, tasks: ModelTasks) -> None:
    server.script.extend([Say('{"n": "many"}')])
    outcome = await tasks.perform(call("Count", output_schema=Schema.compile(SCHEMA), repair_attempts=0), WHERE)
    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "OutputInvalid"
    assert "calls" not in outcome.failure.details
    assert len(outcome.calls) == 1


async def test_a_secret_in_a_prompt_is_sent_and_nowhere_kept(server: ModelServer, tasks: ModelTasks) -> None:
    server.script.append(Say("the word is pa55"))
    slots = [SecretSlot("/task_prompt", ("Use ", SecretName("TOKEN"))).to_json()]
    outcome = await tasks.perform(call("Use ***", secrets=slots), WHERE)
    assert isinstance(outcome, Succeeded)
    assert outcome.result == "the word is ***"
    assert "pa55" in encode(server.requests[0].body)
    assert "pa55" not in encode([outcome.result, outcome.model, outcome.calls])


@pytest.mark.parametrize(
    ("llm", "type", "words"),
    [({"profile": "nope"}, "NotFound", "'nope'"), ({"max_tokens": 9999}, "ValidationError", "max_tokens")],
)
async def test_what_the_profiles_do_not_allow_is_refused_before_anything_is_sent(
    server: ModelServer, tasks: ModelTasks, llm: dict[str, Any], type: str, words: str
) -> None:
    outcome = await tasks.perform(call("Hello", llm=llm), WHERE)
    assert isinstance(outcome, Failed)
    assert (outcome.failure.type, outcome.failure.not_done) == (type, True)
    assert words in outcome.failure.message
    assert server.requests == []


async def test_what_is_included_goes_out_and_every_call_becomes_a_row(server: ModelServer) -> None:
    profile = ModelProfile.from_mapping(
        "default", {"base_url": server.base_url, "model": "m", "max_tokens": 300, "price": {"in": 1, "out": 2, "as_of": "2026-11-01"}}
    )
    made = ModelTasks({"default": profile}, provider_for, SystemClock())
    server.script.extend([Say("many", usage={"prompt_tokens": 10, "completion_tokens": 5}), Say('{"n": 3}', usage=None)])
    asked = call("Count", output_schema=Schema.compile(SCHEMA))
    outcome = await made.perform(replace(asked, arguments={**asked.arguments, "include": {"state": {"n": 2}}}), WHERE)
    await made.close()
    assert isinstance(outcome, Succeeded)
    assert '{"state":{"n":2}}' in server.requests[0].body["messages"][1]["content"]
    main, repair = usage_rows([Record(1, "step.succeeded", 1.0, "say", 1, None, {"calls": outcome.calls})], "flow")
    assert (main.purpose, main.status, main.input_tokens, main.output_tokens, main.cost_micro_usd) == ("main", "OutputInvalid", 10, 5, 20)
    assert (repair.purpose, repair.status, repair.input_tokens, repair.cost_micro_usd) == ("repair", "ok", None, None)
    assert (main.profile, main.kind, main.model_asked, main.price_version) == ("default", "openai", "m", "2026-11-01")
    assert main.at > 0 and main.latency_ms is not None


async def test_a_step_falls_back_on_the_profiles_that_it_names(server: ModelServer) -> None:
    async with ModelServer() as spare:
        profiles = {
            "default": ModelProfile.from_mapping("default", {"base_url": server.base_url, "model": "m", "max_tokens": 300}),
            "claude": ModelProfile.from_mapping(
                "claude", {"kind": "anthropic", "base_url": spare.base_url.removesuffix("/v1"), "model": "c", "max_tokens": 50}
            ),
        }
        made = ModelTasks(profiles, provider_for, SystemClock())
        server.script.append(error(503, "overloaded", "away"))
        spare.script.append(Say("from elsewhere"))
        outcome = await made.perform(call("Say hello", llm={"max_tokens": 200, "seed": 3, "fallback": ["claude"]}), WHERE)
        await made.close()
        assert isinstance(outcome, Succeeded)
        assert (outcome.result, outcome.model["profile"], outcome.model["name"]) == ("from elsewhere", "claude", "c")
        assert spare.requests[0].body["max_tokens"] == 50
        assert [(kept["purpose"], kept["profile"]) for kept in outcome.calls] == [("main", "default"), ("fallback", "claude")]


async def test_a_model_that_takes_too_long_still_leaves_its_call_in_the_ledger(server: ModelServer, tasks: ModelTasks) -> None:
    server.script.append(Stall())
    outcome = await tasks.perform(replace(call("Say hello"), timeout=0.2), WHERE)
    assert isinstance(outcome, Failed)
    assert (outcome.failure.type, len(outcome.calls)) == ("Timeout", 1)


async def test_a_mistake_is_a_failure_that_shows_no_secret() -> None:
    def broken(profile: ModelProfile) -> Any:
        raise RuntimeError("no way with pa55")

    profile = ModelProfile.from_mapping("default", {"base_url": "http://127.0.0.1:1", "model": "m"})
    made = ModelTasks({"default": profile}, broken, SystemClock(), secrets={"TOKEN": "pa55"})
    slots = [SecretSlot("/task_prompt", ("Use ", SecretName("TOKEN"))).to_json()]
    outcome = await made.perform(call("Use ***", secrets=slots), WHERE)
    assert isinstance(outcome, Failed)
    assert outcome.failure.message == "RuntimeError: no way with ***"
