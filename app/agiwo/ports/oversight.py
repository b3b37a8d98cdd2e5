"""What an operator asks of the storage as a whole: nodes, queues, who did what, and whether its promises hold.

Every answer is bounded, however large the tables are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from agiwo.ports.queries import InstanceFilter


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One incarnation of a node; times in seconds since 1970, `lease_left` in seconds by the database's clock."""

    id: int
    name: str
    started_at: float
    lease_until: float
    lease_left: float
    state: str
    instances: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """What lies about, each number capped at `MOST_COUNTED`; `oldest_ready` is how long the oldest ready one has waited, in seconds."""

    ready: int
    oldest_ready: float | None
    timed: int
    waiting: int
    approvals: int


@dataclass(frozen=True, slots=True)
class AuditFilter:
    actor: str | None = None
    action: str | None = None
    object: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change: `at` in seconds since 1970."""

    id: UUID
    at: float
    actor: str
    action: str
    object: str
    data: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """`next` is where the next page begins; a page may be short of rows and still have a next one."""

    rows: tuple[AuditRow, ...]
    next: UUID | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over at most `counted` of the newest instances that fit; seconds of the ended ones. `more`: there are older ones."""

    counted: int
    more: bool
    by_status: Mapping[str, int]
    by_workflow: Mapping[str, int]
    by_error: Mapping[str, int]
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise, whether anything breaks it, and some of the tenant's instances that do."""

    name: str
    broken: bool
    ids: tuple[UUID, ...]


MOST_COUNTED = 10_000


class Oversight(Protocol):
    """The reads; tenant-bound where a tenant is named. All raise StoreUnavailable."""

    async def nodes(self, limit: int) -> list[NodeRow]: ...

    async def queues(self, tenant: str) -> QueueCounts: ...

    async def audit(self, tenant: str, wanted: AuditFilter, before: UUID | None, limit: int) -> AuditPage:
        """Newest first."""
        ...

    async def summary(self, tenant: str, wanted: InstanceFilter) -> Summary: ...

    async def violations(self, tenant: str, limit: int) -> list[Violation]:
        """Every promise that was looked at, with at most `limit` ids that break it."""
        ...
