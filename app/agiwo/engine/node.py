"""The engine of one process: which instances it owns, and the few loops that keep them going.

It decides nothing about a workflow and holds no truth: whatever it has in memory may be lost at any moment.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping
from random import Random
from uuid import UUID

from agiwo.clock import Clock
from agiwo.definition.compiled import Kind, Workflow
from agiwo.engine.attempts import Attempts
from agiwo.engine.events import Event, Happening, Observe, guarded
from agiwo.engine.held import ASIDE_AGAIN, Entry, Held
from agiwo.engine.inbox import UnknownItem, to_report
from agiwo.engine.loops import Loop, end
from agiwo.engine.outbox import Keeping, Outbox
from agiwo.engine.subscriptions import Subscriptions
from agiwo.engine.takeover import Retrieved, has_orders, retrieve, what_was_lost
from agiwo.engine.watching import Watch, Watchers
from agiwo.engine.writer import Writer
from agiwo.engine.writes import Plain, entrust, put_aside
from agiwo.errors import NotFound, Overloaded, Unavailable
from agiwo.machine import blank
from agiwo.machine.reports import Begin, TimerDue
from agiwo.machine.state import Instance
from agiwo.ports.definitions import Definitions
from agiwo.ports.executor import Circumstances, Executor
from agiwo.ports.leases import OVERDUE, ShardLeases
from agiwo.ports.notifier import Notifier
from agiwo.ports.store import Answer, Claimed, Inbox, InstanceStore, NewInstance, StoreUnavailable, Verdict, Write, WriteKind
from agiwo.ports.wakeup import Wakeup
from agiwo.ports.webhooks import SubscriptionFeed

FIRST_EPOCH = 1  # of an instance that this node owns from its first row on
CLAIM_AT_ONCE = 100
SHORTEST_POLL, LONGEST_POLL = 0.02, 0.5  # seconds
MOST_DEATHS = 5  # nodes that died with an instance, before it is set aside
SWEEP_EVERY = 10.0  # seconds
RENEW_EVERY = 1.0  # seconds between renewals of the leases on groups of shards
TRUST = 0.8  # part of the lease after which, without a good beat, nothing new is started


class Engine:
    """Owns instances and drives them.

    `executor_for` gives the executor of a kind of step, `notifiers` who delivers an outbox row of a kind. `capacity` is how many instances
    it holds in memory; `lease` and `heartbeat` are seconds; `cancel_grace` is what a stopped call has for stopping (seconds);
    `max_uncommitted_steps` how many calls may stand between effect and commit; an instance that has nothing to do for longer than
    `park_after` seconds leaves memory; `keeping` says how long deliveries stay when they are over. `wakeup` carries hints between nodes,
    `leases` say from which shards this one claims at once (None: from all). `observe` hears of everything that happens, before the engine
    goes on. `feed` says which webhooks want which events.
    """

    attempts: Attempts
    writer: Writer

    def __init__(
        self,
        store: InstanceStore,
        definitions: Definitions,
        executor_for: Callable[[Kind], Executor],
        clock: Clock,
        *,
        name: str,
        random: Random,
        capacity: int = 2000,
        lease: float = 10.0,
        heartbeat: float = 3.0,
        cancel_grace: float = 1.0,
        max_uncommitted_steps: int = 64,
        park_after: float = 2.0,
        notifiers: Mapping[str, Notifier] | None = None,
        keeping: Keeping = Keeping(),  # noqa: B008 - an immutable value
        feed: SubscriptionFeed | None = None,
        wakeup: Wakeup | None = None,
        leases: ShardLeases | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.observe = guarded(observe)
        self.park_after = park_after
        self.name = name
        self.capacity = capacity
        self._store = store
        self._definitions = definitions
        self._executor_for = executor_for
        self._lease = lease
        self._heartbeat = heartbeat
        self._cancel_grace = cancel_grace
        self._max_uncommitted = max_uncommitted_steps
        self._wakeup = wakeup
        self._leases = leases
        self._outbox = Outbox(store, notifiers or {}, clock, random, self.observe, keeping)
        self.subscriptions = Subscriptions(feed, clock, self.observe)
        self._held: dict[UUID, Held] = {}
        self._to_take: list[Claimed] = []
        self._asked: set[UUID] = set()
        self._suspects: set[UUID] = set()
        self._swept_at = clock.monotonic()
        self._beat_at = clock.monotonic()
        self._lives = 0
        self._claim_pause = self._inbox_pause = SHORTEST_POLL
        self._claim_most = CLAIM_AT_ONCE
        self._moved_at = clock.monotonic()
        self._entrusting: set[asyncio.Future[Verdict]] = set()
        self._draining = False
        self._calm: asyncio.Event | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._claims = Loop("claims", self._claim_round, clock, self.observe)
        self._leasing = Loop("leases", self._lease_round, clock, self.observe)
        self._inboxes = Loop("inboxes", self._inbox_round, clock, self.observe)
        self._beats = Loop("beats", self._beat_round, clock, self.observe)
        self._reaps = Loop("reaps", self._reap_round, clock, self.observe)

    # ------------------------------------------------------------ life of the node

    async def start(self) -> None:
        """Begin a new incarnation: what older ones of this name owned is taken over at once.

        Raises StoreUnavailable.
        """
        self.writer = Writer(self._store, self.clock, self.random, self.observe)
        self.attempts = Attempts(
            self._executor_for,
            self.clock,
            self.observe,
            cancel_grace=self._cancel_grace,
            max_uncommitted=self._max_uncommitted,
            may_start=self._trusts_lease,
        )
        await self._join(self.name)
        await self.subscriptions.round()
        loops = (self._beats, self._reaps, self._claims, self._inboxes)
        work = [self.writer.run(), *(loop.run() for loop in loops), self._outbox.run(), self.subscriptions.run()]
        if self._leases is not None:
            work.append(self._leasing.run())
        if self._wakeup is not None:
            work.append(self._listen(self._wakeup))
        self._tasks = [asyncio.create_task(one) for one in work]

    async def drain(self, patience: float) -> None:
        """Claim and begin nothing more, let running calls finish for up to `patience` seconds, hand the rest back, and leave."""
        self._draining = True
        self._leasing.hurry()
        self.attempts.drain()
        self._calm = asyncio.Event()
        self.look_for_calm()
        try:
            async with asyncio.timeout(patience):
                await self._calm.wait()
        except TimeoutError:
            pass  # what still runs is another node's matter from here on
        await self.stop()

    async def stop(self) -> None:
        """Stop every call without recording anything of it, and free what this node owns."""
        self._draining = True
        self._drop_all("the node stops")
        try:
            # What is being committed is committed: to cut it off would only cost a connection.
            async with asyncio.timeout(self._cancel_grace):
                await self.writer.idle()
        except TimeoutError:
            self._tell(Happening.STORE_LOST, place="writer", message="the last batch was not committed before the node stopped")
        await end(self._tasks)
        self._tasks = []
        await self._outbox.stop(self._cancel_grace)
        for told in self._entrusting:
            if not told.done():
                told.set_exception(Unavailable("this node stopped before the instance was written down"))
        stragglers = [attempt.task for attempt in self.attempts.stragglers if attempt.task is not None]
        if stragglers:
            await asyncio.wait(stragglers, timeout=self._cancel_grace)
        if self._leases is not None:
            await self._leases.renew(False)
        try:
            await self._store.leave()
        except StoreUnavailable as exc:
            self._tell(Happening.STORE_LOST, place="leave", message=str(exc))
        self._tell(Happening.LEFT, node=self.name)

    @property
    def running(self) -> bool:
        return bool(self._tasks) and not self._draining

    @property
    def load(self) -> int:
        """How many instances are in memory."""
        return len(self._held)

    # ------------------------------------------------------------ what services call

    async def begin(
        self,
        id: UUID,
        workflow: Workflow,
        tenant: str,
        begin: Begin,
        new: NewInstance,
        *,
        ended: asyncio.Future[Instance | None] | None = None,
    ) -> Verdict:
        """Own a new instance from its first row on: row, first decision and first starts are one write; returns when it is durable.

        The verdict is APPLIED, DUPLICATE (another instance was started under this key) or REFUSED. `ended` gets the instance when it has
        ended, or None when this node lets go of it before. Raises Overloaded if there is no room (then `entrust` it), Unavailable if the
        storage is away or the node lost its lease meanwhile (whether the instance was begun is then to be seen by its key).
        """
        if not self.running:
            raise Unavailable("this node takes no new instances")
        if self.writer.down:
            raise Unavailable("the storage does not answer")
        if not self.has_room():
            raise Overloaded("this node has no room for another instance")
        where = Circumstances(id, workflow.id, workflow.version, tenant, new.trace_id)
        held = Held(self, blank(id, workflow, tenant), FIRST_EPOCH, where)
        held.new = new
        held.correlation_key, held.callback_url = new.correlation_key, new.callback_url
        held.begun = asyncio.get_running_loop().create_future()
        if ended is not None:
            held.ended.append(ended)
        begun = held.begun
        self._held[id] = held
        held.offer(begin)
        return await begun

    async def entrust(self, id: UUID, workflow: Workflow, tenant: str, begin: Begin, new: NewInstance) -> Verdict:
        """Write a new instance down for whichever node claims it first. Verdict and Unavailable as of `begin`."""
        if not self._tasks or self.writer.down:
            raise Unavailable("the storage does not answer" if self._tasks else "this node does not run")
        told: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._entrusting.add(told)
        self.writer.put(Plain(entrust(id, workflow, tenant, begin, new), lambda verdict: None if told.done() else told.set_result(verdict)))
        try:
            verdict = await told
        finally:
            self._entrusting.discard(told)
        if verdict.answer is Answer.FENCED:
            # It was written under an incarnation that this node no longer is, perhaps by the sending whose answer was lost.
            raise Unavailable("the node lost its lease meanwhile; whether the instance was written is to be seen by its key")
        self.poke(id)
        return verdict

    def poke(self, id: UUID) -> None:
        """There is news for an instance: its inbox moved, or it is due. Here at once, elsewhere by a hint."""
        if not self._heard(id) and self._wakeup is not None:
            self._wakeup.tell(id)

    def deliver(self) -> None:
        """There is something in the outbox."""
        self._outbox.hurry()

    def watch(self, id: UUID) -> Watch:
        """Follow what is committed of an instance from now on; ends at once if it is not here."""
        held = self._held.get(id)
        if held is None:
            return Watch(None)
        if held.watchers is None:
            held.watchers = Watchers()
        return Watch(held.watchers)

    def has_room(self) -> bool:
        return len(self._held) < self.capacity and not self.writer.pressed and self._trusts_lease()

    def tick(self) -> None:
        """Look at every timer now: the clock was set."""
        now = self.clock.now()
        for held in list(self._held.values()):
            if held.timer_due is not None and held.timer_due <= now:
                held.look_at_timer()
        self._claims.hurry()

    # ------------------------------------------------------------ what held instances call

    def ask_inbox(self, held: Held) -> None:
        self._asked.add(held.id)
        self._inboxes.hurry()

    def let_go(self, held: Held) -> None:
        if self._held.get(held.id) is held:
            del self._held[held.id]
        self._asked.discard(held.id)
        self.look_for_calm()

    def committed(self, write: Write) -> None:
        if write.outbox:
            self._outbox.hurry()
        if write.kind is WriteKind.PARK and write.due_at is not None and write.due_at <= self.clock.now() + LONGEST_POLL:
            self._claims.hurry()
        self.look_for_calm()

    def look_for_calm(self) -> None:
        # Asked for later, since what was just committed may start the next call.
        if self._calm is not None:
            asyncio.get_running_loop().call_soon(self._calm_or_not, self._calm)

    def _calm_or_not(self, calm: asyncio.Event) -> None:
        if all(held.resting for held in self._held.values()):
            calm.set()

    # ------------------------------------------------------------ the lease

    def _trusts_lease(self) -> bool:
        return self.clock.monotonic() - self._beat_at < TRUST * self._lease

    async def _join(self, name: str) -> None:
        before = self.clock.monotonic()
        await self._store.join(name)
        self._lives += 1
        self._beat_at = before
        self._tell(Happening.JOINED, node=name)

    async def _beat_round(self) -> float:
        before = self.clock.monotonic()
        if not await self._store.beat(self._lease):
            self._tell(Happening.DECLARED_DEAD, held=len(self._held))
            self._beat_at = before - self._lease  # nothing is begun under a lease that is gone
            self._drop_all("another node has taken over")
            # Under a name of its own: the one that took over may be a second process of our name, and two that declare each other dead
            # would go on for ever.
            await self._join(f"{self.name}.{self.random.getrandbits(32):08x}")
            self._claims.hurry()
            return 0.0
        self._beat_at = before
        self.attempts.admit()
        self.tick()
        return self._heartbeat

    async def _lease_round(self) -> float:
        assert self._leases is not None
        before = self._leases.shards
        await self._leases.renew(self.running and not (self.writer.down or self._claims.lost) and self.has_room())
        if self._leases.shards != before:
            self._claims.hurry()
        return RENEW_EVERY

    async def _reap_round(self) -> float:
        """Apart from the heartbeat: whatever keeps this waiting must not cost the lease."""
        await self._store.reap()
        if self.clock.monotonic() - self._swept_at >= SWEEP_EVERY:
            await self._sweep()
        return self._heartbeat

    async def _sweep(self) -> None:
        """Release what the database says is ours and is not here: the answer to a claim was lost.

        Only what was missed twice in a row: a claim or a first write may be under way.
        """
        self._swept_at = self.clock.monotonic()
        owned = set(await self._store.owned())
        missing = owned - self._held.keys() - {claimed.id for claimed in self._to_take}
        orphans = missing & self._suspects
        self._suspects = missing - orphans
        if orphans:
            await self._store.release(list(orphans))
            self._tell(Happening.ORPHANS_RELEASED, count=len(orphans))

    def _drop_all(self, reason: str) -> None:
        self._to_take.clear()
        for held in list(self._held.values()):
            held.drop(reason)

    # ------------------------------------------------------------ claiming

    async def _claim_round(self) -> float:
        if self._draining:
            return LONGEST_POLL
        if not self._to_take:
            room = min(self.capacity - len(self._held), CLAIM_AT_ONCE)
            if room <= 0 or self.writer.pressed or not self._trusts_lease():
                return SHORTEST_POLL
            self._to_take = await self._claimed(room)
        if not self._to_take:
            return await self._pause()
        boxes = await self._store.inbox([claimed.id for claimed in self._to_take])
        self._tell(Happening.CLAIMED, count=len(self._to_take))
        while self._to_take:
            # Stays in the list until it is in memory, so that a fault on the way loses none and the next round goes on with it.
            claimed = self._to_take[0]
            retrieved = await self._retrieved(claimed)
            if self._to_take and self._to_take[0] is claimed:
                self._to_take.pop(0)
                if retrieved is not None:
                    self._take_over(claimed, retrieved, boxes.get(claimed.id))
        self._claim_pause = SHORTEST_POLL
        return 0.0

    async def _claimed(self, room: int) -> list[Claimed]:
        # Fewer after a failure: perhaps their states are too large to be read in time together.
        most, self._claim_most = self._claim_most, max(1, self._claim_most // 2)
        life = self._lives
        shards = None if self._leases is None else self._leases.shards
        claimed = await self._store.claim(min(room, most), shards, OVERDUE)
        self._claim_most = min(CLAIM_AT_ONCE, 2 * most)
        # What an incarnation claimed that was declared dead meanwhile is another's by now.
        return claimed if life == self._lives else []

    async def _pause(self) -> float:
        self._claim_pause = min(self._claim_pause * 2, LONGEST_POLL)
        if self._claim_pause < LONGEST_POLL:
            return self._claim_pause
        due, now = await self._store.next_due(), self.clock.now()
        if due is None:
            return LONGEST_POLL
        if due <= now and self._leases is not None and self._leases.shards is not None:
            due += OVERDUE  # another node holds its group; this one comes when that has not
        return min(LONGEST_POLL, max(SHORTEST_POLL, due - now))

    async def _retrieved(self, claimed: Claimed) -> Retrieved | None:
        try:
            workflow = await self._definitions.get(claimed.tenant, claimed.workflow, claimed.version)
        except NotFound as exc:
            self._put_aside(claimed, f"its definition is missing: {exc.message}", "", again=True)
            return None
        except (StoreUnavailable, Unavailable):
            raise
        except Exception as exc:
            # A tool or a step type that this node lacks and another may have, as in the middle of a deployment.
            self._put_aside(claimed, f"node {self.name} cannot read its definition: {exc}"[:500], traceback.format_exc(), again=True)
            return None
        try:
            return retrieve(claimed, workflow)
        except Exception:
            # Whatever is wrong with this history, it must not keep the node from the others.
            self._put_aside(claimed, "its history cannot be read", traceback.format_exc())
            return None

    def _take_over(self, claimed: Claimed, retrieved: Retrieved, inbox: Inbox | None) -> None:
        now = self.clock.now()
        instance = retrieved.instance
        trace_id = instance.trace_id or (retrieved.begin.trace_id if retrieved.begin is not None else "")
        where = Circumstances(claimed.id, claimed.workflow, claimed.version, claimed.tenant, trace_id)
        held = Held(self, instance, claimed.epoch, where)
        held.since = retrieved.since
        held.correlation_key, held.callback_url = claimed.correlation_key, claimed.callback_url
        if (before := self._held.get(claimed.id)) is not None:
            before.drop("claimed anew")  # its park is durable, and the answer to it under way or lost
        self._held[claimed.id] = held
        entries = self._entries(held, inbox)
        if claimed.deaths > MOST_DEATHS and not has_orders(inbox):
            held.inbox_seen = claimed.inbox_seq if inbox is None else inbox.seq
            held.set_aside(f"{claimed.deaths} nodes died while they drove it")
            return
        if retrieved.begin is not None:
            held.mailbox.append(Entry(retrieved.begin))
        held.mailbox.extend(map(Entry, what_was_lost(instance, now)))
        if (due := instance.due_at) is not None and due <= now:
            held.mailbox.append(Entry(TimerDue(now, self.random.random())))
        seen = claimed.inbox_seq if inbox is None else inbox.seq
        if held.mailbox or entries or due is None:
            held.inbox_read(seen, entries)
        else:
            held.inbox_seen = seen
            held.rest(due - now)

    def _put_aside(self, claimed: Claimed, reason: str, details: str, *, again: bool = False) -> None:
        now = self.clock.now()
        where = Circumstances(claimed.id, claimed.workflow, claimed.version, claimed.tenant, "")
        if self.observe is not None:
            data = {"reason": reason, "details": details}
            self.observe(Event(Happening.SET_ASIDE, now, where, data=data))
        self.writer.put(Plain(put_aside(claimed, now, reason, now + ASIDE_AGAIN if again else None), lambda verdict: None))

    # ------------------------------------------------------------ inboxes and hints

    async def _inbox_round(self) -> float:
        asked, self._asked = self._asked, set()
        moved: set[UUID] = set()
        try:
            # Those that were asked for go first, but hold up the others no longer than a poll.
            if self._held and (not asked or self.clock.monotonic() - self._moved_at >= LONGEST_POLL):
                moved = set(await self._store.moved())
                self._moved_at = self.clock.monotonic()
            ids = [id for id in asked | moved if id in self._held]
            boxes = await self._store.inbox(ids) if ids else {}
        except Exception:
            self._asked |= asked
            raise
        for id in ids:
            held = self._held.get(id)
            if held is not None:
                inbox = boxes.get(id) or Inbox(held.inbox_seen, ())
                held.inbox_read(inbox.seq, self._entries(held, inbox))
        self._inbox_pause = SHORTEST_POLL if ids else min(self._inbox_pause * 2, LONGEST_POLL)
        return self._inbox_pause

    def _entries(self, held: Held, inbox: Inbox | None) -> list[Entry]:
        entries = []
        now = self.clock.now()
        for item in inbox.items if inbox is not None else ():
            try:
                report = to_report(item, now)
            except UnknownItem as exc:
                report = None
                if self.observe is not None:
                    data = {"kind": item.kind, "message": exc.message}
                    self.observe(Event(Happening.ITEM_REFUSED, now, held.where, data=data))
            entries.append(Entry(report, item.id))
        return entries

    def _heard(self, id: UUID) -> bool:
        held = self._held.get(id)
        if held is None:
            self._claims.hurry()
            return False
        self.ask_inbox(held)
        return True

    async def _listen(self, wakeup: Wakeup) -> None:
        while True:
            try:
                async for id in wakeup.hear():
                    self._heard(id)
            except Exception:
                self._tell(Happening.LOOP_FAILED, loop="hints", traceback=traceback.format_exc())
            await asyncio.sleep(LONGEST_POLL)

    def _tell(self, name: Happening, **data: object) -> None:
        if self.observe is not None:
            self.observe(Event(name, self.clock.now(), data=data))
