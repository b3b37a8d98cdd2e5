"""What calls of models used and cost, as the document describes them.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agiwo.api.documents.terms import COUNT, MAYBE_COUNT, MAYBE_TEXT, TEXT, TIME, Schema, object_of

_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_TOTALS: Mapping[str, Schema] = {
    "calls": COUNT,
    "failed": COUNT,
    **dict.fromkeys(_TOKENS, COUNT),
    "cost_micro_usd": {**MAYBE_COUNT, "description": "millionths of a dollar, as far as prices are known; null if none is"},
    "unpriced": {**COUNT, "description": "calls whose cost is not known"},
}
_USAGE = object_of(
    {
        "path": TEXT,
        "attempt": COUNT,
        "number": COUNT,
        "at": TIME,
        "purpose": {"type": "string", "description": "main, repair, raised or fallback"},
        "profile": TEXT,
        "kind": TEXT,
        "model_asked": TEXT,
        "model_answered": MAYBE_TEXT,
        **dict.fromkeys(_TOKENS, MAYBE_COUNT),
        "cost_micro_usd": {**MAYBE_COUNT, "description": "null where no price is known, never 0 for that"},
        "price_version": MAYBE_TEXT,
        "status": {"type": "string", "description": "`ok`, or the type of the failure"},
        "latency_ms": MAYBE_COUNT,
        "request_id": MAYBE_TEXT,
    },
    "One call of a model.",
)

SCHEMAS: Mapping[str, Schema] = {
    "InstanceUsage": object_of(
        {"items": {"type": "array", "items": _USAGE}, "totals": object_of(_TOTALS), "next_cursor": MAYBE_TEXT},
        "Calls of models, each as it was made; `totals` are of all of them, on every page.",
    ),
    "UsageReport": object_of(
        {
            "since": {"type": "string", "format": "date"},
            "until": {"type": "string", "format": "date"},
            "items": {
                "type": "array",
                "items": object_of({"day": {"type": "string", "format": "date"}, "workflow_id": TEXT, "profile": TEXT, **_TOTALS}),
            },
            "next_cursor": MAYBE_TEXT,
        },
        "Totals by day (UTC), workflow and profile; `since` and `until` are the days that were asked for, both included.",
    ),
}
