"""Notices to one address of the operator's, as a POST of JSON: for whatever has no channel of its own.

The address is a secret and allowed by name; no redirect is followed, and nothing of the answer but its status counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.errors import StepError
from agiwo.notify.message import message_of
from agiwo.outbound.guard import Guard
from agiwo.outbound.http import HttpCalls, for_status
from agiwo.values import encode

WITHIN = 30.0
_MAX_ANSWER = 100_000


class WebhookNotifier:
    """A channel that posts `{subject, text, key, trace_id}`; raises StepError if its URL cannot be used."""

    def __init__(self, url: str, guard: Guard) -> None:
        self._url = url
        self._calls = HttpCalls(guard.allowing(url))

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        """Post one message; `target` is not asked. Raises StepError by the status, and for the network."""
        message = message_of(body)
        sent = {"subject": message.subject, "text": message.text, "key": message.key, "trace_id": message.trace_id}
        try:
            answer = await self._calls.call(
                "POST", self._url, within=WITHIN, headers={"content-type": "application/json", "user-agent": "agiwo"},
                body=encode(sent).encode(), idempotency_key=message.key, max_body=_MAX_ANSWER,
            )  # fmt: skip
        except StepError as exc:
            if exc.type == "PayloadTooLarge":  # it was told; what it answers is of no interest
                return
            raise
        if answer.status >= 400:
            raise for_status(answer.status)
        if answer.status >= 300:
            raise StepError(f"the channel answered {answer.status}: redirects are not followed", status=answer.status)

    async def close(self) -> None:
        await self._calls.close()
