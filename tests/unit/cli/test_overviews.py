"""Lists, traces and findings as lines: nothing of what the API says is lost or made up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agiwo.cli.client import Client
from agiwo.cli.doctor import LOOKS, Finding, _parts
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
    "cost_micro_usd": 1500, "status": "Timeout", "latency_ms": 900, "purpose": "main",
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


def test_later_attempts_and_other_purposes_of_calls_are_named() -> None:
    lines = list(trace_lines(TRACE, [{**CALL, "attempt": 2, "purpose": "repair", "status": "ok", "model_answered": "m-2"}], SUMS))
    assert lines[5].strip() == "attempt 2: m-2 (repair): 120 tokens in, ? out, 900 ms, $0.001500"


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


async def _found(look: Callable[[Client], Awaitable[Finding]], answers: dict[str, tuple[int, Any]]) -> Finding:
    """What a look of the doctor makes of the answers of a server, by path."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = answers[self.path.partition("?")[0]]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with Client(f"http://127.0.0.1:{server.server_port}") as client:
            found = await look(client)
        await asyncio.to_thread(server.shutdown)
    return found


NODE = {
    "node_id": "1", "name": "a:8700", "state": "alive", "started_at": "2026-11-30T08:00:00Z", "lease_until": "2026-11-30T08:00:10Z",
    "lease_left_seconds": 7.5, "instances": 3, "deliveries": 0,
}  # fmt: skip
QUEUES = {"ready": 2, "oldest_ready_seconds": 0.5, "timed": 1, "waiting": 4, "approvals": 1, "counted_up_to": 10_000}
BROKEN = {"name": "x", "holds": False, "broken_by": ["i-1"], "meaning": "m"}
DEAD = {"target": "mail", "last_error": "refused"}


@pytest.mark.parametrize(
    ("name", "path", "answer", "state", "said"),
    [
        ("nodes", "/v1/admin/nodes", {"items": [NODE]}, "ok", "1 alive"),
        ("nodes", "/v1/admin/nodes", {"items": [NODE, {**NODE, "state": "dead", "instances": 0}]}, "ok", "1 alive"),
        ("nodes", "/v1/admin/nodes", {"items": [NODE, {**NODE, "state": "dead"}]}, "wrong", "nodes that are gone hold instances"),
        ("nodes", "/v1/admin/nodes", {"items": []}, "wrong", "0 alive"),
        ("queues", "/v1/admin/queues", QUEUES, "ok", "2 ready to run, the oldest for 500 ms"),
        ("queues", "/v1/admin/queues", {**QUEUES, "oldest_ready_seconds": 90}, "wrong", "the oldest for 90.00 s"),
        ("deliveries", "/v1/admin/outbox", {"items": [DEAD, DEAD], "next_cursor": None}, "wrong", "2 dead letters"),
        ("promises", "/v1/admin/invariants", {"hold": False, "checks": [BROKEN]},
         "wrong", "1 do not hold"),
    ],
)  # fmt: skip
async def test_the_doctor_tells_well_from_wrong(name: str, path: str, answer: Any, state: str, said: str) -> None:
    found = await _found(LOOKS[name], {path: (200, answer)})
    assert (found.state, said in found.summary) == (state, True), found


async def test_a_part_that_is_away_is_named() -> None:
    found = await _found(_parts, {"/readyz": (503, {"status": "unavailable", "parts": {"database": False, "engine": True}})})
    assert (found.state, found.summary) == ("wrong", "away: database")
