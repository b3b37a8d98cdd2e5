"""Instances, their steps, history and signals, as the document describes them.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agiwo.api.documents.terms import (
    ACTIONS,
    ANY,
    LABELS,
    LINKS,
    MAYBE_TEXT,
    MAYBE_TIME,
    OBJECT,
    PROBLEMS,
    TEXT,
    TIME,
    UUID,
    Schema,
    object_of,
    page_of,
    ref,
)
from agiwo.machine.state import InstanceStatus, Phase, StepStatus

_STEP = object_of(
    {
        "id": TEXT,
        "path": {"type": "string", "description": "the id, with `~n` for the n-th run by jump"},
        "type": TEXT,
        "status": ref("StepStatus"),
        "iteration": {"type": "integer", "minimum": 0},
        "attempts": {"type": "integer", "minimum": 0},
        "input": ANY,
        "output": ANY,
        "error": ref("Failure"),
        "started_at": MAYBE_TIME,
        "ended_at": MAYBE_TIME,
        "duration": {"type": ["number", "null"], "description": "seconds"},
        "name": TEXT,
        "tool": TEXT,
        "reason": TEXT,
        "approval": OBJECT,
        "signal": OBJECT,
        "proposed_output": ANY,
        "model": ANY,
        "marks": {"type": "array", "items": TEXT, "description": "such as `degraded`: the result is that of the fallback"},
        "fallback": {**OBJECT, "description": "the fallback that was taken: its `kind`, its `tool`, and the `error` that led to it"},
    },
    "One iteration of a step.",
    optional=("duration", "name", "tool", "reason", "approval", "signal", "proposed_output", "model", "marks", "fallback"),
)
_INSTANCE = object_of(
    {
        "instance_id": UUID,
        "workflow_id": TEXT,
        "version": TEXT,
        "status": ref("InstanceStatus"),
        "phase": {"enum": [str(phase) for phase in Phase]},
        "seq": {"type": "integer", "description": "number of the last record in the history that this shows"},
        "trace_id": TEXT,
        "started_by": MAYBE_TEXT,
        "started_at": TIME,
        "ended_at": MAYBE_TIME,
        "labels": LABELS,
        "correlation_key": MAYBE_TEXT,
        "callback_url": {**MAYBE_TEXT, "description": "where the instance is sent when it has ended"},
        "current_steps": {"type": "array", "items": TEXT, "description": "paths of what has begun and not ended"},
        "interrupted_at": {"type": ["string", "null"], "description": "path of the step that a waiting instance stands at"},
        "waiting_for": {"type": "array", "items": OBJECT},
        "signals": {"type": "array", "items": ref("Signal"), "description": "kept until a step wants them, in the order of arrival"},
        "steps": {"type": "object", "additionalProperties": ref("Step"), "description": "the latest iteration of every step by its id"},
        "context": OBJECT,
        "state": OBJECT,
        "input": ANY,
        "output": ANY,
        "error": ref("Failure"),
        "reason": TEXT,
        "actions": ACTIONS,
        "links": LINKS,
    },
    "One run of a workflow with everything that it holds now.",
    optional=("correlation_key", "callback_url", "reason"),
)
INSTANCE_ROW = object_of(
    {
        "instance_id": UUID,
        "workflow_id": TEXT,
        "version": TEXT,
        "status": ref("InstanceStatus"),
        "trace_id": TEXT,
        "started_by": MAYBE_TEXT,
        "started_at": TIME,
        "ended_at": MAYBE_TIME,
        "labels": LABELS,
        "correlation_key": MAYBE_TEXT,
        "priority": {"type": "integer"},
        "waiting_for": MAYBE_TEXT,
        "error": ref("Failure"),
        "links": LINKS,
    },
    "An instance as lists show it.",
)

SCHEMAS: Mapping[str, Schema] = {
    "StepStatus": {"type": "string", "enum": [str(status) for status in StepStatus]},
    "InstanceStatus": {"type": "string", "enum": [str(status) for status in InstanceStatus]},
    "Failure": {
        "type": ["object", "null"],
        "description": "why a step or an instance failed",
        "properties": {"type": TEXT, "message": TEXT, "step": MAYBE_TEXT, "path": MAYBE_TEXT, "status": {"type": ["integer", "null"]}},
    },
    "Step": _STEP,
    "StepDetail": {
        "allOf": [ref("Step")],
        "description": "A step with every attempt; for a model step every call with the prompt as sent and the raw answer.",
        "required": ["history"],
        "properties": {"history": {"type": "array", "items": ref("Record")}, "calls": {"type": "array", "items": ANY}},
    },
    "Instance": _INSTANCE,
    "InstanceRow": INSTANCE_ROW,
    "InstancePage": page_of("InstanceRow"),
    "Started": object_of(
        {
            "instance_id": UUID,
            "workflow_id": TEXT,
            "version": TEXT,
            "status": ref("InstanceStatus"),
            "trace_id": TEXT,
            "warnings": PROBLEMS,
            "links": LINKS,
        },
        "An accepted trigger. With `wait` and an instance that has ended or waits it has what the instance view has.",
        optional=("warnings",),
    ),
    "Record": object_of(
        {
            "seq": {"type": "integer", "minimum": 1},
            "type": TEXT,
            "at": TIME,
            "path": TEXT,
            "attempt": {"type": "integer"},
            "by": TEXT,
            "data": OBJECT,
        },
        "One line of the history.",
        optional=("path", "attempt", "by", "data"),
    ),
    "History": object_of(
        {"items": {"type": "array", "items": ref("Record")}, "next_after": {"type": ["integer", "null"]}}, "A page of it."
    ),
    "Steps": object_of({"items": {"type": "array", "items": ref("Step")}}, "Every iteration of every step in the order of the definition."),
    "Trace": object_of(
        {
            "instance_id": UUID,
            "workflow_id": TEXT,
            "version": TEXT,
            "status": ref("InstanceStatus"),
            "trace_id": TEXT,
            "interrupted_at": MAYBE_TEXT,
            "started_at": TIME,
            "ended_at": MAYBE_TIME,
            "duration": {"type": ["number", "null"]},
            "signals": {"type": "array", "items": ref("Signal")},
            "steps": {"type": "array", "items": ref("Step")},
        },
        "Per step what went in, what came out, how long it took and how it ended, in the order in which they began.",
    ),
    "Signal": object_of(
        {"signal_id": TEXT, "event": TEXT, "received_at": TIME, "by": MAYBE_TEXT, "channel": TEXT},
        "A signal that nobody has taken yet; its payload stands in the history.",
    ),
    "SignalSent": object_of(
        {
            "signal_id": TEXT,
            "event": TEXT,
            "receivers": {
                "type": "array",
                "items": object_of({"instance_id": UUID, "result": {"enum": ["accepted", "ended", "full"]}, "links": LINKS}),
            },
        },
        "What became of a signal, by instance. The same id gets the same answer.",
    ),
}
