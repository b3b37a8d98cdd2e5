"""Sending a notice to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Notifier(Protocol):
    """Delivers one outbox row of kind `notice`; raises agiwo.errors.StepError if it could not."""

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None: ...
