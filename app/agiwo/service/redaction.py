"""What is shown to callers who may see that things are and how they ended, but not what went in and came out.

Whatever is not known to be harmless is veiled, so that a field that somebody adds later is not shown by oversight. Errors stay readable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agiwo.service.callers import Caller
from agiwo.values import encode

View = Mapping[str, Any]

_INSTANCE = frozenset({
    "instance_id", "workflow_id", "version", "status", "phase", "seq", "trace_id", "started_by", "started_at", "ended_at", "labels",
    "correlation_key", "current_steps", "interrupted_at", "waiting_for", "actions", "links", "reason", "priority", "duration",
    "signals",
})  # fmt: skip
_STEP = frozenset({
    "id", "path", "type", "status", "name", "tool", "iteration", "attempts", "started_at", "ended_at", "duration", "reason", "taken",
    "cause", "marks", "model", "prompt_href", "signal",
})  # fmt: skip
_RECORD = frozenset({"seq", "type", "at", "path", "attempt", "by"})
_DATA = frozenset({
    "workflow", "version", "hash", "tenant", "trace_id", "labels", "delay", "timers", "reason", "tries", "deaths", "probing", "answer",
    "done", "commit", "settled", "passes", "taken", "status", "stop", "due", "next", "target", "cause", "counted", "jumped", "not_run",
    "outcome", "digest", "model", "id", "event", "channel", "expired", "signal", "paths", "steps", "word", "off", "step",
    "interrupt_before", "interrupt_after",
})  # fmt: skip
_ERROR = frozenset({"type", "message", "step", "path", "status", "retry_after", "not_done"})
_ASKED = frozenset({
    "id", "number", "status", "at", "digest", "contract", "asked_at", "expires_at", "changed", "by", "channel", "decided_at",
})  # fmt: skip
_APPROVAL = frozenset({
    "approval_id", "instance_id", "workflow_id", "step", "path", "status", "at", "editable", "approvers", "digest", "asked_at",
    "expires_at", "actions", "links",
})  # fmt: skip
_DECISION = frozenset({"action", "by", "at", "channel"})
_PROBLEM = frozenset({"code", "severity", "pointer", "expected", "line", "column"})


def veiled(value: Any) -> Any:
    """What stands for a value that is not shown: its size in bytes as JSON, and the SHA-256 of that. Nothing stays nothing."""
    if value is None:
        return None
    text = encode(value).encode("utf-8", "replace")
    return {"redacted": True, "size": len(text), "sha256": hashlib.sha256(text).hexdigest()}


def instance_for(caller: Caller, view: View) -> dict[str, Any]:
    """An instance's view as this caller sees it."""
    if caller.sees_payloads:
        return dict(view)
    steps = {"steps": lambda steps: {id: step_for(caller, step) for id, step in steps.items()}}
    return _veiled_but(view, _INSTANCE, {"error": _error, **steps})


def step_for(caller: Caller, view: View) -> dict[str, Any]:
    """A step's view as this caller sees it; its records too, if it has them."""
    if caller.sees_payloads:
        return dict(view)
    return _veiled_but(view, _STEP, {"error": _error, "approval": _asked, "history": lambda records: records_for(caller, records)})


def records_for(caller: Caller, records: Sequence[View]) -> list[dict[str, Any]]:
    """Records of the history as this caller sees them."""
    if caller.sees_payloads:
        return [dict(record) for record in records]
    return [_veiled_but(record, _RECORD, {"data": _data}) for record in records]


def approval_for(caller: Caller, view: View) -> dict[str, Any]:
    """An approval's view as this caller sees it: whoever may decide it sees what is decided. A title is made of what came in, too."""
    if caller.sees_payloads or caller.may_decide(view["approvers"]):
        return dict(view)
    return {**_veiled_but(view, _APPROVAL, {"decision": lambda made: _veiled_but(made, _DECISION, {})}), "title": view["step"]}


def problems_for(caller: Caller, problems: Any) -> Any:
    """What was wrong with something that was sent, as this caller sees it: the places, not what stood there."""
    if caller.sees_payloads or not isinstance(problems, list):
        return problems
    return [{name: value for name, value in problem.items() if name in _PROBLEM} for problem in problems]


def _veiled_but(view: View, plain: frozenset[str], parts: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    out = {}
    for name, value in view.items():
        if name in plain or value is None:
            out[name] = value
        else:
            out[name] = parts[name](value) if name in parts else veiled(value)
    return out


def _error(error: Any) -> Any:
    return _veiled_but(error, _ERROR, {"cause": _error}) if isinstance(error, Mapping) else veiled(error)


def _asked(approval: View) -> dict[str, Any]:
    return _veiled_but(approval, _ASKED, {})


def _data(data: View) -> dict[str, Any]:
    return _veiled_but(data, _DATA, {"error": _error, "approval": _asked})
