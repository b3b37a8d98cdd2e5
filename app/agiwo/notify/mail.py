"""Messages by mail, over the same connection and code as the mail tool.

A message that cannot be delivered is an error for whoever delivers; it must not touch the matter that it tells of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.clock import Clock
from agiwo.notify.message import message_of
from agiwo.outbound.connections import Connections
from agiwo.outbound.mail import Mail, message_id, send_mail


class MailNotifier:
    """The mail channel: sends over the connection of that name."""

    def __init__(self, connections: Connections, clock: Clock, connection: str = "mail") -> None:
        self._connections = connections
        self._clock = clock
        self._connection = connection

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        """Send one mail: `target` are the recipients' addresses, separated by line ends; `body` has `subject`, `text` and `key`.

        Raises StepError if the server did not take it, or did not say so; ValidationError if the body says too little.
        """
        spec = self._connections.get(self._connection, "smtp")
        message = message_of(body)
        mail = Mail(tuple(target.split("\n")), message.subject, message.text, message_id(spec, message.key), trace_id=message.trace_id)
        await send_mail(spec, mail, self._clock.now())
