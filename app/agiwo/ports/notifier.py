"""Delivering what stands in the outbox, by kind: a notice to a person, an event to a webhook.

It says how a delivery ends; when it is tried again is the engine's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agiwo.errors import StepError


class Undeliverable(StepError):
    """No further try can succeed: the delivery is given up at once."""


class Notifier(Protocol):
    """Delivers outbox rows of a kind.

    Gives the status that the other side answered, where it answers in numbers. Raises agiwo.errors.StepError if it could not be done now
    (`retry_after` in seconds is a floor for the next try), Undeliverable if it never can.
    """

    async def deliver(self, target: str, body: Mapping[str, Any]) -> int | None: ...
