"""What a call does to the world where that depends on its parameters, as a definition is judged and as its step will run."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.definition import check, load_mapping
from agiwo.definition.contract import Effect
from agiwo.tools.builtin import standard_registry

CONTRACTS = standard_registry().contracts()


def judged(tool: str, parameters: Any, **more: Any) -> Any:
    step = {"id": "call", "type": "tool_call", "tool": tool, "parameters": parameters, **more}
    document = {"id": "w", "version": "1.0", "input_schema": {"type": "object"}, "steps": [step]}
    return check(load_mapping(document), CONTRACTS)


HTTP = [
    ({}, Effect.READ), ({"method": "GET"}, Effect.READ), ({"method": "HEAD"}, Effect.READ), ({"method": "OPTIONS"}, Effect.READ),
    ({"method": "PUT"}, Effect.IDEMPOTENT_WRITE), ({"method": "DELETE"}, Effect.IDEMPOTENT_WRITE), ({"method": "POST"}, Effect.WRITE),
    ({"method": "PATCH"}, Effect.WRITE), ({"method": "{{ input.m }}"}, Effect.WRITE), ({"method": "{{ 'GET' }}"}, Effect.WRITE),
    ({"method": "POST", "effect": "read"}, Effect.READ), ({"method": "POST", "effect": "idempotent_write"}, Effect.IDEMPOTENT_WRITE),
    ({"method": "GET", "effect": "write"}, Effect.WRITE), ({"effect": "{{ input.e }}"}, Effect.WRITE),
    ({"method": "{{ input.m }}", "effect": "read"}, Effect.READ),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "effect"), HTTP)
def test_effect_of_an_http_call_is_what_it_says_or_follows_from_its_method(parameters: dict[str, Any], effect: Effect) -> None:
    given = {"url": "https://example.com/", **parameters}
    (step,) = judged("http.request", given).workflow.body.steps
    assert step.effect is effect
    assert step.retry.max_attempts == (3 if effect.safe_to_repeat else 1)
    found = [p.code for p in judged("http.request", given, retry_policy={"max_attempts": 2}).errors]
    assert found == ([] if effect.safe_to_repeat else ["unsafe_retry"])


def test_parameters_made_by_one_expression_tell_nothing() -> None:
    (step,) = judged("http.request", "{{ input.all }}").workflow.body.steps
    assert step.effect is Effect.WRITE


@pytest.mark.parametrize(
    "given", [{"method": "get"}, {"method": "TRACE"}, {"effect": "pure"}, {"effect": "irreversible"}, {"effect": ["read"]}]
)
def test_method_or_effect_that_is_none_is_refused_at_publishing(given: dict[str, Any]) -> None:
    assert [p.code for p in judged("http.request", {"url": "https://example.com/", **given}).errors] == ["wrong_parameter"]


@pytest.mark.parametrize(
    ("tool", "parameters"), [("database.execute", {"statement": "DELETE FROM t"}), ("file.write", {"path": "a", "content": "b"})]
)
def test_write_is_one_unless_it_promises_that_it_may_be_repeated(tool: str, parameters: dict[str, Any]) -> None:
    for said, effect in (
        ({}, Effect.WRITE),
        ({"effect": "idempotent_write"}, Effect.IDEMPOTENT_WRITE),
        ({"effect": "{{ input.e }}"}, Effect.WRITE),
    ):
        (step,) = judged(tool, {**parameters, **said}).workflow.body.steps
        assert step.effect is effect
