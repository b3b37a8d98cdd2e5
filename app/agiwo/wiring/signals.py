"""Lets tools send signals: executors are built before the services that send, so the way is laid first and opened afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from agiwo.errors import Conflict, NotFound, Overloaded, ServiceError, StepError
from agiwo.ports.executor import Circumstances
from agiwo.ports.store import StoreUnavailable
from agiwo.service.callers import OPERATOR, Caller
from agiwo.service.signalling import Signalling

_TYPES: Mapping[type[ServiceError], str] = {NotFound: "NotFound", Conflict: "Conflict", Overloaded: "RateLimited"}


class SignalsFromSteps:
    """A signal that a step sends; `signalling` is set once the services stand."""

    def __init__(self) -> None:
        self.signalling: Signalling | None = None

    async def __call__(
        self, where: Circumstances, path: str, id: str, event: str, payload: Any, instance: str | None, correlation_key: str | None
    ) -> Sequence[Mapping[str, Any]]:
        """Send it; gives each receiver with the result. Raises StepError."""
        if self.signalling is None:
            raise StepError("signals cannot be sent yet", type="Unavailable", not_done=True)
        caller = Caller(where.tenant, f"step:{where.instance_id}/{path}", frozenset({OPERATOR}))
        target = None if instance is None else UUID(instance)
        try:
            sent = await self.signalling.send(
                caller, event=event, payload=payload, instance=target, correlation_key=correlation_key, id=id, channel="step"
            )
        except ServiceError as exc:
            raise StepError(exc.message, type=_TYPES.get(type(exc), "ValidationError"), not_done=True) from None
        except StoreUnavailable as exc:
            raise StepError(f"the storage does not answer: {exc}", type="Unavailable") from None
        return [{"instance_id": str(receipt.instance), "result": receipt.result} for receipt in sent.receipts]
