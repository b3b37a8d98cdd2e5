"""Instances and records as lines for a terminal.

Pure: it takes what the API answered and gives text, with a mark beside every colourless word.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agiwo.cli.screen import value_text

_MARKS = {
    "SUCCESS": "✓", "FAILED": "✗", "SKIPPED": "-", "CANCELLED": "■", "RUNNING": "▶", "WAITING_FOR_APPROVAL": "?", "UNKNOWN": "!",
    "RETRYING": "↻", "WAITING": "…", "QUEUED": "…", "PENDING": " ",
}  # fmt: skip

_WORDS = {
    "instance.started": "started",
    "instance.ending": "is about to end",
    "instance.handling": "runs its error handler",
    "instance.finally": "runs its last steps",
    "instance.cancel_asked": "was told to stop",
    "instance.ended": "ended",
    "step.started": "▶ runs",
    "step.waiting": "… waits",
    "step.approval_asked": "? waits for a person",
    "step.approval_decided": "! was decided",
    "step.retrying": "↻ will be tried again",
    "step.queued": "… waits",
    "step.signal_taken": "✉ took a signal",
    "signal.received": "✉ got a signal",
    "instance.interrupted": "stops",
    "instance.resumed": "goes on",
    "step.fallback": "↷ takes its fallback",
    "step.unknown": "! may or may not have been done",
    "step.probing": "! asks whether it was done",
    "step.succeeded": "✓ succeeded",
    "step.failed": "✗ failed",
    "step.skipped": "- was skipped",
    "step.cancelled": "■ was cancelled",
}
_QUEUED = {"interrupt": "as the trigger asked", "circuit_open": "until its circuit lets a call through"}
#: Records that say what went wrong.
_WITH_ERROR = ("step.failed", "step.retrying", "step.fallback", "step.unknown")


def mark(status: str) -> str:
    """The sign beside a status."""
    return _MARKS.get(status, "?")


def span_text(seconds: float) -> str:
    """A span of time as short as it says enough."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def moment_text(at: str) -> str:
    """A time of the API in the zone of this machine."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def instance_lines(view: Mapping[str, Any], *, steps: bool = True) -> list[str]:
    """An instance as people read it: status, steps, what it waits for, output or error."""
    out = [f"{view['workflow_id']} {view['version']}  {view['instance_id']}  {view['status']}"]
    if steps:
        width = max((len(step["id"]) for step in view["steps"].values()), default=0)
        out += [_step_line(step, width) for step in view["steps"].values()]
    for wait in view.get("waiting_for", ()):
        if wait["kind"] == "approval":
            out.append(f"waits for a decision on {wait['step']}: agiwo approve {wait['approval_id']}")
        elif wait["kind"] == "signal":
            out.append(f"waits at {wait['path']} for a signal: agiwo signal {view['instance_id']} {' | '.join(wait['events'])}")
        elif wait["kind"] == "interrupt":
            out.append(f"stopped {wait['stopped']} {wait['path']}: agiwo resume {view['instance_id']}")
        elif wait["kind"] == "set_aside":
            out.append(f"set aside: {wait['reason']}")
        else:
            out.append(f"waits at {wait['step']} ({wait['kind']})" + (f" until {wait['until']}" if wait.get("until") else ""))
    if view.get("error"):
        out.append(f"error: {failure_text(view['error'])}")
    if view.get("output") is not None:
        out.append(f"output: {value_text(view['output'], 2000)}")
    return out


def _step_line(step: Mapping[str, Any], width: int) -> str:
    line = f"  {mark(step['status'])} {step['id']:<{width}}  {step['status']}"
    if step.get("attempts", 0) > 1:
        line += f", {step['attempts']} attempts"
    if step.get("iteration", 0) > 1:
        line += f", run {step['iteration']}"
    if step.get("duration") is not None:
        line += f", {step['duration']:.2f} s"
    if marks := step.get("marks"):
        line += f", {', '.join(marks)}"
    if step.get("error"):
        line += f": {failure_text(step['error'])}"
    elif step["status"] == "SUCCESS":
        line += f": {value_text(step.get('output'), 60)}"
    return line


def ended_line(workflow: str, version: str, instance: str, data: Mapping[str, Any]) -> str:
    """The end of an instance in one line."""
    took = f" in {span_text(data['seconds'])}" if data.get("seconds") is not None else ""
    why = f": {failure_text(data['error'])}" if isinstance(data.get("error"), Mapping) else ""
    return f"{mark(str(data['status']))} {workflow} {version}  {instance}  {data['status']}{took}{why}"


def failure_text(failure: Mapping[str, Any]) -> str:
    """A failure in one line."""
    return f"{failure.get('type', 'error')}: {value_text(failure.get('message', ''), 300)}"


def record_line(record: Mapping[str, Any]) -> str:
    """A record of the history in one line: when, which step, what."""
    kind, path, data = record["type"], record.get("path"), record.get("data") or {}
    words = _WORDS.get(kind, kind)
    detail = _detail(kind, record, data)
    who = f"{path}  " if path else ""
    return f"{_clock(record['at'])}  {who}{words}{detail}"


def _detail(kind: str, record: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    if kind == "instance.ended":
        return f": {data.get('status', '')}"
    if kind == "step.started" and (record.get("attempt") or 1) > 1:
        return f", attempt {record['attempt']}"
    if kind == "step.queued":
        why = _QUEUED.get(str(data.get("reason")), "for room")
        return f" {why}" + (f": {failure_text(data['error'])}" if isinstance(data.get("error"), Mapping) else "")
    if kind in ("signal.received", "step.signal_taken"):
        return f": {(data.get('signal') or data).get('event', '')}"
    if kind == "instance.interrupted":
        return f" after {data.get('path', '')}"
    if kind in _WITH_ERROR and isinstance(error := data.get("error"), Mapping):
        return f": {failure_text(error)}"
    if kind == "step.approval_decided":
        decided = data.get("approval") or {}
        return f": {decided.get('status', '')}" + (f" by {record['by']}" if record.get("by") else "")
    if kind == "step.skipped" and data.get("reason"):
        return f" ({data['reason']})"
    if kind == "step.succeeded" and "output" in data:
        return f": {value_text(data['output'], 60)}"
    return ""


def _clock(at: Any) -> str:
    moment = datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else datetime.fromisoformat(at)
    return moment.astimezone().strftime("%H:%M:%S.%f")[:-3]
