"""A mail server that kills the service in the middle of handing over a report; notices of approvals pass unharmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from agiwo.testing.smtp import LoopbackMail
from kit.chaos import REVIEWER

RECIPIENT, DATA, KEPT = "at its recipient", "at its data, which is lost", "when it is kept, before the answer"


class KillingMail(LoopbackMail):
    """Calls `kill` once, at the moment `at`. While `closed` is set, reports are not answered until `open` is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "mail")
        self.at: str | None = None
        self.kill: Callable[[], None] = lambda: None
        self.open = asyncio.Event()
        self.open.set()
        self.handed_over = 0

    def _reached(self, moment: str, recipients: list[str]) -> bool:
        if self.at != moment or recipients == [REVIEWER]:
            return False
        self.at = None
        self.kill()
        return True

    async def handle_RCPT(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802
        self._reached(RECIPIENT, [address])
        return await super().handle_RCPT(server, session, envelope, address, options)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if envelope.rcpt_tos != [REVIEWER]:
            self.handed_over += 1
            await self.open.wait()
        if self._reached(DATA, envelope.rcpt_tos):
            return "451 nobody is there to hear this"
        answer = await super().handle_DATA(server, session, envelope)
        self._reached(KEPT, envelope.rcpt_tos)
        return answer
