"""The parts of the OpenAPI document that many routes share: schemas of answers, problems by status, examples.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from agiwo.api import problems
from agiwo.machine.state import InstanceStatus, Phase, StepStatus

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_MAYBE_TEXT: Schema = {"type": ["string", "null"]}
_TIME: Schema = {"type": "string", "format": "date-time"}
_MAYBE_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_ID: Schema = {"type": "string", "format": "uuid"}
_ANY: Schema = {"description": "any JSON value"}
_OBJECT: Schema = {"type": "object", "additionalProperties": True}
_LINKS: Schema = {"type": "object", "additionalProperties": _TEXT}
_LABELS: Schema = {"type": "object", "additionalProperties": _TEXT}
_ACTIONS: Schema = {
    "type": "array",
    "description": "the calls that change this and are allowed now",
    "items": {
        "type": "object",
        "required": ["name", "method", "href"],
        "properties": {"name": _TEXT, "method": {"const": "POST"}, "href": _TEXT, "path": _TEXT},
    },
}


def _object(properties: Mapping[str, Schema], description: str = "", optional: tuple[str, ...] = ()) -> Schema:
    return {
        "type": "object",
        "description": description,
        "required": [name for name in properties if name not in optional],
        "properties": dict(properties),
    }


def _page(item: str) -> Schema:
    return _object(
        {"items": {"type": "array", "items": ref(item)}, "next_cursor": _MAYBE_TEXT},
        "One page; `next_cursor` is null on the last one and stays good while rows are added.",
    )


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_COUNT: Schema = {"type": "integer", "minimum": 0}
_COUNTS: Schema = {"type": "object", "additionalProperties": _COUNT}
_NUMBER: Schema = {"type": "number"}
_MAYBE_COUNT: Schema = {"type": ["integer", "null"], "minimum": 0}
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_TOTALS: Mapping[str, Schema] = {
    "calls": _COUNT,
    "failed": _COUNT,
    **dict.fromkeys(_TOKENS, _COUNT),
    "cost_micro_usd": {**_MAYBE_COUNT, "description": "millionths of a dollar, as far as prices are known; null if none is"},
    "unpriced": {**_COUNT, "description": "calls whose cost is not known"},
}
_USAGE = _object(
    {
        "path": _TEXT,
        "attempt": _COUNT,
        "number": _COUNT,
        "at": _TIME,
        "purpose": {"type": "string", "description": "main, repair, raised or fallback"},
        "profile": _TEXT,
        "kind": _TEXT,
        "model_asked": _TEXT,
        "model_answered": _MAYBE_TEXT,
        **dict.fromkeys(_TOKENS, _MAYBE_COUNT),
        "cost_micro_usd": {**_MAYBE_COUNT, "description": "null where no price is known, never 0 for that"},
        "price_version": _MAYBE_TEXT,
        "status": {"type": "string", "description": "`ok`, or the type of the failure"},
        "latency_ms": _MAYBE_COUNT,
        "request_id": _MAYBE_TEXT,
    },
    "One call of a model.",
)
_STEP = _object(
    {
        "id": _TEXT,
        "path": {"type": "string", "description": "the id, with `~n` for the n-th run by jump"},
        "type": _TEXT,
        "status": ref("StepStatus"),
        "iteration": {"type": "integer", "minimum": 0},
        "attempts": {"type": "integer", "minimum": 0},
        "input": _ANY,
        "output": _ANY,
        "error": ref("Failure"),
        "started_at": _MAYBE_TIME,
        "ended_at": _MAYBE_TIME,
        "duration": {"type": ["number", "null"], "description": "seconds"},
        "name": _TEXT,
        "tool": _TEXT,
        "reason": _TEXT,
        "approval": _OBJECT,
        "signal": _OBJECT,
        "proposed_output": _ANY,
        "model": _ANY,
        "marks": {"type": "array", "items": _TEXT, "description": "such as `degraded`: the result is that of the fallback"},
        "fallback": {**_OBJECT, "description": "the fallback that was taken: its `kind`, its `tool`, and the `error` that led to it"},
    },
    "One iteration of a step.",
    optional=("duration", "name", "tool", "reason", "approval", "signal", "proposed_output", "model", "marks", "fallback"),
)
_INSTANCE = _object(
    {
        "instance_id": _ID,
        "workflow_id": _TEXT,
        "version": _TEXT,
        "status": ref("InstanceStatus"),
        "phase": {"enum": [str(phase) for phase in Phase]},
        "seq": {"type": "integer", "description": "number of the last record in the history that this shows"},
        "trace_id": _TEXT,
        "started_by": _MAYBE_TEXT,
        "started_at": _TIME,
        "ended_at": _MAYBE_TIME,
        "labels": _LABELS,
        "correlation_key": _MAYBE_TEXT,
        "callback_url": {**_MAYBE_TEXT, "description": "where the instance is sent when it has ended"},
        "current_steps": {"type": "array", "items": _TEXT, "description": "paths of what has begun and not ended"},
        "interrupted_at": {"type": ["string", "null"], "description": "path of the step that a waiting instance stands at"},
        "waiting_for": {"type": "array", "items": _OBJECT},
        "signals": {"type": "array", "items": ref("Signal"), "description": "kept until a step wants them, in the order of arrival"},
        "steps": {"type": "object", "additionalProperties": ref("Step"), "description": "the latest iteration of every step by its id"},
        "context": _OBJECT,
        "state": _OBJECT,
        "input": _ANY,
        "output": _ANY,
        "error": ref("Failure"),
        "reason": _TEXT,
        "actions": _ACTIONS,
        "links": _LINKS,
    },
    "One run of a workflow with everything that it holds now.",
    optional=("correlation_key", "callback_url", "reason"),
)
_INSTANCE_ROW = _object(
    {
        "instance_id": _ID,
        "workflow_id": _TEXT,
        "version": _TEXT,
        "status": ref("InstanceStatus"),
        "trace_id": _TEXT,
        "started_by": _MAYBE_TEXT,
        "started_at": _TIME,
        "ended_at": _MAYBE_TIME,
        "labels": _LABELS,
        "correlation_key": _MAYBE_TEXT,
        "priority": {"type": "integer"},
        "waiting_for": _MAYBE_TEXT,
        "error": ref("Failure"),
        "links": _LINKS,
    },
    "An instance as lists show it.",
)
_APPROVAL = _object(
    {
        "approval_id": _ID,
        "instance_id": _ID,
        "workflow_id": _TEXT,
        "step": _TEXT,
        "path": _TEXT,
        "status": {"enum": ["pending", "approved", "rejected", "expired", "cancelled", "void"]},
        "title": _TEXT,
        "show": _ANY,
        "matter": {"description": "the frozen arguments (`at` is before), or the output that was written (`at` is after)"},
        "at": {"enum": ["before", "after"]},
        "editable": {"type": "boolean"},
        "fields": {"type": ["object", "boolean", "null"], "description": "JSON Schema of the form"},
        "approvers": {"type": "array", "items": _TEXT},
        "digest": _TEXT,
        "asked_at": _TIME,
        "expires_at": _TIME,
        "decision": {"anyOf": [{"type": "null"}, ref("ApprovalDecision")]},
        "actions": _ACTIONS,
        "links": _LINKS,
    },
    "A question to people.",
)
_VERSION = _object(
    {
        "workflow_id": _TEXT,
        "version": _TEXT,
        "content_hash": _TEXT,
        "published_at": _TIME,
        "published_by": _MAYBE_TEXT,
        "default": {"type": "boolean"},
        "deprecated": {"type": "boolean"},
        "links": _LINKS,
        "definition": _OBJECT,
    },
    "A published version; its content never changes.",
    optional=("definition",),
)
_KEY = _object(
    {
        "key_id": _ID,
        "name": _TEXT,
        "principal": _TEXT,
        "roles": {"type": "array", "items": _TEXT},
        "status": {"enum": ["active", "expired", "revoked"]},
        "created_at": _TIME,
        "created_by": _TEXT,
        "expires_at": _MAYBE_TIME,
        "revoked_at": _MAYBE_TIME,
        "last_used_at": _MAYBE_TIME,
        "actions": _ACTIONS,
        "links": _LINKS,
    },
    "An API key, without its text.",
)
_DRAFT = _object(
    {
        "workflow_id": _TEXT,
        "version": _TEXT,
        "errors": {"type": "integer"},
        "warnings": {"type": "integer"},
        "saved_by": _TEXT,
        "saved_at": _MAYBE_TIME,
        "links": _LINKS,
    },
    "A document that may still have mistakes; it is replaced at will and never started.",
)
_WEBHOOK = _object(
    {
        "webhook_id": _ID,
        "url": _TEXT,
        "events": {"type": "array", "items": _TEXT},
        "workflow": _MAYBE_TEXT,
        "description": _MAYBE_TEXT,
        "header_names": {"type": "array", "items": _TEXT},
        "include": {"type": "array", "items": {"const": "output"}},
        "active": {"type": "boolean"},
        "disabled_reason": _MAYBE_TEXT,
        "secrets": {"type": "array", "items": _object({"since": _TIME, "until": _MAYBE_TIME}, "A secret that signs at present.")},
        "created_at": _TIME,
        "created_by": _MAYBE_TEXT,
        "updated_at": _TIME,
        "actions": _ACTIONS,
        "links": _LINKS,
    },
    "Where events are sent, without its secrets.",
)
_DELIVERY = _object(
    {
        "delivery_id": _ID,
        "kind": {"type": "string", "description": "`webhook`, `callback` or `notice`"},
        "target": _TEXT,
        "type": {"type": "string", "description": "of the event"},
        "instance_id": {"type": ["string", "null"], "format": "uuid"},
        "seq": {"type": "integer", "description": "number of the record that it tells of"},
        "state": {"enum": ["pending", "delivered", "dead"]},
        "tries": {"type": "integer", "minimum": 0},
        "last_status": {"type": ["integer", "null"]},
        "last_error": _MAYBE_TEXT,
        "created_at": _TIME,
        "next_try_at": _MAYBE_TIME,
        "settled_at": _MAYBE_TIME,
        "event": {"description": "what is or was sent"},
        "actions": _ACTIONS,
    },
    "One event for one webhook. Its id is the `webhook-id` that the receiver sees.",
)
_REPORT: Mapping[str, Schema] = {
    "workflow_id": _MAYBE_TEXT,
    "version": _MAYBE_TEXT,
    "content_hash": _MAYBE_TEXT,
    "reads_as": {"type": ["string", "null"], "description": "in_order or graph"},
    "order": {"type": "array", "items": _TEXT, "description": "the steps in the order that was read"},
    "problems": {"type": "array", "items": problems.SCHEMA["properties"]["errors"]["items"]},
}

SCHEMAS: Mapping[str, Schema] = {
    "Problem": dict(problems.SCHEMA),
    "StepStatus": {"type": "string", "enum": [str(status) for status in StepStatus]},
    "InstanceStatus": {"type": "string", "enum": [str(status) for status in InstanceStatus]},
    "Failure": {
        "type": ["object", "null"],
        "description": "why a step or an instance failed",
        "properties": {"type": _TEXT, "message": _TEXT, "step": _MAYBE_TEXT, "path": _MAYBE_TEXT, "status": {"type": ["integer", "null"]}},
    },
    "Step": _STEP,
    "StepDetail": {
        "allOf": [ref("Step")],
        "description": "A step with every attempt; for a model step every call with the prompt as sent and the raw answer.",
        "required": ["history"],
        "properties": {"history": {"type": "array", "items": ref("Record")}, "calls": {"type": "array", "items": _ANY}},
    },
    "Instance": _INSTANCE,
    "InstanceRow": _INSTANCE_ROW,
    "InstancePage": _page("InstanceRow"),
    "Started": _object(
        {
            "instance_id": _ID,
            "workflow_id": _TEXT,
            "version": _TEXT,
            "status": ref("InstanceStatus"),
            "trace_id": _TEXT,
            "warnings": _REPORT["problems"],
            "links": _LINKS,
        },
        "An accepted trigger. With `wait` and an instance that has ended or waits it has what the instance view has.",
        optional=("warnings",),
    ),
    "Record": _object(
        {
            "seq": {"type": "integer", "minimum": 1},
            "type": _TEXT,
            "at": _TIME,
            "path": _TEXT,
            "attempt": {"type": "integer"},
            "by": _TEXT,
            "data": _OBJECT,
        },
        "One line of the history.",
        optional=("path", "attempt", "by", "data"),
    ),
    "History": _object({"items": {"type": "array", "items": ref("Record")}, "next_after": {"type": ["integer", "null"]}}, "A page of it."),
    "Steps": _object({"items": {"type": "array", "items": ref("Step")}}, "Every iteration of every step in the order of the definition."),
    "Trace": _object(
        {
            "instance_id": _ID,
            "workflow_id": _TEXT,
            "version": _TEXT,
            "status": ref("InstanceStatus"),
            "trace_id": _TEXT,
            "interrupted_at": _MAYBE_TEXT,
            "started_at": _TIME,
            "ended_at": _MAYBE_TIME,
            "duration": {"type": ["number", "null"]},
            "signals": {"type": "array", "items": ref("Signal")},
            "steps": {"type": "array", "items": ref("Step")},
        },
        "Per step what went in, what came out, how long it took and how it ended, in the order in which they began.",
    ),
    "Signal": _object(
        {"signal_id": _TEXT, "event": _TEXT, "received_at": _TIME, "by": _MAYBE_TEXT, "channel": _TEXT},
        "A signal that nobody has taken yet; its payload stands in the history.",
    ),
    "SignalSent": _object(
        {
            "signal_id": _TEXT,
            "event": _TEXT,
            "receivers": {
                "type": "array",
                "items": _object({"instance_id": _ID, "result": {"enum": ["accepted", "ended", "full"]}, "links": _LINKS}),
            },
        },
        "What became of a signal, by instance. The same id gets the same answer.",
    ),
    "Approval": _APPROVAL,
    "ApprovalDecision": _object(
        {
            "action": {"enum": ["approve", "reject"]},
            "by": _TEXT,
            "at": _TIME,
            "channel": _MAYBE_TEXT,
            "comment": _MAYBE_TEXT,
            "values": {"type": ["object", "null"]},
            "output": _ANY,
        },
        "Who decided what, when, by which way.",
        optional=("output",),
    ),
    "ApprovalPage": _page("Approval"),
    "CallbackTaken": _object({"taken": {"type": "boolean"}, "repeated": {"type": "boolean"}}, "Taken; repeated if it had come before."),
    "Version": _VERSION,
    "Versions": _object({"items": {"type": "array", "items": ref("Version")}}, "All versions of a workflow, the highest first."),
    "Workflow": _object(
        {
            "workflow_id": _TEXT,
            "version": _MAYBE_TEXT,
            "newest": _TEXT,
            "default": _MAYBE_TEXT,
            "version_count": {"type": "integer", "description": "at most 100"},
            "draft_count": {"type": "integer", "description": "at most 100"},
            "paused": {
                "type": ["object", "null"],
                "description": "who lets nothing new start, since when and why",
                "properties": {"by": _TEXT, "since": _TIME, "reason": _MAYBE_TEXT},
            },
            "versions": {"type": "array", "items": _TEXT, "description": "the highest first; not in lists"},
            "actions": _ACTIONS,
            "links": _LINKS,
        },
        "A workflow; `version` is the one that a trigger takes without being told.",
        optional=("versions",),
    ),
    "Draft": _DRAFT,
    "DraftDetail": {
        "allOf": [ref("Draft")],
        "description": "A draft with its text and with what was wrong with it when it was saved.",
        "required": ["problems", "source"],
        "properties": {"problems": _REPORT["problems"], "source": _TEXT},
    },
    "DraftPage": _page("Draft"),
    "Preview": _object(
        {
            "workflow_id": _TEXT,
            "version": _TEXT,
            "status": ref("InstanceStatus"),
            "steps": {"type": "array", "items": _OBJECT, "description": "every step run in the order in which they began"},
            "not_run": {"type": "object", "additionalProperties": _TEXT, "description": "why each other step was not reached"},
            "output": _ANY,
            "error": ref("Failure"),
            "stopped": {
                "type": ["object", "null"],
                "description": "where and why the path could be followed no further, and what to give for it",
                "properties": {"at": _MAYBE_TEXT, "why": _TEXT, "give": {"type": "array", "items": _TEXT}},
            },
        },
        "What would happen, with results that were given or made up.",
    ),
    "Diff": _object(
        {
            "workflow_id": _TEXT,
            "from": _TEXT,
            "to": _TEXT,
            "same": {"type": "boolean"},
            "workflow": {"type": "array", "items": _OBJECT, "description": "keys of the whole with both values"},
            "steps": _OBJECT,
            "order": {"type": ["object", "null"]},
            "edges": {"type": ["object", "null"], "description": "null where one of the two cannot be compiled here"},
        },
        "From one version to another.",
    ),
    "AnySchema": {"type": "object", "additionalProperties": True, "description": "A JSON Schema."},
    "Deleted": _object({"deleted": _TEXT, "versions": {"type": "array", "items": _TEXT}}, "What is gone."),
    "WorkflowPage": _page("Workflow"),
    "Report": _object(_REPORT, "What was read from a definition, and all that is wrong with it."),
    "Published": _object(
        {**_REPORT, "published": {"enum": ["created", "unchanged", "draft", "draft_replaced"]}, "links": _LINKS},
        "A published version with the warnings that it got, or a draft with all that is wrong with it.",
    ),
    "Graph": _object(
        {"nodes": {"type": "array", "items": _OBJECT}, "edges": {"type": "array", "items": _OBJECT}}, "Steps and what leads where."
    ),
    "Tool": _object(
        {
            "name": _TEXT,
            "description": _TEXT,
            "parameters": _OBJECT,
            "result": {"type": ["object", "null"]},
            "effect": {"enum": ["pure", "read", "idempotent_write", "write", "irreversible"]},
            "timeout": {"type": ["number", "null"]},
            "uses": _LABELS,
            "reconcile": {"type": "boolean"},
        },
        "A tool and what it promises.",
    ),
    "Tools": _object({"items": {"type": "array", "items": ref("Tool")}}, "All tools."),
    "Rejected": _object(
        {
            "id": _ID,
            "at": _TIME,
            "workflow_id": _TEXT,
            "version": _MAYBE_TEXT,
            "principal": _MAYBE_TEXT,
            "trace_id": _MAYBE_TEXT,
            "code": _TEXT,
            "errors": _ANY,
        },
        "A trigger that started nothing.",
    ),
    "RejectedPage": _page("Rejected"),
    "TraceRow": {**_INSTANCE_ROW, "properties": {**_INSTANCE_ROW["properties"], "seconds": _NUMBER}},
    "TracePage": _page("TraceRow"),
    "TraceSummary": _object(
        {
            "counted": _COUNT,
            "more": {"type": "boolean", "description": "whether there are older ones that were not counted"},
            "by_status": _COUNTS,
            "by_workflow": _COUNTS,
            "by_error": _COUNTS,
            "seconds": {"type": "object", "description": "p50, p95, p99 and max of the ended ones", "additionalProperties": _NUMBER},
        },
        "Counts and durations over the newest instances that fit.",
    ),
    "Nodes": _object(
        {
            "items": {
                "type": "array",
                "items": _object(
                    {
                        "node_id": _TEXT,
                        "name": _TEXT,
                        "state": {"enum": ["alive", "dead", "left"]},
                        "started_at": _TIME,
                        "lease_until": _TIME,
                        "lease_left_seconds": {"type": ["number", "null"]},
                        "instances": _COUNT,
                        "deliveries": _COUNT,
                    }
                ),
            }
        },
        "Every incarnation of a node that is known.",
    ),
    "Limits": _object(
        {
            "node": _TEXT,
            "items": {
                "type": "array",
                "items": _object(
                    {"name": _TEXT, "scope": {"enum": ["node", "model"]}, "limit": _COUNT, "in_use": _MAYBE_COUNT, "queued": _MAYBE_COUNT}
                ),
            },
        },
        "What may be had at once, and what of it is taken; null where nobody counts.",
    ),
    "Circuit": _object(
        {
            "name": _TEXT,
            "key": _TEXT,
            "state": {"enum": ["closed", "open", "half_open"]},
            "failures": _COUNT,
            "opens_at": _COUNT,
            "opened_at": _MAYBE_TIME,
            "next_probe_at": _MAYBE_TIME,
            "probing": {"type": "boolean"},
            "last_error": ref("Failure"),
            "actions": {"type": "array", "items": _TEXT},
        },
        "A circuit breaker on one node.",
        optional=("failures", "opens_at", "opened_at", "next_probe_at", "probing", "last_error", "actions"),
    ),
    "CircuitPage": _page("Circuit"),
    "Queues": _object(
        {
            "ready": _COUNT,
            "oldest_ready_seconds": {"type": ["number", "null"]},
            "timed": _COUNT,
            "waiting": _COUNT,
            "approvals": _COUNT,
            "counted_up_to": _COUNT,
        },
        "What waits for a node, for a time, for a signal or a person.",
    ),
    "AuditEntry": _object(
        {
            "audit_id": _ID,
            "at": _TIME,
            "actor": _TEXT,
            "action": _TEXT,
            "object": _TEXT,
            "reason": _MAYBE_TEXT,
            "data": _OBJECT,
        },
        "Who changed what, and why.",
    ),
    "AuditPage": _page("AuditEntry"),
    "Invariants": _object(
        {
            "hold": {"type": "boolean"},
            "checks": {
                "type": "array",
                "items": _object(
                    {
                        "name": _TEXT,
                        "holds": {"type": "boolean"},
                        "broken_by": {"type": "array", "items": _ID, "description": "some of those that break it"},
                        "meaning": _TEXT,
                    },
                    optional=("meaning",),
                ),
            },
        },
        "Each promise, and what breaks it.",
    ),
    "InstanceUsage": _object(
        {"items": {"type": "array", "items": _USAGE}, "totals": _object(_TOTALS), "next_cursor": _MAYBE_TEXT},
        "Calls of models, each as it was made; `totals` are of all of them, on every page.",
    ),
    "UsageReport": _object(
        {
            "since": {"type": "string", "format": "date"},
            "until": {"type": "string", "format": "date"},
            "items": {
                "type": "array",
                "items": _object({"day": {"type": "string", "format": "date"}, "workflow_id": _TEXT, "profile": _TEXT, **_TOTALS}),
            },
            "next_cursor": _MAYBE_TEXT,
        },
        "Totals by day (UTC), workflow and profile; `since` and `until` are the days that were asked for, both included.",
    ),
    "Key": _KEY,
    "NewKey": {
        "allOf": [ref("Key")],
        "description": "A new key; `key` is its text, shown this once and null when the same call is answered again.",
        "required": ["key"],
        "properties": {"key": _MAYBE_TEXT},
    },
    "KeyPage": _page("Key"),
    "Webhook": _WEBHOOK,
    "NewWebhook": {
        "allOf": [ref("Webhook")],
        "description": "A webhook with a new secret; `secret` is shown this once and null when the same call is answered again.",
        "required": ["secret"],
        "properties": {"secret": _MAYBE_TEXT},
    },
    "WebhookPage": _page("Webhook"),
    "CallbackSecret": _object({"secret": _MAYBE_TEXT}, "It signs what goes to a `callback_url`; null when the call is repeated."),
    "Posted": _object({"delivery_id": _ID, "links": _LINKS}, "What is on its way."),
    "Delivery": _DELIVERY,
    "DeliveryPage": _page("Delivery"),
    "HookTaken": {
        "description": "What a message has started, or to which instances it went as a signal.",
        "anyOf": [
            _object({"instance_id": _ID, "workflow_id": _TEXT, "version": _TEXT, "links": _LINKS}),
            _object(
                {
                    "signal_id": _TEXT,
                    "event": _TEXT,
                    "instances": {
                        "type": "array",
                        "items": _object({"instance_id": _ID, "result": {"enum": ["accepted", "ended", "full"]}}),
                    },
                }
            ),
        ],
    },
    "DryRun": _object(
        {
            "dry_run": {"const": True},
            "action": _TEXT,
            "object": _TEXT,
            "reason": _MAYBE_TEXT,
            "present": {"description": "how it stands now, as reading it shows it"},
        },
        "What a change would do: it has been checked, and nothing was written.",
    ),
    "Health": _object({"status": _TEXT}, "Whether the process answers, or can work."),
}


def answer(
    schema: str, description: str, *, example: Any = None, media_type: str = "application/json", dry: bool = False
) -> dict[str, Any]:
    """The documentation of a good answer; `dry` if a dry run of the change has this status too."""
    content: dict[str, Any] = {"schema": {"anyOf": [ref(schema), ref("DryRun")]} if dry else ref(schema)}
    if example is not None:
        content["example"] = example
    return {"description": description, "content": {media_type: content}}


_REFUSALS: Mapping[int, str] = {
    400: "What was sent is malformed.",
    401: "No valid credential.",
    403: "The credential does not allow this.",
    404: "There is no such thing, or it is not yours.",
    405: "This method is not taken here.",
    408: "The body took too long to arrive.",
    409: "The present state does not allow this.",
    410: "It is over.",
    412: "The matter has changed.",
    413: "The body is too large.",
    414: "The address is too long.",
    415: "This content type or encoding is not taken.",
    422: "What was sent does not fit; `errors` names the places.",
    429: "Too much is waiting.",
    431: "The headers are too large.",
    503: "A part that this needs is away at the moment.",
}
_PROBLEM = {problems.MEDIA_TYPE: {"schema": ref("Problem")}}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of the refusals that a route may give, besides those that every route may give."""
    return {status: {"description": _REFUSALS[status], "content": _PROBLEM} for status in sorted({400, 401, 403, 422, 503, *statuses})}


#: The answer to a dry run, for a change whose own answer has another status than 200.
DRY: Mapping[int | str, dict[str, Any]] = {200: answer("DryRun", "With `dry_run`: what would happen; nothing has been written.")}

KEY_FORM: Schema = {"type": "string", "pattern": "^[!-~]{1,255}$"}
_KEY_SAYS = "the same call under the same key is made once and answered again for 24 hours; a refused call uses no key up"


def add_conventions(document: Schema) -> None:
    """What is so for every call, once for all: each change under `/v1` takes an `Idempotency-Key`."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            change = method != "get" and path.startswith("/v1/")
            for status in (414, 431, *((408, 413) if change else ())):
                operation["responses"].setdefault(str(status), {"description": _REFUSALS[status], "content": _PROBLEM})
            if not change:
                continue
            parameters = operation.setdefault("parameters", [])
            if not any(given["name"] == "Idempotency-Key" for given in parameters):
                parameters.append(parameter("Idempotency-Key", "header", KEY_FORM, _KEY_SAYS))
            operation["responses"].setdefault("409", {"description": _REFUSALS[409], "content": _PROBLEM})


def body(model: type[BaseModel], example: Any = None, *, required: bool = False) -> dict[str, Any]:
    """The documentation of a JSON body that the route reads by itself."""
    content: dict[str, Any] = {"schema": model.model_json_schema(ref_template="#/components/schemas/{model}")}
    if example is not None:
        content["example"] = example
    return {"requestBody": {"required": required, "content": {"application/json": content}}}


def parameter(name: str, where: str, schema: Schema, description: str, *, required: bool = False) -> dict[str, Any]:
    """The documentation of a parameter that the route reads by itself."""
    return {"name": name, "in": where, "required": required, "schema": schema, "description": description}
