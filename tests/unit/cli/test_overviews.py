"""Lists, traces and findings as lines: nothing of what the API says is lost or made up."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.cli.lists import _moment
from agiwo.cli.screen import CommandEnds
from agiwo.cli.shown import span_text
from agiwo.cli.traces import trace_lines

STEP: dict[str, Any] = {"status": "SUCCESS", "attempts": 1, "started_at": "2026-11-30T08:00:01Z", "duration": 0.25, "error": None}
TRACE: dict[str, Any] = {
    "workflow_id": "triage", "version": "1.0", "instance_id": "i-1", "status": "FAILED", "trace_id": "ab" * 16, "duration": 3.0,
    "started_at": "2026-11-30T08:00:00Z",
    "steps": [
        {**STEP, "path": "fetch", "type": "tool_call", "tool": "http.request"},
        {**STEP, "path": "judge", "type": "llm_task", "model": "m-1", "attempts": 2, "status": "FAILED", "duration": 1.5,
         "error": {"type": "Timeout", "message": "no answer"}},
        {**STEP, "path": "send", "type": "tool_call", "status": "SKIPPED", "attempts": 0, "started_at": None, "duration": None,
         "reason": "not_reached"},
    ],
}  # fmt: skip
CALL: dict[str, Any] = {
    "path": "judge", "attempt": 1, "number": 1, "model_asked": "m-1", "model_answered": None, "input_tokens": 120, "output_tokens": None,
    "cost_micro_usd": 1500, "status": "Timeout", "latency_ms": 900, "purpose": "task",
}  # fmt: skip
SUMS = {"calls": 1, "failed": 1, "input_tokens": 120, "output_tokens": 0, "cost_micro_usd": 1500, "unpriced": 0}


def test_a_trace_shows_when_how_long_how_often_and_why() -> None:
    lines = list(trace_lines(TRACE, [CALL], SUMS))
    assert lines[0] == f"triage 1.0  i-1  FAILED in 3.00 s  trace {'ab' * 16}"
    assert [line.split() for line in lines[1:3]] == [
        ["at", "took", "tries", "step"],
        ["+1.00", "s", "250", "ms", "1", "✓", "fetch", "http.request", "SUCCESS"],
    ]
    assert lines[4].strip() == "Timeout: no answer"
    assert lines[5].strip() == "m-1: 120 tokens in, ? out, 900 ms, $0.001500, Timeout"
    assert lines[6].split() == ["-", "send", "tool_call", "SKIPPED", "(not_reached)"]
    assert lines[-1] == "models: 1 call, 1 failed, 120 tokens in, 0 out, $0.001500"


def test_a_trace_without_models_says_nothing_of_them() -> None:
    assert not any("models" in line for line in trace_lines(TRACE, [], {**SUMS, "calls": 0}))


@pytest.mark.parametrize(("seconds", "text"), [(0.0123, "12 ms"), (1.5, "1.50 s"), (150, "2 min 30 s"), (7200 + 61, "2 h 1 min")])
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_a_time_of_a_filter_is_a_span_or_a_time_with_a_zone() -> None:
    assert _moment("2026-11-30T08:00:00Z", "--since") == "2026-11-30T08:00:00Z"
    assert _moment("2h", "--since").endswith("Z")
    for wrong in ("yesterday", "2026-11-30T08:00:00", "2026-11-30", ""):
        with pytest.raises(CommandEnds, match="--since") as refused:
            _moment(wrong, "--since")
        assert refused.value.status == 2
