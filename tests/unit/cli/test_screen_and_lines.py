"""What commands print: safe for a terminal, in one line, and true to the API's words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiwo.cli.screen import problem_lines, safe, value_text
from agiwo.cli.shown import instance_lines, record_line


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text: str) -> None:
    shown = safe(text)
    assert not any(ord(c) < 32 and c not in "\t\n" or c in "\x7f\u202e\u2066" or 0x80 <= ord(c) < 0xA0 for c in shown)
    shown.encode()


def test_escape_sequences_are_shown_as_their_numbers() -> None:
    assert safe("a\x1b[31mred\u202e") == "a\\u001b[31mred\\u202e"


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
    st.integers(1, 50),
)
def test_a_value_is_one_line_of_bounded_length(value: Any, limit: int) -> None:
    text = value_text(value, limit)
    assert len(text) <= limit
    assert len(text.splitlines()) <= 1


def test_what_a_key_may_not_see_is_told_by_its_size() -> None:
    assert value_text({"redacted": True, "size": 12, "sha256": "ab"}) == "(hidden: 12 bytes; the key has no role payload_viewer)"
    assert value_text({"redacted": True}) == '{"redacted": true}'


def test_problems_have_a_place_that_editors_jump_to() -> None:
    problems = [
        {"message": "no such tool", "line": 3, "column": 7, "pointer": "/steps/0/tool"},
        {"message": "is required", "pointer": "/input/name", "severity": "warning"},
        {"message": "too large"},
    ]
    assert problem_lines(problems, "a.yaml") == [
        "a.yaml:3:7: error: no such tool",
        "a.yaml: /input/name: warning: is required",
        "a.yaml: error: too large",
    ]
    assert problem_lines(problems[2:]) == ["error: too large"]


def test_records_are_told_in_words() -> None:
    failed = {"seq": 4, "type": "step.failed", "at": 0.5, "path": "a~2", "data": {"error": {"type": "Timeout", "message": "too\nslow"}}}
    assert record_line(failed).endswith("a~2  ✗ failed: Timeout: too slow")
    decided = {"seq": 5, "type": "step.approval_decided", "at": "2026-11-30T10:00:00.000000Z", "path": "a", "by": "user:x@y"}
    assert record_line({**decided, "data": {"approval": {"status": "rejected"}}}).endswith("a  ! was decided: rejected by user:x@y")
    assert record_line({"seq": 1, "type": "something.new", "at": 1}).endswith("something.new")


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED", "A_NEW_ONE"])
def test_an_instance_shows_its_steps_what_it_waits_for_and_its_end(status: str) -> None:
    view = {
        "workflow_id": "w", "version": "1", "instance_id": "i", "status": status,
        "steps": {"s": {"id": "s", "status": status, "attempts": 2, "iteration": 1, "duration": 1.5, "error": None, "output": [1],
                        "marks": ["degraded"]}},
        "waiting_for": [{"kind": "approval", "step": "s", "approval_id": "A"}, {"kind": "timer", "step": "t", "until": "soon"}],
        "error": {"type": "Timeout", "message": "late"}, "output": {"n": 1},
    }  # fmt: skip
    lines = instance_lines(view)
    assert lines[0] == f"w 1  i  {status}"
    assert status in lines[1] and "2 attempts" in lines[1] and "degraded" in lines[1] and "1.50 s" in lines[1]
    assert lines[2:] == [
        "waits for a decision on s: agiwo approve A",
        "waits at t (timer) until soon",
        "error: Timeout: late",
        'output: {"n": 1}',
    ]
