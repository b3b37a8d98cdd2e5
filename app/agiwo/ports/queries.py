"""The read side of the storage: what people and programs are shown, always of one tenant.

Nothing here changes anything, and every list is a keyset page in one fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from agiwo.ports.usage import UsageQueries


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """An instance as it is listed. Times in seconds since 1970."""

    id: UUID
    workflow: str
    version: str
    status: str
    trace_id: str
    starter: str | None
    labels: Mapping[str, str]
    correlation_key: str | None
    priority: int
    started_at: float
    ended_at: float | None
    error: Mapping[str, Any] | None
    waiting_for: str | None
    callback_url: str | None = None


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """What a list of instances is narrowed to.

    `labels` must all be there; `error` is an error's type; `since` and `until` bound the start, in seconds since 1970, `until` excluded.
    """

    status: str | None = None
    workflow: str | None = None
    correlation_key: str | None = None
    labels: Mapping[str, str] | None = None
    version: str | None = None
    trace_id: str | None = None
    starter: str | None = None
    error: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class InstancePage:
    """`next` is where the next page begins, None after the last; a page may be short of rows and still have a next one."""

    rows: list[InstanceRow]
    next: UUID | None


@dataclass(frozen=True, slots=True)
class StoredState:
    """What an instance is made of: a snapshot (JSON text) and the JSON arrays of the records after it, all of one moment."""

    row: InstanceRow
    snapshot: str | None
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Approval:
    """A question to people with what became of it; `body` is what the machine wrote when it asked. Times in seconds since 1970."""

    id: UUID
    instance: UUID
    workflow: str
    path: str
    step: str
    state: str
    digest: str
    title: str
    body: Mapping[str, Any]
    approvers: tuple[str, ...]
    asked_at: float
    expires_at: float
    decided_by: str | None = None
    decided_at: float | None = None
    channel: str | None = None
    comment: str | None = None
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A call that started nothing, and why. `at` in seconds since 1970."""

    id: UUID
    at: float
    workflow: str
    version: str | None
    actor: str | None
    trace_id: str | None
    code: str
    problems: Any


class Queries(UsageQueries, Protocol):
    """All reads are bound to a tenant in the query itself. Every method raises StoreUnavailable when the database cannot answer."""

    async def instance(self, tenant: str, id: UUID) -> InstanceRow | None: ...

    async def instances(self, tenant: str, wanted: InstanceFilter, before: UUID | None, limit: int) -> InstancePage:
        """Newest first, those with an id below `before`; a page looks at a bounded number of rows, whatever is asked for."""
        ...

    async def live_with(self, tenant: str, correlation_key: str, limit: int) -> list[UUID]:
        """The live instances that were started with this key, oldest first."""
        ...

    async def state(self, tenant: str, id: UUID) -> StoredState | None: ...

    async def history(self, tenant: str, id: UUID, after: int, limit: int) -> list[Mapping[str, Any]] | None:
        """The records numbered above `after`, at most `limit` of them; None if there is no such instance."""
        ...

    async def approval(self, tenant: str, id: UUID) -> Approval | None: ...

    async def approvals(
        self, tenant: str, state: str | None, assignee: str | None, instance: UUID | None, before: UUID | None, limit: int
    ) -> list[Approval]:
        """Newest first; `assignee` is a principal that must be among the approvers."""
        ...

    async def rejected(self, tenant: str, workflow: str | None, before: UUID | None, limit: int) -> list[RejectedRow]:
        """Newest first."""
        ...

    async def ready(self) -> bool:
        """Whether the database answers and has the schema that this release needs."""
        ...
