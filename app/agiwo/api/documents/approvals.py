"""Questions to people, their decisions, and callbacks, as the document describes them.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agiwo.api.documents.terms import ACTIONS, ANY, LINKS, MAYBE_TEXT, TEXT, TIME, UUID, Schema, object_of, page_of, ref

_APPROVAL = object_of(
    {
        "approval_id": UUID,
        "instance_id": UUID,
        "workflow_id": TEXT,
        "step": TEXT,
        "path": TEXT,
        "status": {"enum": ["pending", "approved", "rejected", "expired", "cancelled", "void"]},
        "title": TEXT,
        "show": ANY,
        "matter": {"description": "the frozen arguments (`at` is before), or the output that was written (`at` is after)"},
        "at": {"enum": ["before", "after"]},
        "editable": {"type": "boolean"},
        "fields": {"type": ["object", "boolean", "null"], "description": "JSON Schema of the form"},
        "approvers": {"type": "array", "items": TEXT},
        "digest": TEXT,
        "asked_at": TIME,
        "expires_at": TIME,
        "decision": {"anyOf": [{"type": "null"}, ref("ApprovalDecision")]},
        "actions": ACTIONS,
        "links": LINKS,
    },
    "A question to people.",
)

SCHEMAS: Mapping[str, Schema] = {
    "Approval": _APPROVAL,
    "ApprovalDecision": object_of(
        {
            "action": {"enum": ["approve", "reject"]},
            "by": TEXT,
            "at": TIME,
            "channel": MAYBE_TEXT,
            "comment": MAYBE_TEXT,
            "values": {"type": ["object", "null"]},
            "output": ANY,
        },
        "Who decided what, when, by which way.",
        optional=("output",),
    ),
    "ApprovalPage": page_of("Approval"),
    "CallbackTaken": object_of({"taken": {"type": "boolean"}, "repeated": {"type": "boolean"}}, "Taken; repeated if it had come before."),
}
