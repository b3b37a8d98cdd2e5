"""API keys, as the document describes them.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agiwo.api.documents.terms import ACTIONS, LINKS, MAYBE_TEXT, MAYBE_TIME, TEXT, TIME, UUID, Schema, object_of, page_of, ref

_KEY = object_of(
    {
        "key_id": UUID,
        "name": TEXT,
        "principal": TEXT,
        "roles": {"type": "array", "items": TEXT},
        "status": {"enum": ["active", "expired", "revoked"]},
        "created_at": TIME,
        "created_by": TEXT,
        "expires_at": MAYBE_TIME,
        "revoked_at": MAYBE_TIME,
        "last_used_at": MAYBE_TIME,
        "actions": ACTIONS,
        "links": LINKS,
    },
    "An API key, without its text.",
)

SCHEMAS: Mapping[str, Schema] = {
    "Key": _KEY,
    "NewKey": {
        "allOf": [ref("Key")],
        "description": "A new key; `key` is its text, shown this once and null when the same call is answered again.",
        "required": ["key"],
        "properties": {"key": MAYBE_TEXT},
    },
    "KeyPage": page_of("Key"),
}
