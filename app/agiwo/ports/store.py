"""The store of instances: one fenced write a decision, claims, the inbox, and what nodes say of themselves.

Every method that changes an instance is conditional on owner, epoch and sequence; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

NOTHING_BUSY: Mapping[str, int] = MappingProxyType({})


class WriteKind(StrEnum):
    NEW = "new"  # first write: hot and cold row, history; the node owns it from the start
    STEP = "step"  # history and fence
    PARK = "park"  # as step, and the node lets go: due_at says when somebody has to look again
    END = "end"  # as step, the hot row goes, the cold row gets its end


@dataclass(frozen=True, slots=True)
class NewInstance:
    """What the cold row and the trigger's promise need. `request_digest` tells a repeated trigger from another one under the same key."""

    workflow: str
    version: str
    content_hash: str
    trace_id: str
    starter: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    correlation_key: str | None = None
    priority: int = 1
    idempotency_key: str | None = None
    request_digest: str | None = None
    key_expires_at: float | None = None
    callback_url: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A question to people, as it is listed and shown. Times in seconds since 1970."""

    id: UUID
    path: str
    step: str
    digest: str
    title: str
    body: Mapping[str, Any]
    approvers: tuple[str, ...]
    asked_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class ApprovalClose:
    id: UUID
    state: str


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """Something to be delivered at least once, in order of an instance and target; `kind` names who delivers it (`notice`).

    `seq` is the record that it tells of; without one its place is that of the write.
    """

    id: UUID
    kind: str
    target: str
    body: Mapping[str, Any]
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One call of a model, as the ledger keeps it; nothing in it changes later.

    `number` counts the calls of an attempt from 1. `at` in seconds since 1970, tokens None where the endpoint did not say, `cost_micro_usd`
    None where no price is known; `status` is `ok` or the type of the failure; `latency_ms` None where nobody measured.
    """

    path: str
    attempt: int
    number: int
    workflow: str
    at: float
    purpose: str
    profile: str
    kind: str
    model_asked: str
    model_answered: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    cost_micro_usd: int | None
    price_version: str | None
    status: str
    latency_ms: int | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Write:
    """All that one instance wants written in one commit.

    `records` is the JSON text of an array of records numbered prev_seq + 1 to seq. `due_at` (seconds since 1970, None for
    never) only with PARK. `inbox_done` are the inbox rows consumed. With `guard_inbox` the write is refused if the inbox has
    moved past `inbox_seen`: a park must not miss a signal, an expiry must not overtake a decision. `snapshot` is the state
    after `seq` as JSON text.
    """

    kind: WriteKind
    id: UUID
    tenant: str
    epoch: int
    prev_seq: int
    seq: int
    records: str
    at: float
    status: str
    due_at: float | None = None
    new: NewInstance | None = None
    snapshot: str | None = None
    inbox_seen: int = 0
    guard_inbox: bool = False
    inbox_done: tuple[UUID, ...] = ()
    approvals: tuple[ApprovalRow, ...] = ()
    closed: tuple[ApprovalClose, ...] = ()
    outbox: tuple[OutboxRow, ...] = ()
    usage: tuple[UsageRow, ...] = ()
    error: Mapping[str, Any] | None = None
    waiting_for: str | None = None


class Answer(StrEnum):
    APPLIED = "applied"
    FENCED = "fenced"  # somebody else owns it, or has written: forget it
    INBOX_MOVED = "inbox_moved"  # read the inbox first
    DUPLICATE = "duplicate"  # a trigger with this key was already taken
    HELD_BACK = "held_back"  # nothing new is started of this workflow (`message`: paused) or version (deleted)
    REFUSED = "refused"  # the database cannot hold this data


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one write.

    `existing` and `existing_digest` say which instance a duplicate trigger has started, `message` why it was refused.
    """

    answer: Answer
    existing: UUID | None = None
    existing_digest: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """An instance that this node owns now; its state is the snapshot with the records after it.

    `deaths` counts the nodes that died one after the other while they owned it. It begins anew with one that wrote more than once, so got
    beyond what it had taken up, and after one that let go by itself.
    """

    id: UUID
    tenant: str
    workflow: str
    version: str
    epoch: int
    seq: int
    inbox_seq: int
    deaths: int
    snapshot: str | None
    records: tuple[str, ...]  # JSON arrays, in order, after the snapshot
    correlation_key: str | None = None
    callback_url: str | None = None


@dataclass(frozen=True, slots=True)
class InboxItem:
    """Something from outside for an instance: kind is decision, cancel, outcome (of an UNKNOWN step), …"""

    id: UUID
    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Inbox:
    seq: int
    items: tuple[InboxItem, ...]


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """A claimed delivery; `tries` counts this one."""

    id: UUID
    tenant: str
    instance: UUID | None
    kind: str
    target: str
    body: Mapping[str, Any]
    tries: int


class StoreUnavailable(Exception):
    """The database could not be reached, or went away and its answer is unknown; try again later."""


class InstanceStore(Protocol):
    """The engine's side of the storage. Every method raises StoreUnavailable when the database cannot answer."""

    async def write(self, batch: Sequence[Write]) -> list[Verdict]:
        """Commit all writes of the batch at once, at most one an instance; one verdict each, in order.

        After a lost connection the store sends the same batch again and reads the rows before it calls a write lost (ARCHITECTURE 4.10).
        A batch that the database refuses for its data is halved until the culprit stands alone (REFUSED).
        """
        ...

    async def claim(self, limit: int, shards: Collection[int] | None = None, overdue: float = 0.0) -> list[Claimed]:
        """Take up to `limit` instances that are due and owned by nobody; a node that is not alive takes none.

        With `shards`, only of those, and of others what has been due for `overdue` seconds.
        """
        ...

    async def inbox(self, ids: Sequence[UUID]) -> dict[UUID, Inbox]:
        """The waiting items of instances that this node owns, oldest first, and each inbox's number."""
        ...

    async def moved(self) -> list[UUID]:
        """Owned instances whose inbox holds something."""
        ...

    async def owned(self) -> list[UUID]:
        """All that this node owns by the database's word, for the orphan sweep."""
        ...

    async def release(self, ids: Sequence[UUID]) -> None:
        """Let go of instances that this node does not hold in memory; they are due at once, with a new epoch."""
        ...

    async def join(self, name: str) -> None:
        """Begin a new incarnation of node `name`: older ones are declared dead and what they own is free at once."""
        ...

    async def beat(self, lease: float) -> bool:
        """Renew the lease by `lease` seconds; False if this incarnation was declared dead. It waits behind nothing else."""
        ...

    async def reap(self) -> None:
        """Declare dead whose lease has run out, free what the dead own, and forget what is over."""
        ...

    async def leave(self) -> None:
        """End this incarnation and free what it owns (drain)."""
        ...

    async def take_outbox(self, limit: int, each: int, busy: Mapping[str, int] = NOTHING_BUSY) -> list[OutboxItem]:
        """Claim deliveries that are due, for this node: of an instance and target only the oldest that is open.

        At most `each` to one target, those counted in that are under way (`busy`, by target).
        """
        ...

    async def release_outbox(self, keep: Collection[UUID] = ()) -> None:
        """Give back all deliveries that this node has taken and not settled, but those in `keep`; they are due as before."""
        ...

    async def delivered(self, id: UUID, status: int | None = None) -> None:
        """A delivery was made; `status` is what the other side answered, where it answers in numbers."""
        ...

    async def not_delivered(self, id: UUID, error: str, retry_at: float | None, status: int | None = None) -> None:
        """Put a delivery off until `retry_at` (and what waits behind it), or give it up (None): it stays visible as dead."""
        ...

    async def forget_deliveries(self, made: float, dead: float, limit: int) -> int:
        """Delete up to `limit` deliveries that were made more than `made` seconds ago, or given up more than `dead` seconds ago.

        Gives how many went.
        """
        ...

    async def next_due(self) -> float | None:
        """When the next unowned instance is due (seconds since 1970), for pacing the poll; None if none."""
        ...
