"""Notices to chats and phones: the services that a notification library knows, each by a URL that is the operator's secret.

A URL must not appear in an error; the library says only whether a message was taken, so a failure proves nothing.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from typing import Any

from agiwo.errors import StepError
from agiwo.notify.message import message_of

WITHIN = 30.0


class ChatNotifier:
    """A channel over one or more URLs as apprise takes them (`slack://…`, `msteams://…`, `json://…`), separated by spaces.

    Raises ValueError if the library is not there or takes none of them; the message does not repeat them.
    """

    def __init__(self, urls: str) -> None:
        # The library loads a hundred services, some by old modules of Python, of which nobody here can do anything.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                import apprise  # noqa: PLC0415 - an optional extra, and a heavy one
            except ImportError:
                raise ValueError("a channel of kind `apprise` needs the extra `notify`: install agiwo-orchestrator[notify]") from None
            self._service = apprise.Apprise()
            for number, url in enumerate(urls.split(), 1):
                if not self._service.add(url):
                    raise ValueError(f"its URL number {number} is none that the notification library takes")
        if not len(self._service):
            raise ValueError("it has no URL")

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        """Send to all URLs; `target` is not asked. Raises StepError if one of them did not take it, or not in WITHIN seconds."""
        message = message_of(body)
        try:
            async with asyncio.timeout(WITHIN):
                taken = await self._service.async_notify(body=message.text, title=message.subject)
        except TimeoutError:
            raise StepError(f"the channel took no message within {WITHIN:g} s", type="Timeout") from None
        if not taken:
            raise StepError("the channel did not take the message", type="Unavailable")
