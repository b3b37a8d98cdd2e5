"""What is told over a channel, as all channels read it from the body of a notice.

It knows no channel, and must not know what a message is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.errors import ValidationError


@dataclass(frozen=True, slots=True)
class Message:
    """`key` is the same whenever the same message is sent again; the subject is one line."""

    subject: str
    text: str
    key: str
    trace_id: str | None = None


def message_of(body: Mapping[str, Any]) -> Message:
    """Raises ValidationError if the body says too little."""
    missing = [name for name in ("subject", "text", "key") if not isinstance(body.get(name), str)]
    if missing:
        raise ValidationError(f"the notice lacks {', '.join(missing)}", not_done=True)
    # A subject may quote what people wrote; in a notice a line end in it is no attack worth failing for.
    return Message(" ".join(body["subject"].split())[:200], body["text"], body["key"], body.get("trace_id"))
