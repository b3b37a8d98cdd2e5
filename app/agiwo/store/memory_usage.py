"""The ledger of calls of models read from memory, beside `MemoryStore` and on the same database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from agiwo.clock import rfc3339
from agiwo.engine.usage import OK
from agiwo.ports.store import UsageRow
from agiwo.ports.usage import UsageFilter, UsageGroup, UsagePlace, UsageTotals
from agiwo.store.memory import MemoryDatabase


class MemoryUsage:
    """UsageQueries on a MemoryDatabase."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def usage(self, tenant: str, id: UUID, after: UsagePlace | None, limit: int) -> list[UsageRow]:
        rows = sorted(self._of(tenant, id), key=_place)
        return [row for row in rows if after is None or _place(row) > after][:limit]

    async def usage_totals(self, tenant: str, id: UUID) -> UsageTotals:
        return _totals(self._of(tenant, id))

    async def usage_by_day(
        self, tenant: str, wanted: UsageFilter, after: UsageGroup | None, limit: int
    ) -> list[tuple[UsageGroup, UsageTotals]]:
        groups: dict[UsageGroup, list[UsageRow]] = {}
        for owner, row in self._db.usage.values():
            fits = wanted.workflow in (None, row.workflow) and wanted.profile in (None, row.profile)
            if owner == tenant and fits and wanted.since <= row.at < wanted.until:
                groups.setdefault(UsageGroup(rfc3339(row.at)[:10], row.workflow, row.profile), []).append(row)
        found = sorted(group for group in groups if after is None or group > after)
        return [(group, _totals(groups[group])) for group in found[:limit]]

    def _of(self, tenant: str, id: UUID) -> Iterator[UsageRow]:
        return (row for (instance, *_), (owner, row) in self._db.usage.items() if instance == id and owner == tenant)


def _place(row: UsageRow) -> UsagePlace:
    return UsagePlace(row.at, row.path, row.attempt, row.number)


def _totals(rows: Iterable[UsageRow]) -> UsageTotals:
    seen = list(rows)
    costs = [row.cost_micro_usd for row in seen if row.cost_micro_usd is not None]
    return UsageTotals(
        calls=len(seen),
        failed=sum(row.status != OK for row in seen),
        input_tokens=sum(row.input_tokens or 0 for row in seen),
        output_tokens=sum(row.output_tokens or 0 for row in seen),
        cache_read_tokens=sum(row.cache_read_tokens or 0 for row in seen),
        cache_write_tokens=sum(row.cache_write_tokens or 0 for row in seen),
        reasoning_tokens=sum(row.reasoning_tokens or 0 for row in seen),
        cost_micro_usd=sum(costs) if costs else None,
        unpriced=len(seen) - len(costs),
    )
