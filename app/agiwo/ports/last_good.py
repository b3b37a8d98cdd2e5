"""The last good results of tools, which a step may fall back to. Nothing depends on them: what cannot be kept or found is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agiwo.values import JSON


@dataclass(frozen=True, slots=True)
class CallDigest:
    """A call as results are kept for it: the tenant, the tool, and the digest of its arguments."""

    tenant: str
    tool: str
    digest: str


@dataclass(frozen=True, slots=True)
class GoodResult:
    """What a call gave, and when (seconds since 1970)."""

    result: JSON
    at: float


class LastGood(Protocol):
    """The last good result of each call. All methods raise StoreUnavailable."""

    async def keep(self, call: CallDigest, good: GoodResult, seconds: float) -> None:
        """Keep the result for at least so many seconds from `good.at`; an older one than what is kept changes nothing."""
        ...

    async def find(self, call: CallDigest, since: float) -> GoodResult | None:
        """The result, if it is not older than `since` (seconds since 1970)."""
        ...
