"""The trace of an instance as a table: what ran when and for how long, and what the calls of models took and cost.

What is shown the service says; here it becomes text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from agiwo.cli.client import Client
from agiwo.cli.online import id_text
from agiwo.cli.screen import give, say
from agiwo.cli.shown import failure_text, mark, span_text

_HEAD = ("at", "took", "tries")


async def trace(server: str, key: str | None, instance: str, as_json: bool) -> None:
    """Show one trace with its calls of models; with JSON they stand under `usage`, their sums under `totals`."""
    path = f"/v1/instances/{id_text(instance, 'instance')}"
    async with Client(server, key) as client:
        found = await client.get(f"{path}/trace")
        sums = (await client.get(f"{path}/usage", limit=1))["totals"]
        calls = [call async for call in client.pages(f"{path}/usage")] if sums["calls"] else []
    if as_json:
        give({**found, "usage": calls, "totals": sums})
        return
    for line in trace_lines(found, calls, sums):
        say(line)


def trace_lines(trace: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], sums: Mapping[str, Any]) -> Iterator[str]:
    """The table: an instance, its runs in the order in which they began, under each its calls of models."""
    took = f" in {span_text(trace['duration'])}" if trace.get("duration") is not None else ""
    yield f"{trace['workflow_id']} {trace['version']}  {trace['instance_id']}  {trace['status']}{took}  trace {trace['trace_id']}"
    began = _seconds(trace["started_at"])
    steps = trace["steps"]
    rows = [_row(step, began) for step in steps]
    widths = [max([len(_HEAD[i]), *(len(row[i]) for row in rows)]) for i in range(3)]
    yield "  " + "  ".join(f"{_HEAD[i]:>{widths[i]}}" for i in range(3)) + "    step"
    for step, row in zip(steps, rows, strict=True):
        yield "  " + "  ".join(f"{row[i]:>{widths[i]}}" for i in range(3)) + f"  {mark(step['status'])} {row[3]}"
        inner = " " * (2 + sum(widths) + 4 + 4)
        if step.get("error"):
            yield f"{inner}{failure_text(step['error'])}"
        yield from (f"{inner}{_call_text(call)}" for call in calls if call["path"] == step["path"])
    if sums["calls"]:
        yield f"models: {_sums_text(sums)}"


def _row(step: Mapping[str, Any], began: float) -> tuple[str, str, str, str]:
    started = step.get("started_at")
    at = "" if started is None else f"+{span_text(max(0.0, _seconds(started) - began))}"
    took = "" if step.get("duration") is None else span_text(step["duration"])
    tries = str(step["attempts"]) if step.get("attempts") else ""
    what = step.get("tool") or step.get("model") or step["type"]
    why = f" ({step['reason']})" if isinstance(step.get("reason"), str) else ""
    return at, took, tries, f"{step['path']}  {what}  {step['status']}{why}"


def _call_text(call: Mapping[str, Any]) -> str:
    tokens = f"{_count(call['input_tokens'])} tokens in, {_count(call['output_tokens'])} out"
    took = f", {span_text(call['latency_ms'] / 1000)}" if call["latency_ms"] is not None else ""
    failed = "" if call["status"] == "ok" else f", {call['status']}"
    purpose = "" if call["purpose"] == "main" else f" ({call['purpose']})"
    attempt = f"attempt {call['attempt']}: " if call["attempt"] > 1 else ""
    return f"{attempt}{call['model_answered'] or call['model_asked']}{purpose}: {tokens}{took}{_cost(call['cost_micro_usd'])}{failed}"


def _sums_text(sums: Mapping[str, Any]) -> str:
    calls = f"{sums['calls']} call{'' if sums['calls'] == 1 else 's'}"
    failed = f", {sums['failed']} failed" if sums["failed"] else ""
    unpriced = f", {sums['unpriced']} without a price" if sums["unpriced"] else ""
    return f"{calls}{failed}, {sums['input_tokens']} tokens in, {sums['output_tokens']} out{_cost(sums['cost_micro_usd'])}{unpriced}"


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _cost(micro_usd: int | None) -> str:
    return "" if micro_usd is None else f", ${micro_usd / 1_000_000:.6f}"


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
