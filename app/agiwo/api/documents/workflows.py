"""Workflows, their versions, drafts and reports, and the tools that they call, as the document describes them.

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
    Schema,
    object_of,
    page_of,
    ref,
)

_VERSION = object_of(
    {
        "workflow_id": TEXT,
        "version": TEXT,
        "content_hash": TEXT,
        "published_at": TIME,
        "published_by": MAYBE_TEXT,
        "default": {"type": "boolean"},
        "deprecated": {"type": "boolean"},
        "links": LINKS,
        "definition": OBJECT,
    },
    "A published version; its content never changes.",
    optional=("definition",),
)
_DRAFT = object_of(
    {
        "workflow_id": TEXT,
        "version": TEXT,
        "errors": {"type": "integer"},
        "warnings": {"type": "integer"},
        "saved_by": TEXT,
        "saved_at": MAYBE_TIME,
        "links": LINKS,
    },
    "A document that may still have mistakes; it is replaced at will and never started.",
)
_REPORT: Mapping[str, Schema] = {
    "workflow_id": MAYBE_TEXT,
    "version": MAYBE_TEXT,
    "content_hash": MAYBE_TEXT,
    "reads_as": {"type": ["string", "null"], "description": "in_order or graph"},
    "order": {"type": "array", "items": TEXT, "description": "the steps in the order that was read"},
    "problems": PROBLEMS,
}

SCHEMAS: Mapping[str, Schema] = {
    "Version": _VERSION,
    "VersionPage": page_of("Version"),
    "Workflow": object_of(
        {
            "workflow_id": TEXT,
            "version": MAYBE_TEXT,
            "newest": TEXT,
            "default": MAYBE_TEXT,
            "version_count": {"type": "integer", "description": "at most 100"},
            "draft_count": {"type": "integer", "description": "at most 100"},
            "paused": {
                "type": ["object", "null"],
                "description": "who lets nothing new start, since when and why",
                "properties": {"by": TEXT, "since": TIME, "reason": MAYBE_TEXT},
            },
            "versions": {"type": "array", "items": TEXT, "description": "the highest first, at most 100; not in lists"},
            "actions": ACTIONS,
            "links": LINKS,
        },
        "A workflow; `version` is the one that a trigger takes without being told.",
        optional=("versions",),
    ),
    "WorkflowPage": page_of("Workflow"),
    "Draft": _DRAFT,
    "DraftDetail": {
        "allOf": [ref("Draft")],
        "description": "A draft with its text and with what was wrong with it when it was saved.",
        "required": ["problems", "source"],
        "properties": {"problems": PROBLEMS, "source": TEXT},
    },
    "DraftPage": page_of("Draft"),
    "Preview": object_of(
        {
            "workflow_id": TEXT,
            "version": TEXT,
            "status": ref("InstanceStatus"),
            "steps": {"type": "array", "items": OBJECT, "description": "every step run in the order in which they began"},
            "not_run": {"type": "object", "additionalProperties": TEXT, "description": "why each other step was not reached"},
            "output": ANY,
            "error": ref("Failure"),
            "stopped": {
                "type": ["object", "null"],
                "description": "where and why the path could be followed no further, and what to give for it",
                "properties": {"at": MAYBE_TEXT, "why": TEXT, "give": {"type": "array", "items": TEXT}},
            },
        },
        "What would happen, with results that were given or made up.",
    ),
    "Diff": object_of(
        {
            "workflow_id": TEXT,
            "from": TEXT,
            "to": TEXT,
            "same": {"type": "boolean"},
            "workflow": {"type": "array", "items": OBJECT, "description": "keys of the whole with both values"},
            "steps": OBJECT,
            "order": {"type": ["object", "null"]},
            "edges": {"type": ["object", "null"], "description": "null where one of the two cannot be compiled here"},
        },
        "From one version to another.",
    ),
    "AnySchema": {"type": "object", "additionalProperties": True, "description": "A JSON Schema."},
    "Deleted": object_of({"deleted": TEXT, "versions": {"type": "array", "items": TEXT}}, "What is gone."),
    "Report": object_of(_REPORT, "What was read from a definition, and all that is wrong with it."),
    "Published": object_of(
        {**_REPORT, "published": {"enum": ["created", "unchanged", "draft", "draft_replaced"]}, "links": LINKS},
        "A published version with the warnings that it got, or a draft with all that is wrong with it.",
    ),
    "Graph": object_of(
        {"nodes": {"type": "array", "items": OBJECT}, "edges": {"type": "array", "items": OBJECT}}, "Steps and what leads where."
    ),
    "Tool": object_of(
        {
            "name": TEXT,
            "description": TEXT,
            "parameters": OBJECT,
            "result": {"type": ["object", "null"]},
            "effect": {"enum": ["pure", "read", "idempotent_write", "write", "irreversible"]},
            "timeout": {"type": ["number", "null"]},
            "uses": LABELS,
            "reconcile": {"type": "boolean"},
        },
        "A tool and what it promises.",
    ),
    "Tools": object_of({"items": {"type": "array", "items": ref("Tool")}}, "All tools."),
}
