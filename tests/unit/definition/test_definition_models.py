"""What a definition may ask of model profiles, and what it shows a model: said at publishing, at its place."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.definition import check, load
from agiwo.definition.checking import Checked
from agiwo.models.contract import ProfileContract
from agiwo.models.profile import ModelProfile

HEAD = "workflow:\n  id: w\n  version: '1'\n  context: {who: ann, odd-key: 1}\n  state: {total: {reducer: add}}\n  steps:\n"


def profiles(**claude: Any) -> dict[str, ProfileContract]:
    given = {"base_url": "http://127.0.0.1:9", "model": "m", "max_tokens": 500}
    return {
        "default": ProfileContract(ModelProfile.from_mapping("default", given)),
        "claude": ProfileContract(ModelProfile.from_mapping("claude", {**given, "kind": "anthropic", **claude})),
    }


def judged(step: str, **claude: Any) -> Checked:
    text = HEAD + "    - {id: first, type: set, values: {total: 1}}\n    - {id: ask, type: llm_task, task_prompt: x, " + step + "}\n"
    return check(load(text.encode()), {}, models=profiles(**claude))


@pytest.mark.parametrize(
    ("step", "place", "words"),
    [
        ("llm: {max_tokens: 900}", "/llm/max_tokens", "900"),
        ("llm: {model: dearer}", "/llm/model", "dearer"),
        ("llm: {profile: claude, structured: json_object}", "/llm/structured", "json_object"),
        ("llm: {profile: claude, seed: 1}", "/llm/seed", "seed"),
        ("llm: {fallback: [claude, cloude]}", "/llm/fallback/1", "cloude"),
    ],
)
def test_what_a_profile_does_not_allow_is_refused_at_its_place(step: str, place: str, words: str) -> None:
    (error,) = judged(step).errors
    assert error.pointer.endswith(place)
    assert words in error.message


def test_a_schema_that_a_profile_cannot_enforce_is_told_with_the_mode_that_is_used() -> None:
    answer = judged("llm: claude, output_schema: {type: object}")
    assert answer.errors == ()
    assert ["as `tool`" in warning.message for warning in answer.warnings] == [True]
    (error,) = judged("llm: claude, output_schema: {type: object}", structured=["json_schema"]).errors
    assert "no way to ask" in error.message
    assert judged("llm: default, output_schema: {type: object}").problems == ()


def test_what_is_included_is_read_and_stands_in_the_arguments() -> None:
    answer = judged("include: {context: [who, odd-key], state: [total], steps: [first]}")
    assert answer.errors == ()
    assert answer.workflow is not None
    arguments = answer.workflow.body["ask"].arguments
    assert arguments is not None
    assert {(read.root, read.path) for read in arguments.reads} == {
        ("context", ("who",)),
        ("context", ("odd-key",)),
        ("state", ("total",)),
        ("steps", ("first", "output")),
    }


@pytest.mark.parametrize(
    ("step", "place", "code"),
    [
        ("include: {steps: [frist]}", "/include/steps/0", "unknown_step"),
        ("include: {steps: [ask]}", "/include/steps/0", "open_read"),
        ("include: {state: [total, totl]}", "/include/state/1", "unknown_state_key"),
        ("include: {context: [whom]}", "/include/context/0", "unknown_context_key"),
        ("include: {secrets: [KEY]}", "/include/secrets", "unknown_key"),
        ("include: {state: []}", "/include/state", "empty_list"),
        ("include: [state]", "/include", "wrong_type"),
    ],
)
def test_what_cannot_be_shown_is_refused_at_its_place(step: str, place: str, code: str) -> None:
    (error,) = judged(step).errors
    assert (error.code, error.pointer.endswith(place)) == (code, True)
