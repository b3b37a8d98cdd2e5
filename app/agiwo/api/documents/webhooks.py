"""Webhooks, deliveries, and what comes in by a hook, as the document describes them.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agiwo.api.documents.terms import ACTIONS, LINKS, MAYBE_TEXT, MAYBE_TIME, TEXT, TIME, UUID, Schema, object_of, page_of, ref

_WEBHOOK = object_of(
    {
        "webhook_id": UUID,
        "url": TEXT,
        "events": {"type": "array", "items": TEXT},
        "workflow": MAYBE_TEXT,
        "description": MAYBE_TEXT,
        "header_names": {"type": "array", "items": TEXT},
        "include": {"type": "array", "items": {"const": "output"}},
        "active": {"type": "boolean"},
        "disabled_reason": MAYBE_TEXT,
        "secrets": {"type": "array", "items": object_of({"since": TIME, "until": MAYBE_TIME}, "A secret that signs at present.")},
        "created_at": TIME,
        "created_by": MAYBE_TEXT,
        "updated_at": TIME,
        "actions": ACTIONS,
        "links": LINKS,
    },
    "Where events are sent, without its secrets.",
)
_DELIVERY = object_of(
    {
        "delivery_id": UUID,
        "kind": {"type": "string", "description": "`webhook`, `callback` or `notice`"},
        "target": TEXT,
        "type": {"type": "string", "description": "of the event"},
        "instance_id": {"type": ["string", "null"], "format": "uuid"},
        "seq": {"type": "integer", "description": "number of the record that it tells of"},
        "state": {"enum": ["pending", "delivered", "dead"]},
        "tries": {"type": "integer", "minimum": 0},
        "last_status": {"type": ["integer", "null"]},
        "last_error": MAYBE_TEXT,
        "created_at": TIME,
        "next_try_at": MAYBE_TIME,
        "settled_at": MAYBE_TIME,
        "event": {"description": "what is or was sent"},
        "actions": ACTIONS,
    },
    "One event for one webhook. Its id is the `webhook-id` that the receiver sees.",
)

SCHEMAS: Mapping[str, Schema] = {
    "Webhook": _WEBHOOK,
    "NewWebhook": {
        "allOf": [ref("Webhook")],
        "description": "A webhook with a new secret; `secret` is shown this once and null when the same call is answered again.",
        "required": ["secret"],
        "properties": {"secret": MAYBE_TEXT},
    },
    "WebhookPage": page_of("Webhook"),
    "CallbackSecret": object_of({"secret": MAYBE_TEXT}, "It signs what goes to a `callback_url`; null when the call is repeated."),
    "Posted": object_of({"delivery_id": UUID, "links": LINKS}, "What is on its way."),
    "Delivery": _DELIVERY,
    "DeliveryPage": page_of("Delivery"),
    "HookTaken": {
        "description": "What a message has started, or to which instances it went as a signal.",
        "anyOf": [
            object_of({"instance_id": UUID, "workflow_id": TEXT, "version": TEXT, "links": LINKS}),
            object_of(
                {
                    "signal_id": TEXT,
                    "event": TEXT,
                    "instances": {
                        "type": "array",
                        "items": object_of({"instance_id": UUID, "result": {"enum": ["accepted", "ended", "full"]}}),
                    },
                }
            ),
        ],
    },
}
