"""The ledger of calls of models as people and programs read it: what one instance used, and what a tenant used by day.

Nothing here changes anything; rows are written with the records that they tell of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from agiwo.ports.store import UsageRow


class UsagePlace(NamedTuple):
    """Where a row stands in an instance's ledger; the order of the list."""

    at: float
    path: str
    attempt: int
    number: int


class UsageGroup(NamedTuple):
    """What a line of totals is about; the order of the list. `day` is a date in UTC, as 2026-11-30."""

    day: str
    workflow: str
    profile: str


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Sums over calls; `cost_micro_usd` sums what is known (None if nothing is), `unpriced` counts the calls that it leaves out."""

    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micro_usd: int | None = None
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Calls from `since` (included) to `until` (not included), in seconds since 1970, of a workflow, of a profile."""

    since: float
    until: float
    workflow: str | None = None
    profile: str | None = None


class UsageQueries(Protocol):
    """Reads bound to a tenant in the query itself. Every method raises StoreUnavailable when the database cannot answer."""

    async def usage(self, tenant: str, id: UUID, after: UsagePlace | None, limit: int) -> list[UsageRow]:
        """The calls of an instance as they were made, those after a place."""
        ...

    async def usage_totals(self, tenant: str, id: UUID) -> UsageTotals:
        """What an instance has used in all."""
        ...

    async def usage_by_day(
        self, tenant: str, wanted: UsageFilter, after: UsageGroup | None, limit: int
    ) -> list[tuple[UsageGroup, UsageTotals]]:
        """Totals by day, workflow and profile, the oldest day first."""
        ...
