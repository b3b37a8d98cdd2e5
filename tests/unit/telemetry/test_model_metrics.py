"""Calls of models in the metrics: counted once, when their record is committed."""

from __future__ import annotations

from agiwo.engine.events import Event, Happening
from agiwo.machine.commands import Record
from agiwo.telemetry.metrics import Metrics


def test_committed_calls_are_counted_by_profile_and_outcome() -> None:
    metrics = Metrics()
    usage = {"input_tokens": 100, "output_tokens": 10, "cache_read_tokens": 40}
    good = {"profile": "default", "usage": usage, "cost_micro_usd": 2_500_000}
    bad = {"profile": "default", "error": {"type": "MyOwnError"}}
    record = Record(1, "step.succeeded", 1.0, "ask", 1, None, {"calls": [good, bad]})
    metrics.observe(Event(Happening.COMMITTED, 1.0, data={"records": [record], "kind": "step", "status": "RUNNING"}))
    value = metrics.registry.get_sample_value
    assert value("agiwo_model_calls_total", {"profile": "default", "outcome": "ok"}) == 1
    assert value("agiwo_model_calls_total", {"profile": "default", "outcome": "ToolError"}) == 1
    assert value("agiwo_model_tokens_total", {"profile": "default", "kind": "input"}) == 100
    assert value("agiwo_model_cost_usd_total", {"profile": "default"}) == 2.5
