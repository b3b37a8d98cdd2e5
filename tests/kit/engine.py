"""An engine in a world that tests hold in their hands: its clock, its storage, its calls, and named moments to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from agiwo.definition.compiled import Awaited, Gate, Join, JoinKind, Kind, Retry, SignalWait, Step, StepList, Workflow
from agiwo.definition.contract import Effect, ToolContract
from agiwo.engine.events import Event, Happening
from agiwo.engine.node import Engine
from agiwo.errors import NotFound
from agiwo.ids import shard_of, uuid7
from agiwo.machine.commands import Record, StartAttempt, StartProbe
from agiwo.machine.reports import Begin, Failed, Succeeded
from agiwo.ports.executor import Circumstances, ProbeAnswer
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
    Verdict,
    Write,
    WriteKind,
)
from agiwo.template import compile_value
from agiwo.values import decode


class TestClock:
    """Time that only tests move."""

    __test__ = False

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


async def until(holds: Callable[[], Any]) -> None:
    """Returns when `holds` does, for moments that have no name."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0)


# ---------------------------------------------------------------- definitions


def tool(
    id: str,
    effect: Effect = Effect.IDEMPOTENT_WRITE,
    *,
    after: int | None = None,
    timeout: float = 30.0,
    retry: Retry | None = None,
    gate: Gate | None = None,
    reconcile: bool = False,
) -> Callable[[int], Step]:
    """A tool step, by its number; `after` names its source in the row, else the one before."""

    def at(index: int) -> Step:
        source = index - 1 if after is None else after
        join = Join(JoinKind.ROW, (source,), 1 << source) if source >= 0 else None
        contract = ToolContract(id, effect=effect, reconcile=reconcile)
        return Step(
            id=id,
            index=index,
            kind=Kind.TOOL_CALL,
            in_row=True,
            join=join,
            effect=effect,
            tool=id,
            contract=contract,
            timeout=timeout,
            retry=retry or Retry(1, 0.0),
            gate=gate,
        )

    return at


def pause(id: str, seconds: float) -> Callable[[int], Step]:
    def at(index: int) -> Step:
        join = Join(JoinKind.ROW, (index - 1,), 1 << (index - 1)) if index else None
        return Step(id=id, index=index, kind=Kind.WAIT, in_row=True, join=join, duration=compile_value(seconds))

    return at


def signal(id: str, timeout: float | None = None, *, keep: float = 86_400.0) -> Callable[[int], Step]:
    """A step that waits for the event of its own name."""

    def at(index: int) -> Step:
        join = Join(JoinKind.ROW, (index - 1,), 1 << (index - 1)) if index else None
        wait = SignalWait((Awaited(compile_value(id)),), keep, timeout)
        return Step(id=id, index=index, kind=Kind.WAIT_FOR_SIGNAL, in_row=True, join=join, signal=wait)

    return at


def row(*steps: Callable[[int], Step], id: str = "flow", timeout: float | None = None) -> Workflow:
    """Steps one after the other."""
    made = tuple(step(index) for index, step in enumerate(steps))
    waiting_on = tuple(sum(1 << other.index for other in made if other.join and other.join.mask >> step.index & 1) for step in made)
    body = StepList(made, "in_order", (0,), (), {step.id: step.index for step in made}, waiting_on)
    return Workflow(id, "1", "hash", body, timeout=timeout)


class Library:
    """Published definitions."""

    def __init__(self, *workflows: Workflow) -> None:
        self.workflows = {(w.id, w.version): w for w in workflows}

    async def get(self, tenant: str, workflow: str, version: str) -> Workflow:
        try:
            return self.workflows[workflow, version]
        except KeyError:
            raise NotFound(f"{workflow} {version} was never published") from None


# ---------------------------------------------------------------- calls


Answering = Callable[[StartAttempt], Any]


class Calls:
    """Executes steps as the test says: at once with what `answer` gives, or, for the paths in `held`, when `give` is called."""

    def __init__(self, answer: Answering | None = None, held: Sequence[str] = ()) -> None:
        self.answer = answer or (lambda call: Succeeded({"of": call.path}))
        self.held = set(held)
        self.made: list[tuple[str, int, str]] = []
        self.cancelled: list[tuple[str, int]] = []
        self.probed: list[str] = []
        self.probe_answer = ProbeAnswer("done", {"probed": True})
        self.stubborn = False
        self.open: dict[str, asyncio.Future[Any]] = {}
        self._begun = asyncio.Condition()

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        self.made.append((call.path, call.attempt, call.idempotency_key))
        if call.path in self.held:
            future = self.open[call.path] = asyncio.get_running_loop().create_future()
            async with self._begun:
                self._begun.notify_all()
            while True:
                try:
                    outcome: Succeeded | Failed = await asyncio.shield(future)
                    return outcome
                except asyncio.CancelledError:
                    self.cancelled.append((call.path, call.attempt))
                    if not self.stubborn:
                        raise
        answer = self.answer(call)
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Succeeded | Failed) or answer is None
        return answer  # type: ignore[return-value]

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
        self.probed.append(call.path)
        return self.probe_answer

    async def begun(self, path: str) -> None:
        """Returns when the call of this path waits for `give`."""
        async with self._begun:
            await self._begun.wait_for(lambda: path in self.open)

    def give(self, path: str, outcome: Any = None) -> None:
        future = self.open.pop(path)
        if not future.done():
            future.set_result(outcome or Succeeded({"of": path}))

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.made]


# ---------------------------------------------------------------- moments


@dataclass
class Moments:
    """Hears of everything and lets a test wait for it."""

    events: list[Event] = field(default_factory=list)
    hooks: dict[Happening, Callable[[Event], None]] = field(default_factory=dict)
    _waiting: list[tuple[Callable[[Event], bool], asyncio.Future[Event]]] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if (hook := self.hooks.get(event.name)) is not None:
            hook(event)
        for wanted, future in list(self._waiting):
            if not future.done() and wanted(event):
                future.set_result(event)
                self._waiting.remove((wanted, future))

    def all(self, name: Happening) -> list[Event]:
        return [event for event in self.events if event.name is name]

    async def until(self, name: Happening, **data: Any) -> Event:
        """The first such event, past or to come."""

        def wanted(event: Event) -> bool:
            return event.name is name and all(event.data.get(key) == value for key, value in data.items())

        for event in self.events:
            if wanted(event):
                return event
        return await self.next(name, **data)

    async def next(self, name: Happening, **data: Any) -> Event:
        """The next such event."""
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting.append((lambda e: e.name is name and all(e.data.get(k) == v for k, v in data.items()), future))
        return await future


# ---------------------------------------------------------------- a storage


@dataclass
class Row:
    """A live instance as the storage has it."""

    tenant: str
    workflow: str
    version: str
    owner: int | None
    epoch: int
    seq: int
    due_at: float | None
    inbox_seq: int = 0
    deaths: int = 0
    status: str = ""
    waiting_for: str | None = None


@dataclass
class Shelf:
    """What all nodes share."""

    clock: TestClock
    rows: dict[UUID, Row] = field(default_factory=dict)
    ended: dict[UUID, str] = field(default_factory=dict)
    history: dict[UUID, list[str]] = field(default_factory=dict)
    snapshots: dict[UUID, tuple[int, str]] = field(default_factory=dict)
    inbox: dict[UUID, list[InboxItem]] = field(default_factory=dict)
    keys: dict[str, tuple[UUID, str | None]] = field(default_factory=dict)
    alive: dict[int, str] = field(default_factory=dict)
    outbox: list[OutboxRow] = field(default_factory=list)
    taken: set[UUID] = field(default_factory=set)
    approvals: dict[UUID, str] = field(default_factory=dict)
    commits: int = 0
    numbers: count[int] = field(default_factory=lambda: count(1))

    def send(self, instance: UUID, kind: str, body: Mapping[str, Any]) -> None:
        """Something from outside."""
        row = self.rows[instance]
        self.inbox.setdefault(instance, []).append(InboxItem(uuid7(self.clock.now(), next(self.numbers), 0), kind, body))
        row.inbox_seq += 1
        if row.owner is None:
            row.due_at = self.clock.now()

    def records(self, instance: UUID) -> list[Record]:
        return [Record.from_json(r) for text in self.history[instance] for r in decode(text)]

    def free(self, owner: int) -> None:
        self.alive.pop(owner, None)
        for row in self.rows.values():
            if row.owner == owner:
                row.owner, row.epoch, row.due_at, row.deaths = None, row.epoch + 1, self.clock.now(), row.deaths + 1


class ShelfStore:
    """One node's side of the shelf; tests take it away (`down`), or make it refuse texts (`poison`)."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.me = 0
        self.down = False
        self.poison: str | None = None
        self.lose_answer = False
        self.writes: list[list[Write]] = []
        self.gate: asyncio.Event | None = None

    def _up(self) -> None:
        if self.down:
            raise StoreUnavailable("the test took the storage away")

    async def write(self, batch: Sequence[Write]) -> list[Verdict]:
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        self._up()
        assert len({write.id for write in batch}) == len(batch)
        self.writes.append(list(batch))
        self.shelf.commits += 1
        return [self._one(write) for write in batch]

    def _one(self, write: Write) -> Verdict:
        shelf = self.shelf
        if self.poison is not None and self.poison in write.records:
            return Verdict(Answer.REFUSED, message="it cannot be stored")
        if write.new is not None:
            key = write.new.idempotency_key
            if key is not None:
                if key in shelf.keys:
                    return Verdict(Answer.DUPLICATE, *shelf.keys[key])
                shelf.keys[key] = (write.id, write.new.request_digest)
            if self.me not in shelf.alive:
                return Verdict(Answer.FENCED)
            owner = None if write.kind is WriteKind.PARK else self.me
            row = Row(write.tenant, write.new.workflow, write.new.version, owner, write.epoch, write.prev_seq, write.due_at)
            shelf.rows[write.id] = row
        else:
            found = shelf.rows.get(write.id)
            if found is None or (found.owner, found.epoch, found.seq) != (self.me, write.epoch, write.prev_seq):
                return Verdict(Answer.FENCED)
            row = found
            if write.guard_inbox and row.inbox_seq != write.inbox_seen:
                return Verdict(Answer.INBOX_MOVED)
        self._apply(write, row)
        return Verdict(Answer.APPLIED)

    def _apply(self, write: Write, row: Row) -> None:
        shelf = self.shelf
        row.seq, row.status, row.waiting_for = write.seq, write.status, write.waiting_for
        if write.records != "[]":
            shelf.history.setdefault(write.id, []).append(write.records)
        if write.snapshot is not None:
            shelf.snapshots[write.id] = (write.seq, write.snapshot)
        box = shelf.inbox.get(write.id, [])
        shelf.inbox[write.id] = [item for item in box if item.id not in write.inbox_done]
        for approval in write.approvals:
            shelf.approvals[approval.id] = "pending"
        for closed in write.closed:
            shelf.approvals[closed.id] = closed.state
        shelf.outbox.extend(write.outbox)
        if write.kind is WriteKind.PARK:
            row.owner, row.due_at = None, write.due_at
        elif write.kind is WriteKind.END:
            del shelf.rows[write.id]
            shelf.ended[write.id] = write.status

    async def claim(self, limit: int, shards: Collection[int] | None = None, overdue: float = 0.0) -> list[Claimed]:
        self._up()
        now = self.shelf.clock.now()
        if self.me not in self.shelf.alive:
            return []
        out = []
        for id, row in self.shelf.rows.items():
            latest = now if shards is None or shard_of(id) in shards else now - overdue
            if row.owner is None and row.due_at is not None and row.due_at <= latest and len(out) < limit:
                row.owner, row.epoch = self.me, row.epoch + 1
                seq, snapshot = self.shelf.snapshots.get(id, (0, None))
                later = tuple(text for text in self.shelf.history.get(id, []) if decode(text)[0]["seq"] > seq)
                out.append(
                    Claimed(id, row.tenant, row.workflow, row.version, row.epoch, row.seq, row.inbox_seq, row.deaths, snapshot, later)
                )
        if self.lose_answer and out:
            self.lose_answer = False
            raise StoreUnavailable("the answer was lost")
        return out

    async def inbox(self, ids: Sequence[UUID]) -> dict[UUID, Inbox]:
        self._up()
        rows = self.shelf.rows
        return {
            id: Inbox(rows[id].inbox_seq, tuple(self.shelf.inbox.get(id, ()))) for id in ids if id in rows and rows[id].owner == self.me
        }

    async def moved(self) -> list[UUID]:
        self._up()
        return [id for id, items in self.shelf.inbox.items() if items and id in self.shelf.rows and self.shelf.rows[id].owner == self.me]

    async def owned(self) -> list[UUID]:
        self._up()
        return [id for id, row in self.shelf.rows.items() if row.owner == self.me]

    async def release(self, ids: Sequence[UUID]) -> None:
        self._up()
        for id in ids:
            row = self.shelf.rows[id]
            if row.owner == self.me:
                row.owner, row.epoch, row.due_at = None, row.epoch + 1, self.shelf.clock.now()

    async def join(self, name: str) -> None:
        self._up()
        for owner in [owner for owner, other in self.shelf.alive.items() if other == name]:
            self.shelf.free(owner)
        self.me = next(self.shelf.numbers)
        self.shelf.alive[self.me] = name

    async def beat(self, lease: float) -> bool:
        self._up()
        return self.me in self.shelf.alive

    async def reap(self) -> None:
        self._up()

    async def leave(self) -> None:
        self._up()
        deaths = {id: row.deaths for id, row in self.shelf.rows.items()}
        self.shelf.free(self.me)
        for id, row in self.shelf.rows.items():
            row.deaths = deaths[id]

    async def take_outbox(self, limit: int, each: int, busy: Mapping[str, int] = NOTHING_BUSY) -> list[OutboxItem]:
        self._up()
        rows = [row for row in self.shelf.outbox if row.id not in self.shelf.taken][:limit]
        self.shelf.taken.update(row.id for row in rows)
        return [OutboxItem(row.id, "default", None, row.kind, row.target, row.body, 1) for row in rows]

    async def release_outbox(self, keep: Collection[UUID] = ()) -> None:
        self._up()
        self.shelf.taken.intersection_update(keep)

    async def forget_deliveries(self, made: float, dead: float, limit: int) -> int:
        self._up()
        return 0

    async def delivered(self, id: UUID, status: int | None = None) -> None:
        self.shelf.outbox = [row for row in self.shelf.outbox if row.id != id]

    async def not_delivered(self, id: UUID, error: str, retry_at: float | None, status: int | None = None) -> None:
        if retry_at is not None:
            self.shelf.taken.discard(id)

    async def next_due(self) -> float | None:
        self._up()
        return min((row.due_at for row in self.shelf.rows.values() if row.owner is None and row.due_at is not None), default=None)


# ---------------------------------------------------------------- all together


@dataclass
class World:
    """A shelf, a clock, calls, and the nodes of one test."""

    workflow: Workflow
    calls: Calls = field(default_factory=Calls)
    clock: TestClock = field(default_factory=TestClock)
    moments: Moments = field(default_factory=Moments)
    shelf: Shelf = field(init=False)
    stores: list[ShelfStore] = field(default_factory=list)
    nodes: list[Engine] = field(default_factory=list)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.shelf = Shelf(self.clock)
        self.library = Library(self.workflow)

    async def node(self, name: str = "a", calls: Calls | None = None, **options: Any) -> Engine:
        """Start one more node."""
        executor = calls or self.calls
        store = ShelfStore(self.shelf)
        engine = Engine(
            store,
            self.library,
            lambda kind: executor,
            self.clock,
            name=name,
            random=Random(len(self.nodes)),
            observe=self.moments,
            **{"cancel_grace": 0.01, "heartbeat": 0.02, **options},
        )
        self.stores.append(store)
        self.nodes.append(engine)
        await engine.start()
        return engine

    def new_id(self) -> UUID:
        return uuid7(self.clock.now(), next(self.numbers), 7)

    def new(self, **fields: Any) -> NewInstance:
        return NewInstance(self.workflow.id, self.workflow.version, self.workflow.content_hash, "0" * 32, **fields)

    async def begin(
        self, engine: Engine, id: UUID | None = None, input: Any = None, *, interrupt_after: Sequence[str] = (), **fields: Any
    ) -> tuple[UUID, asyncio.Future[Any]]:
        """Trigger the workflow; the future gets the ended instance."""
        id = id or self.new_id()
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        verdict = await engine.begin(
            id, self.workflow, "default", Begin(self.clock.now(), input, interrupt_after=interrupt_after), self.new(**fields), ended=ended
        )
        assert verdict.answer is Answer.APPLIED, verdict
        return id, ended

    def types(self, id: UUID) -> list[str]:
        return [record.type for record in self.shelf.records(id)]

    async def close(self) -> None:
        for store in self.stores:
            store.down = False
            if store.gate is not None:
                store.gate.set()
        for engine in self.nodes:
            if engine._tasks:
                await engine.stop()
