"""The parts of the OpenAPI document that many routes share: schemas of answers by subject, problems by status, examples.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agiwo.api import problems
from agiwo.api.documents import approvals, instances, keys, oversight, usage, webhooks, workflows
from agiwo.api.documents.routes import DRY, KEY_FORM, add_conventions, answer, body, parameter, refusals
from agiwo.api.documents.terms import MAYBE_TEXT, TEXT, Schema, object_of, ref

__all__ = ["DRY", "KEY_FORM", "SCHEMAS", "add_conventions", "answer", "body", "parameter", "ref", "refusals"]

SCHEMAS: Mapping[str, Schema] = {
    "Problem": dict(problems.SCHEMA),
    "DryRun": object_of(
        {
            "dry_run": {"const": True},
            "action": TEXT,
            "object": TEXT,
            "reason": MAYBE_TEXT,
            "present": {"description": "how it stands now, as reading it shows it"},
        },
        "What a change would do: it has been checked, and nothing was written.",
    ),
    **instances.SCHEMAS,
    **approvals.SCHEMAS,
    **workflows.SCHEMAS,
    **oversight.SCHEMAS,
    **usage.SCHEMAS,
    **keys.SCHEMAS,
    **webhooks.SCHEMAS,
}
