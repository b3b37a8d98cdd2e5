"""What operators look at: traces, nodes, limits, circuits, queues, the audit trail, promises, as the document describes them.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agiwo.api.documents.instances import INSTANCE_ROW
from agiwo.api.documents.terms import (
    ANY,
    COUNT,
    COUNTS,
    MAYBE_COUNT,
    MAYBE_TEXT,
    MAYBE_TIME,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    UUID,
    Schema,
    object_of,
    page_of,
    ref,
)

SCHEMAS: Mapping[str, Schema] = {
    "Rejected": object_of(
        {
            "id": UUID,
            "at": TIME,
            "workflow_id": TEXT,
            "version": MAYBE_TEXT,
            "principal": MAYBE_TEXT,
            "trace_id": MAYBE_TEXT,
            "code": TEXT,
            "errors": ANY,
        },
        "A trigger that started nothing.",
    ),
    "RejectedPage": page_of("Rejected"),
    "TraceRow": {**INSTANCE_ROW, "properties": {**INSTANCE_ROW["properties"], "seconds": NUMBER}},
    "TracePage": page_of("TraceRow"),
    "TraceSummary": object_of(
        {
            "counted": COUNT,
            "more": {"type": "boolean", "description": "whether there are older ones that were not counted"},
            "by_status": COUNTS,
            "by_workflow": COUNTS,
            "by_error": COUNTS,
            "seconds": {"type": "object", "description": "p50, p95, p99 and max of the ended ones", "additionalProperties": NUMBER},
        },
        "Counts and durations over the newest instances that fit.",
    ),
    "Nodes": object_of(
        {
            "items": {
                "type": "array",
                "items": object_of(
                    {
                        "node_id": TEXT,
                        "name": TEXT,
                        "state": {"enum": ["alive", "dead", "left"]},
                        "started_at": TIME,
                        "lease_until": TIME,
                        "lease_left_seconds": {"type": ["number", "null"]},
                        "instances": COUNT,
                        "deliveries": COUNT,
                    }
                ),
            }
        },
        "Every incarnation of a node that is known.",
    ),
    "Limits": object_of(
        {
            "node": TEXT,
            "items": {
                "type": "array",
                "items": object_of(
                    {"name": TEXT, "scope": {"enum": ["node", "model"]}, "limit": COUNT, "in_use": MAYBE_COUNT, "queued": MAYBE_COUNT}
                ),
            },
        },
        "What may be had at once, and what of it is taken; null where nobody counts.",
    ),
    "Circuit": object_of(
        {
            "name": TEXT,
            "key": TEXT,
            "state": {"enum": ["closed", "open", "half_open"]},
            "failures": COUNT,
            "opens_at": COUNT,
            "opened_at": MAYBE_TIME,
            "next_probe_at": MAYBE_TIME,
            "probing": {"type": "boolean"},
            "last_error": ref("Failure"),
            "actions": {"type": "array", "items": TEXT},
        },
        "A circuit breaker on one node.",
        optional=("failures", "opens_at", "opened_at", "next_probe_at", "probing", "last_error", "actions"),
    ),
    "CircuitPage": page_of("Circuit"),
    "Queues": object_of(
        {
            "ready": COUNT,
            "oldest_ready_seconds": {"type": ["number", "null"]},
            "timed": COUNT,
            "waiting": COUNT,
            "approvals": COUNT,
            "counted_up_to": COUNT,
        },
        "What waits for a node, for a time, for a signal or a person.",
    ),
    "AuditEntry": object_of(
        {
            "audit_id": UUID,
            "at": TIME,
            "actor": TEXT,
            "action": TEXT,
            "object": TEXT,
            "reason": MAYBE_TEXT,
            "data": OBJECT,
        },
        "Who changed what, and why.",
    ),
    "AuditPage": page_of("AuditEntry"),
    "Invariants": object_of(
        {
            "hold": {"type": "boolean"},
            "checks": {
                "type": "array",
                "items": object_of(
                    {
                        "name": TEXT,
                        "holds": {"type": "boolean"},
                        "broken_by": {"type": "array", "items": UUID, "description": "some of the caller's own that break it"},
                        "meaning": TEXT,
                    },
                    optional=("meaning",),
                ),
            },
        },
        "Each promise, and what breaks it.",
    ),
    "Health": object_of({"status": TEXT}, "Whether the process answers, or can work."),
}
