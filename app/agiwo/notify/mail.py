"""Notices by mail, over the same connection and code as the mail tool.

A notice that cannot be delivered is an error for whoever delivers; it must not touch the matter that it tells of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.clock import Clock
from agiwo.errors import ValidationError
from agiwo.outbound.connections import Connections
from agiwo.outbound.mail import Mail, message_id, send_mail


@dataclass(frozen=True, slots=True)
class Notice:
    """What a person is told: `key` is the same whenever the same notice is sent again; `text` holds the link."""

    recipient: str
    subject: str
    text: str
    key: str
    trace_id: str | None = None


class MailNotifier:
    """The mail channel: sends notices over the connection of that name."""

    def __init__(self, connections: Connections, clock: Clock, connection: str = "mail") -> None:
        self._connections = connections
        self._clock = clock
        self._connection = connection

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        """Send an outbox row: `target` is the recipient's address, `body` has `subject`, `text` and `key`.

        Raises StepError if it could not be delivered, ValidationError if the row says too little.
        """
        missing = [name for name in ("subject", "text", "key") if not isinstance(body.get(name), str)]
        if missing:
            raise ValidationError(f"the notice lacks {', '.join(missing)}", not_done=True)
        await self.send(Notice(target, body["subject"], body["text"], body["key"], body.get("trace_id")))

    async def send(self, notice: Notice) -> None:
        """Send a notice; raises StepError if the server did not take it, or did not say so."""
        spec = self._connections.get(self._connection, "smtp")
        # A subject may quote what people wrote; in a notice a line end in it is no attack worth failing for.
        subject = " ".join(notice.subject.split())[:200]
        mail = Mail((notice.recipient,), subject, notice.text, message_id(spec, notice.key), trace_id=notice.trace_id)
        await send_mail(spec, mail, self._clock.now())
