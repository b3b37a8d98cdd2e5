"""The storage in memory: for tests, rehearsals and the library without a database; the same rules, kept by the same contract suite.

Nothing outlives the process, and nothing here awaits, so every method is one transaction.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Any
from uuid import UUID, uuid4

from agiwo.clock import Clock, SystemClock
from agiwo.errors import ValueRefused
from agiwo.ids import shard_of
from agiwo.ports.records import Promise, RejectedTrigger, StoredApproval, StoredVersion
from agiwo.ports.store import (
    NOTHING_BUSY,
    Answer,
    Claimed,
    Inbox,
    InboxItem,
    NewInstance,
    OutboxItem,
    OutboxRow,
    StoreUnavailable,
    UsageRow,
    Verdict,
    Write,
    WriteKind,
)
from agiwo.ports.workflows import Draft
from agiwo.store.schema import ENDED_STATES, LIVE_STATES
from agiwo.values import check, decode, encode


@dataclass(slots=True)
class Run:
    """A live instance."""

    tenant: str
    workflow: str
    version: str
    owner: int | None
    epoch: int
    seq: int
    due_at: float
    inbox_seq: int = 0
    deaths: int = 0


@dataclass(slots=True)
class Row:
    """What lists show of an instance."""

    tenant: str
    new: NewInstance
    status: str
    created_at: float
    waiting_for: str | None = None
    error: Any = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """One write in the history."""

    seq: int
    first_seq: int
    epoch: int
    node: int
    at: float
    records: str


@dataclass(slots=True)
class Letter:
    """An inbox item; `owner` held the instance when it came."""

    item: InboxItem
    dedup: str | None
    owner: int | None
    taken: bool = False


@dataclass(slots=True)
class Delivery:
    """An outbox row with what became of it."""

    row: OutboxRow
    tenant: str
    instance: UUID | None
    due_at: float
    number: int
    seq: int
    created_at: float
    tries: int = 0
    owner: int | None = None
    state: str = "pending"
    last_error: str | None = None
    last_status: int | None = None
    settled_at: float | None = None


@dataclass(slots=True)
class Node:
    """An incarnation of a node."""

    name: str
    lease_until: float
    state: str = "alive"


@dataclass(frozen=True, slots=True)
class Hold:
    """What holds back new instances of a workflow, or of one version of it."""

    kind: str
    by: str
    since: float
    reason: str | None = None
    content_hash: str | None = None


@dataclass(slots=True)
class MemoryDatabase:
    """All tables; share one between stores to have several nodes on it."""

    runs: dict[UUID, Run] = field(default_factory=dict)
    instances: dict[UUID, Row] = field(default_factory=dict)
    history: dict[UUID, list[Written]] = field(default_factory=dict)
    snapshots: dict[UUID, tuple[int, str]] = field(default_factory=dict)
    inbox: dict[UUID, list[Letter]] = field(default_factory=dict)
    approvals: dict[UUID, StoredApproval] = field(default_factory=dict)
    outbox: dict[UUID, Delivery] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)
    usage: dict[tuple[UUID, str, int, int], tuple[str, UsageRow]] = field(default_factory=dict)
    promises: dict[tuple[str, str], tuple[Promise, float]] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    versions: dict[tuple[str, str, str], StoredVersion] = field(default_factory=dict)
    drafts: dict[tuple[str, str, str], Draft] = field(default_factory=dict)
    holds: dict[tuple[str, str, str], Hold] = field(default_factory=dict)
    rejected: list[tuple[str, float, RejectedTrigger]] = field(default_factory=list)
    journal: list[tuple[str, float, str, str, str, Any]] = field(default_factory=list)

    def alive(self, node: int | None) -> bool:
        return node is not None and node in self.nodes and self.nodes[node].state == "alive"

    def deliver(self, row: OutboxRow, tenant: str, instance: UUID | None, now: float, seq: int = 0) -> None:
        """Put something into the outbox."""
        self.outbox[row.id] = Delivery(row, tenant, instance, now, next(self.numbers), seq, now)

    def wake(self, instance: UUID, now: float, kind: str, body: Any, dedup: str | None) -> None:
        """Put something into the inbox of a live instance."""
        run = self.runs[instance]
        run.inbox_seq += 1
        if run.owner is None:
            run.due_at = min(run.due_at, now)
        self.inbox.setdefault(instance, []).append(Letter(InboxItem(uuid4(), kind, body), dedup, run.owner))


class MemoryStore:
    """An InstanceStore in memory. `lease` is the first lease in seconds; see PostgresStore for `node_incarnation`."""

    def __init__(
        self,
        database: MemoryDatabase | None = None,
        *,
        clock: Clock | None = None,
        node_incarnation: int | None = None,
        lease: float = 10.0,
    ) -> None:
        self.database = database or MemoryDatabase()
        self._clock = clock or SystemClock()
        self._lease = lease
        self._node = secrets.randbits(63) if node_incarnation is None else node_incarnation
        self._joined = False
        self._closed = False

    @property
    def incarnation(self) -> int:
        """The incarnation that owns what is written and claimed now."""
        return self._node

    async def write(self, batch: Sequence[Write]) -> list[Verdict]:
        self._open()
        verdicts = {w.id: self._write(w) for w in sorted(batch, key=lambda w: w.id.int)}
        return [verdicts[w.id] for w in batch]

    def _write(self, w: Write) -> Verdict:
        db = self.database
        if any(h.seq == w.seq and h.epoch == w.epoch and h.node == self._node and h.records == w.records for h in db.history.get(w.id, ())):
            return Verdict(Answer.APPLIED)
        try:
            _check(w)
        except ValueError as exc:
            return Verdict(Answer.REFUSED, message=str(exc))
        if w.new is not None:
            refused = self._begin(w, w.new)
        else:
            run = db.runs.get(w.id)
            fence = (run.owner, run.epoch, run.seq) if run is not None else None
            if w.kind is WriteKind.PARK and w.seq == w.prev_seq and fence == (None, w.epoch, w.seq):
                return Verdict(Answer.APPLIED)
            if run is None or fence != (self._node, w.epoch, w.prev_seq):
                return Verdict(Answer.FENCED)
            refused = Verdict(Answer.INBOX_MOVED) if w.guard_inbox and run.inbox_seq != w.inbox_seen else None
        if refused is not None:
            return refused
        self._apply(w)
        return Verdict(Answer.APPLIED)

    def _begin(self, w: Write, new: NewInstance) -> Verdict | None:
        db = self.database
        if new.idempotency_key is not None:
            found = db.promises.get((w.tenant, new.idempotency_key))
            if found is not None and found[1] > self._clock.now():
                return Verdict(Answer.DUPLICATE, existing=found[0].instance_id, existing_digest=found[0].request_digest)
        if w.id in db.instances:
            return Verdict(Answer.FENCED)
        for version in ("", new.version):
            if (held := db.holds.get((w.tenant, new.workflow, version))) is not None:
                return Verdict(Answer.HELD_BACK, message=held.kind)
        if new.idempotency_key is not None:
            until = inf if new.key_expires_at is None else new.key_expires_at
            db.promises[w.tenant, new.idempotency_key] = (Promise(w.id, new.request_digest or ""), until)
        db.instances[w.id] = Row(w.tenant, new, w.status, w.at)
        db.runs[w.id] = Run(w.tenant, new.workflow, new.version, self._node, w.epoch, 0, w.at)
        return None

    def _apply(self, w: Write) -> None:
        db = self.database
        run, row = db.runs[w.id], db.instances[w.id]
        run.seq = w.seq
        row.status, row.error, row.waiting_for = w.status, w.error, w.waiting_for
        if w.new is not None or w.seq > w.prev_seq:  # one without records lets go of the instance, or consumes what changed nothing
            db.history.setdefault(w.id, []).append(Written(w.seq, w.prev_seq + 1, w.epoch, self._node, w.at, w.records))
        if w.snapshot is not None:
            db.snapshots[w.id] = (w.seq, w.snapshot)
        self._take_inbox(w)
        for a in w.approvals:
            db.approvals[a.id] = StoredApproval(
                a.id, w.id, w.tenant, a.path, a.step, a.digest, a.title, a.body, a.approvers, "pending", a.asked_at, a.expires_at
            )
        for c in w.closed:
            if db.approvals[c.id].state == "pending":
                db.approvals[c.id] = replace(db.approvals[c.id], state=c.state)
        for o in w.outbox:
            db.deliver(o, w.tenant, w.id, self._clock.now(), w.seq if o.seq is None else o.seq)
        for u in w.usage:
            db.usage.setdefault((w.id, u.path, u.attempt, u.number), (w.tenant, u))
        if w.kind is WriteKind.PARK:
            run.owner, run.due_at = None, inf if w.due_at is None else w.due_at
        elif w.kind is WriteKind.END:
            row.ended_at, row.waiting_for = w.at, None
            del db.runs[w.id]
            db.inbox.pop(w.id, None)

    def _take_inbox(self, w: Write) -> None:
        letters = self.database.inbox.get(w.id)
        if letters and w.inbox_done:
            done = set(w.inbox_done)
            for letter in letters:
                letter.taken = letter.taken or letter.item.id in done
            letters[:] = [letter for letter in letters if not letter.taken or letter.dedup is not None]

    async def claim(self, limit: int, shards: Collection[int] | None = None, overdue: float = 0.0) -> list[Claimed]:
        self._open()
        db, now = self.database, self._clock.now()
        if not db.alive(self._node):
            return []
        due = sorted(
            (run.due_at, n, id)
            for n, (id, run) in zip(count(), db.runs.items())
            if run.owner is None and run.due_at <= (now if shards is None or shard_of(id) in shards else now - overdue)
        )
        claimed = []
        for _, _, id in due[:limit]:
            run = db.runs[id]
            run.owner, run.epoch = self._node, run.epoch + 1
            seq, body = db.snapshots.get(id, (0, None))
            claimed.append(
                Claimed(
                    id=id,
                    tenant=run.tenant,
                    workflow=run.workflow,
                    version=run.version,
                    epoch=run.epoch,
                    seq=run.seq,
                    inbox_seq=run.inbox_seq,
                    deaths=run.deaths,
                    snapshot=body,
                    records=tuple(h.records for h in db.history.get(id, ()) if h.seq > seq),
                    correlation_key=db.instances[id].new.correlation_key,
                    callback_url=db.instances[id].new.callback_url,
                )
            )
        return claimed

    async def inbox(self, ids: Sequence[UUID]) -> dict[UUID, Inbox]:
        self._open()
        db = self.database
        found = {}
        for id in ids:
            run = db.runs.get(id)
            if run is not None and run.owner == self._node:
                found[id] = Inbox(run.inbox_seq, tuple(x.item for x in db.inbox.get(id, ()) if not x.taken))
        return found

    async def moved(self) -> list[UUID]:
        self._open()
        return [id for id, letters in self.database.inbox.items() if any(x.owner == self._node and not x.taken for x in letters)]

    async def owned(self) -> list[UUID]:
        self._open()
        return [id for id, run in self.database.runs.items() if run.owner == self._node]

    async def release(self, ids: Sequence[UUID]) -> None:
        self._open()
        wanted = set(ids)
        self._free(lambda id, run: run.owner == self._node and id in wanted, died=False)

    async def join(self, name: str) -> None:
        self._open()
        if self._joined:
            self._node = secrets.randbits(63)
        self._joined = True
        nodes = self.database.nodes
        for node in nodes.values():
            if node.name == name and node.state == "alive":
                node.state = "dead"
        nodes[self._node] = Node(name, self._clock.now() + self._lease)
        self._free_of_the_dead()

    async def beat(self, lease: float) -> bool:
        self._open()
        self._lease = lease
        now, nodes = self._clock.now(), self.database.nodes
        alive = self.database.alive(self._node)
        if alive:
            nodes[self._node].lease_until = now + lease
        return alive

    async def reap(self) -> None:
        self._open()
        now = self._clock.now()
        for node in self.database.nodes.values():
            if node.state == "alive" and node.lease_until < now:
                node.state = "dead"
        self._free_of_the_dead()

    async def leave(self) -> None:
        self._open()
        if self.database.alive(self._node):
            self.database.nodes[self._node].state = "left"
        self._free(lambda _, run: run.owner == self._node, died=False)
        self._free_of_the_dead()

    async def take_outbox(self, limit: int, each: int, busy: Mapping[str, int] = NOTHING_BUSY) -> list[OutboxItem]:
        self._open()
        if not self.database.alive(self._node):
            return []
        taken: list[OutboxItem] = []
        first: dict[tuple[UUID, str], Delivery] = {}
        under_way = dict(busy)
        now = self._clock.now()
        pending = [d for d in self.database.outbox.values() if d.state == "pending"]
        for d in sorted(pending, key=lambda d: (d.seq, d.number)):
            if d.instance is not None:
                first.setdefault((d.instance, d.row.target), d)
        for d in sorted(pending, key=lambda d: (d.due_at, d.number)):
            target = d.row.target
            if d.instance is not None and first[d.instance, target] is not d:
                continue
            if d.owner is None and d.due_at <= now and len(taken) < limit and under_way.get(target, 0) < each:
                under_way[target] = under_way.get(target, 0) + 1
                d.owner, d.tries = self._node, d.tries + 1
                taken.append(OutboxItem(d.row.id, d.tenant, d.instance, d.row.kind, target, d.row.body, d.tries))
        return taken

    async def release_outbox(self, keep: Collection[UUID] = ()) -> None:
        self._open()
        for d in self.database.outbox.values():
            if d.owner == self._node and d.row.id not in keep:
                d.owner = None

    async def delivered(self, id: UUID, status: int | None = None) -> None:
        self._open()
        d = self.database.outbox.get(id)
        if d is not None and d.owner == self._node:
            d.state, d.owner, d.last_error, d.last_status, d.settled_at = "delivered", None, None, status, self._clock.now()

    async def not_delivered(self, id: UUID, error: str, retry_at: float | None, status: int | None = None) -> None:
        self._open()
        d = self.database.outbox.get(id)
        if d is not None and d.owner == self._node:
            d.owner, d.last_error, d.last_status = None, error, status
            if retry_at is None:
                d.state, d.settled_at = "dead", self._clock.now()
            else:
                d.due_at = retry_at

    async def forget_deliveries(self, made: float, dead: float, limit: int) -> int:
        self._open()
        now, outbox = self._clock.now(), self.database.outbox
        over = [id for id, d in outbox.items() if d.settled_at is not None and d.settled_at < now - (dead if d.state == "dead" else made)][
            :limit
        ]
        for id in over:
            del outbox[id]
        return len(over)

    async def next_due(self) -> float | None:
        self._open()
        due = min((run.due_at for run in self.database.runs.values() if run.owner is None), default=inf)
        return None if due == inf else due

    async def close(self) -> None:
        """As with a database: afterwards every call raises StoreUnavailable."""
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _free(self, which: Callable[[UUID, Run], bool], *, died: bool) -> None:
        now = self._clock.now()
        for id, run in self.database.runs.items():
            if which(id, run):
                if died:
                    # Got further: the owner wrote a second time, or the one before it let go by itself (a death takes an epoch too).
                    latest = [written.epoch for written in self.database.history.get(id, [])[-2:]]
                    run.deaths = 1 if latest == [run.epoch] * 2 or run.epoch - 1 in latest else run.deaths + 1
                run.owner, run.epoch, run.due_at = None, run.epoch + 1, now

    def _free_of_the_dead(self) -> None:
        db = self.database
        self._free(lambda _, run: run.owner is not None and not db.alive(run.owner), died=True)
        for delivery in db.outbox.values():
            if delivery.owner is not None and not db.alive(delivery.owner):
                delivery.owner = None


def _check(w: Write) -> None:
    """Refuse what Postgres would refuse. Raises ValueError."""
    if w.status not in (ENDED_STATES if w.kind is WriteKind.END else LIVE_STATES):
        raise ValueError(f"the status {w.status} does not go with {w.kind.value}")
    for number in (w.epoch, w.prev_seq, w.seq, w.inbox_seen):
        if not -(2**31) <= number < 2**31:
            raise ValueError(f"the number {number} is out of range")
    try:
        check(_values(w))
        json.loads(w.records)
        if w.snapshot is not None:
            json.loads(w.snapshot)
    except ValueRefused as exc:
        raise ValueError(str(exc)) from exc


def _values(w: Write) -> list[Any]:
    values: list[Any] = [w.tenant, w.records, w.snapshot, w.waiting_for]
    if (new := w.new) is not None:
        values += [new.workflow, new.version, new.starter, dict(new.labels), new.correlation_key, new.idempotency_key]
    for a in w.approvals:
        values += [a.path, a.step, a.title, *a.approvers]
    for o in w.outbox:
        values += [o.kind, o.target]
    for u in w.usage:
        values += [u.path, u.workflow, u.profile, u.kind, u.model_asked, u.model_answered, u.price_version, u.request_id]
    return values


def kept(body: Any) -> Any:
    """A copy as the database would give it back."""
    return decode(encode(body))
