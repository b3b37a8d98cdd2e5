"""Log lines: one JSON object each, with their trace, and without secrets; and the numbers beside them."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import generate_latest

from agiwo.engine.events import Event, Happening, to_all
from agiwo.errors import Failure
from agiwo.machine.commands import Record
from agiwo.machine.reports import Failed, Stopped, Succeeded
from agiwo.ports.executor import Circumstances
from agiwo.telemetry.log import LEVELS, Log
from agiwo.telemetry.metrics import Metrics
from agiwo.values import decode

WHERE = Circumstances(UUID(int=7), "flow", "1.10", "default", "ab" * 16)
AT = 1_800_000_000.25

EVENTS = [
    Event(Happening.COMMITTED, AT, WHERE, data={"records": [Record(1, "step.started", AT, "a")], "kind": "step", "status": "RUNNING"}),
    Event(Happening.ATTEMPT_STARTED, AT, WHERE, "a", 1, {"step": "a", "kind": "tool_call"}),
    Event(Happening.ATTEMPT_RETURNED, AT, WHERE, "a", 1, {"step": "a", "kind": "tool_call", "outcome": Succeeded("big"), "seconds": 0.5}),
    Event(Happening.ATTEMPT_RETURNED, AT, WHERE, "a", 1, {"kind": "tool_call", "outcome": Stopped(), "seconds": 0.5}),
    Event(Happening.ATTEMPT_FENCED, AT, WHERE, "a", 1, {"step": "a", "reason": "timeout"}),
    Event(Happening.STRAGGLER_RETURNED, AT, WHERE, "a", 1, {"outcome": KeyError("k")}),
    Event(Happening.ENDED, AT, WHERE, data={"status": "SUCCESS", "seconds": 3.0, "error": None}),
    Event(Happening.ENDED, AT, WHERE, data={"status": "FAILED", "seconds": 3.0, "error": {"type": "Timeout", "message": "late"}}),
    Event(Happening.LET_GO, AT, WHERE, data={"reason": "parked"}),
    Event(Happening.SET_ASIDE, AT, WHERE, data={"reason": "r", "details": "d"}),
    Event(Happening.ITEM_REFUSED, AT, WHERE, data={"kind": "k", "message": "m"}),
    Event(Happening.REFUSED, AT, WHERE, data={"message": "m"}),
    Event(Happening.JOINED, AT, data={"node": "a"}),
    Event(Happening.DECLARED_DEAD, AT, data={"held": 3}),
    Event(Happening.CLAIMED, AT, data={"count": 2}),
    Event(Happening.ORPHANS_RELEASED, AT, data={"count": 2}),
    Event(Happening.BATCH_WRITTEN, AT, data={"writes": 12, "seconds": 0.001}),
    Event(Happening.STORE_LOST, AT, data={"place": "writer", "message": "m"}),
    Event(Happening.STORE_BACK, AT, data={"place": "writer"}),
    Event(Happening.LOOP_FAILED, AT, data={"loop": "claims", "traceback": "t"}),
    Event(Happening.LEFT, AT, data={"node": "a"}),
    Event(Happening.DELIVERED, AT, data={"id": "i", "instance": UUID(int=7), "kind": "notice", "target": "mail", "tries": 1}),
    Event(Happening.NOT_DELIVERED, AT, data={"kind": "notice", "target": "mail", "tries": 1, "message": "m", "gave_up": False}),
]


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [decode(line) for line in stream.getvalue().splitlines()]


def test_every_event_becomes_one_line_and_some_number() -> None:
    stream = io.StringIO()
    log, metrics = Log(stream, "DEBUG"), Metrics()
    observe = to_all(log.observe, metrics.observe)
    for event in EVENTS:
        observe(event)
    assert {event.name for event in EVENTS} == set(Happening) == set(LEVELS)
    written = lines(stream)
    assert [line["event"] for line in written] == [event.name.value for event in EVENTS]
    for event, line in zip(EVENTS, written, strict=True):
        assert line["at"] == "2027-01-15T08:00:00.250000Z"
        assert line["level"] in ("debug", "info", "warning", "error", "critical")
        if event.where is not None:
            assert (line["trace_id"], line["instance"], line["workflow"]) == (WHERE.trace_id, str(WHERE.instance_id), "flow")
        assert (line.get("path"), line.get("attempt")) == (event.path, event.attempt)
    text = generate_latest(metrics.registry).decode()
    assert 'agiwo_instances_ended_total{status="SUCCESS",workflow="flow"} 1.0' in text
    assert 'agiwo_attempts_total{kind="tool_call",outcome="stopped",tool=""} 1.0' in text
    assert 'agiwo_records_total{type="step.started"} 1.0' in text


def test_a_line_says_how_a_call_ended_and_never_what_it_gave() -> None:
    stream = io.StringIO()
    log = Log(stream, "debug")
    log.observe(Event(Happening.ATTEMPT_RETURNED, AT, WHERE, "a", 2, {"outcome": Succeeded({"card": "4111"}), "seconds": 0.1}))
    log.observe(Event(Happening.ATTEMPT_RETURNED, AT, WHERE, "a", 3, {"outcome": Failed(Failure("Timeout", "late")), "seconds": 0.1}))
    assert "4111" not in stream.getvalue()
    assert [line["outcome"] for line in lines(stream)] == ["succeeded", "failed"]
    assert lines(stream)[1]["error"] == "Timeout"


def test_what_an_operator_named_as_secret_appears_nowhere() -> None:
    stream = io.StringIO()
    log = Log(stream, secrets=["pa55"])
    log.tool(WHERE, "a", 1, "used pa55", {"event": "x", "url": "http://u:pa55@h/", "message": "inner"})
    log.line("warning", "started with pa55", AT, event="pa55", key="pa55")
    assert "pa55" not in stream.getvalue()
    first, second = lines(stream)
    assert (first["event"], first["level"], first["fields"]["url"]) == ("tool", "info", "http://u:***@h/")
    assert (second["event"], second["level"], second["key"]) == ("started with ***", "warning", "***")


def test_a_value_that_is_no_json_does_not_lose_the_line() -> None:
    stream = io.StringIO()
    Log(stream).line("info", "odd", AT, value={1, 2}, nan=float("nan"))
    (line,) = lines(stream)
    assert line["event"] == "odd"


@pytest.mark.parametrize(("level", "count"), [("DEBUG", len(EVENTS)), ("ERROR", 5), ("CRITICAL", 1)])
def test_a_level_hides_what_is_below_it(level: str, count: int) -> None:
    stream = io.StringIO()
    log = Log(stream, level)
    for event in EVENTS:
        log.observe(event)
    assert len(lines(stream)) == count


def test_a_number_can_be_read_when_it_is_asked_for() -> None:
    metrics = Metrics()
    metrics.gauge("agiwo_instances_held", "Instances in memory.", lambda: 7)
    assert "agiwo_instances_held 7.0" in generate_latest(metrics.registry).decode()


def test_errors_that_tools_name_make_no_series_of_their_own() -> None:
    metrics = Metrics()
    for type in ("Timeout", "E-4711", "E-4712"):
        outcome = Failed(Failure(type, "m"))
        metrics.observe(Event(Happening.ATTEMPT_RETURNED, AT, WHERE, "a", 1, {"kind": "tool_call", "outcome": outcome, "seconds": 0.5}))
    text = generate_latest(metrics.registry).decode()
    assert 'agiwo_attempts_total{kind="tool_call",outcome="Timeout",tool=""} 1.0' in text
    assert 'agiwo_attempts_total{kind="tool_call",outcome="ToolError",tool=""} 2.0' in text
    assert "E-47" not in text
