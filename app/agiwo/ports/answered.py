"""What calls under an `Idempotency-Key` were answered with, kept so that a repetition gets the same answer on every node.

A key is held by one call at a time, for a short lease that its process renews; it knows nothing of what a call does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class CallKey:
    """A key as one principal of one tenant uses it."""

    tenant: str
    principal: str
    key: str


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer as it was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands under a key: the digest of its call, and its answer (None while it runs)."""

    digest: str
    answer: KeptAnswer | None = None


class AnsweredCalls(Protocol):
    """The keys of calls. All methods raise StoreUnavailable."""

    async def hold(self, key: CallKey, digest: str, claim: UUID, lease: float) -> Standing | None:
        """Take a free key for the call `claim`, for `lease` seconds; None if that worked, else what stands there.

        A key is free if nothing stands under it or its time is over: the lease of a call whose process has died, or that of an answer.
        """
        ...

    async def renew(self, key: CallKey, claim: UUID, lease: float) -> None:
        """Hold the key for `lease` seconds from now, if the claim still holds it."""
        ...

    async def keep(self, key: CallKey, claim: UUID, answer: KeptAnswer, seconds: float) -> None:
        """Let the answer stand under the key for so many seconds, if the claim still holds it."""
        ...

    async def free(self, key: CallKey, claim: UUID) -> None:
        """Give the key back as if the call had not been made, if the claim still holds it."""
        ...
