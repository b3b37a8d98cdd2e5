"""Reading the ledger of calls of models: of one instance call by call, of a tenant by day.

Everybody who may look at instances may look at what they used; nothing is changed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from agiwo.clock import Clock
from agiwo.errors import InvalidInput, Problem
from agiwo.ports.queries import Queries
from agiwo.ports.store import UsageRow
from agiwo.ports.usage import UsageFilter, UsageGroup, UsagePlace, UsageTotals
from agiwo.service.callers import Caller
from agiwo.service.instances import not_found
from agiwo.service.view import time_text

#: Days that one question may span, and that it spans where it names no beginning.
MOST_DAYS = 366
USUAL_DAYS = 30


@dataclass(frozen=True, slots=True)
class InstanceUsage:
    """A page of an instance's calls with the totals of all of them; `next` is where the next page begins, None after the last."""

    items: list[dict[str, Any]]
    totals: dict[str, Any]
    next: UsagePlace | None


@dataclass(frozen=True, slots=True)
class UsageReport:
    """A page of totals by day, workflow and profile, and the days that it spans."""

    since: str
    until: str
    items: list[dict[str, Any]]
    next: UsageGroup | None


class UsageReading:
    """The reads on the ledger."""

    def __init__(self, queries: Queries, clock: Clock) -> None:
        self._queries = queries
        self._clock = clock

    async def of_instance(self, caller: Caller, id: UUID, after: UsagePlace | None, limit: int) -> InstanceUsage:
        """The calls of one instance as they were made. Raises NotFound."""
        if await self._queries.instance(caller.tenant, id) is None:
            raise not_found()
        rows = await self._queries.usage(caller.tenant, id, after, limit + 1)
        totals = await self._queries.usage_totals(caller.tenant, id)
        last = rows[limit - 1] if len(rows) > limit else None
        place = None if last is None else UsagePlace(last.at, last.path, last.attempt, last.number)
        return InstanceUsage([_call(row) for row in rows[:limit]], _totals(totals), place)

    async def by_day(
        self,
        caller: Caller,
        since: date | None,
        until: date | None,
        *,
        workflow: str | None = None,
        profile: str | None = None,
        after: UsageGroup | None = None,
        limit: int = 100,
    ) -> UsageReport:
        """Totals from the day `since` to the day `until`, both included; the last thirty days unless told. Raises InvalidInput."""
        last = until or datetime.fromtimestamp(self._clock.now(), UTC).date()
        first = since or max(date.min, last - timedelta(days=min(USUAL_DAYS - 1, last.toordinal() - 1)))
        days = (last - first).days + 1
        if not 1 <= days <= MOST_DAYS or last == date.max or first.year < 1970:
            expected = f"`since` not after `until`, at most {MOST_DAYS} days, from 1970-01-01 on"
            problem = Problem("wrong_value", f"expected {expected}", "?since", found=f"{first} to {last}", expected=expected)
            raise InvalidInput(f"the days do not fit: expected {expected}", code="invalid_parameters", problems=(problem,))
        wanted = UsageFilter(_seconds(first), _seconds(last + timedelta(days=1)), workflow, profile)
        found = await self._queries.usage_by_day(caller.tenant, wanted, after, limit + 1)
        items = [
            {"day": group.day, "workflow_id": group.workflow, "profile": group.profile, **_totals(totals)}
            for group, totals in found[:limit]
        ]
        return UsageReport(str(first), str(last), items, found[limit - 1][0] if len(found) > limit else None)


def _seconds(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _call(row: UsageRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in UsageRow.__dataclass_fields__ if name != "workflow"} | {"at": time_text(row.at)}


def _totals(totals: UsageTotals) -> dict[str, Any]:
    return {name: getattr(totals, name) for name in UsageTotals.__dataclass_fields__}
