"""One instance that this node owns: takes all reports that wait, has them decided, gives the result to the writer, then carries it out.

It makes no decision of its own and needs no task: everything here is a plain call on the event loop.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple, Protocol
from uuid import UUID

from agiwo.clock import Clock
from agiwo.engine import telling
from agiwo.engine.attempts import Attempt, Attempts, not_storable
from agiwo.engine.events import Event, Happening, Observe
from agiwo.engine.snapshots import SinceSnapshot
from agiwo.engine.subscriptions import Subscriptions
from agiwo.engine.usage import usage_rows
from agiwo.engine.watching import Watchers
from agiwo.engine.writer import Writer
from agiwo.engine.writes import rows_of, waiting_for
from agiwo.errors import Unavailable
from agiwo.machine import decide, snapshot
from agiwo.machine.commands import CloseApproval, CloseWait, Command, Record, StartAttempt, StartProbe, StopAttempt
from agiwo.machine.reports import AttemptEnded, Begin, Failed, Outcome, ProbeEnded, Report, Stopped, Succeeded, TimerDue
from agiwo.machine.state import Instance
from agiwo.ports.executor import Circumstances, ProbeAnswer
from agiwo.ports.store import Answer, NewInstance, OutboxRow, Verdict, Write, WriteKind
from agiwo.values import encode

#: Seconds in memory of what was claimed and is not due by our clock, so that clocks that differ do not keep the database busy.
REST = 5.0
ASIDE_AGAIN = 30.0  # seconds until an instance that was set aside, and may do better, may be claimed once more
AFTER_NOTHING = 0.05  # seconds until a timer is looked at again that was due and changed nothing


class Entry(NamedTuple):
    """A report in the mailbox, with the inbox row or the attempt that it came from; without a report the row is only to go."""

    report: Report | None
    item: UUID | None = None
    attempt: Attempt | None = None


def in_turn(entries: Iterable[Entry]) -> list[Entry]:
    """The beginning first, since nothing counts before it; then what people said, which its own expiry must not overtake; then the rest."""
    return sorted(entries, key=lambda entry: 0 if isinstance(entry.report, Begin) else 1 if entry.item is not None else 2)


class Node(Protocol):
    """What an instance needs of the node that owns it."""

    clock: Clock
    random: Random
    observe: Observe | None
    attempts: Attempts
    writer: Writer
    park_after: float
    subscriptions: Subscriptions

    def ask_inbox(self, held: Held) -> None:
        """Read this instance's inbox soon and hand it to `inbox_read`."""

    def let_go(self, held: Held) -> None:
        """The instance has left memory."""

    def committed(self, write: Write) -> None:
        """A write of an instance is durable."""

    def look_for_calm(self) -> None:
        """An instance may have come to rest."""


@dataclass(slots=True)
class Pending:
    """A write in flight, and what is to be done when it is durable (or was not)."""

    held: Held
    write: Write
    instance: Instance
    entries: list[Entry]
    commands: list[Command]
    records: list[Record]
    aside: str | None = None

    @property
    def dropped(self) -> bool:
        return self.held.gone

    def settle(self, verdict: Verdict) -> None:
        try:
            self.held.written(self, verdict)
        except Exception:
            # What is in memory of it can no longer be trusted; the sweep gives it to whoever claims it next.
            self.held.drop("a mistake of the engine")
            raise


class Held:
    """An owned instance. `instance` is the state as decided, `committed` as written; they differ only while a write is in flight."""

    __slots__ = (
        "aside", "begun", "callback_url", "carrying", "committed", "correlation_key", "ended", "epoch", "gone", "id", "inbox_seen",
        "instance", "mailbox", "new", "node", "reading", "refusals", "running", "since", "singly", "taken", "tenant", "timer",
        "timer_due", "watchers", "where", "writing",
    )  # fmt: skip

    def __init__(self, node: Node, instance: Instance, epoch: int, where: Circumstances) -> None:
        self.node = node
        self.id = instance.id
        self.tenant = instance.tenant
        self.instance = self.committed = instance
        self.epoch = epoch
        self.where = where
        self.new: NewInstance | None = None
        self.correlation_key: str | None = None
        self.callback_url: str | None = None
        self.begun: asyncio.Future[Verdict] | None = None
        self.ended: list[asyncio.Future[Instance | None]] = []
        self.watchers: Watchers | None = None
        self.mailbox: list[Entry] = []
        self.writing: Pending | None = None
        self.running: dict[tuple[str, int, bool], Attempt] = {}
        self.reading = False
        self.inbox_seen = 0
        # Never emptied: an answer about the inbox may be older than the commit that consumed what it holds.
        self.taken: set[UUID] = set()
        self.since = SinceSnapshot()
        self.timer: asyncio.TimerHandle | None = None
        self.timer_due: float | None = None
        self.refusals = 0
        self.singly = False  # reports are decided one a write, to find the one that the database refuses
        self.aside: str | None = None
        self.gone = False
        self.carrying = False  # commands are being carried out: what they bring at once is decided after the last of them

    @property
    def resting(self) -> bool:
        """Whether no call runs and nothing that one has brought is still to be written."""
        return not (self.running or self.mailbox or self.reading) and self.writing is None

    # ------------------------------------------------------------ reports

    def offer(self, report: Report) -> None:
        """Have a report decided, with all others that wait, as soon as no write is in flight."""
        self._take(Entry(report))

    def inbox_read(self, seq: int, items: Iterable[Entry]) -> None:
        """The inbox stood at `seq` and held these; what was taken up before is not taken up again."""
        fresh = [entry for entry in items if entry.item not in self.taken]
        self.taken.update(entry.item for entry in fresh if entry.item is not None)
        self.mailbox = in_turn([*fresh, *self.mailbox])
        self.inbox_seen = max(seq, self.inbox_seen)
        self.reading = False
        self.pump()

    def _take(self, entry: Entry) -> None:
        if self.gone:
            self._settled([entry])
            return
        self.mailbox.append(entry)
        if self.writing is None and not self.carrying:
            self.pump()

    def _attempt_ended(self, attempt: Attempt, outcome: Outcome | ProbeAnswer) -> None:
        call = attempt.call
        self.running.pop((call.path, call.attempt, attempt.probe), None)
        at, draw = self.node.clock.now(), self.node.random.random()
        report: Report
        if isinstance(outcome, ProbeAnswer):
            report = ProbeEnded(at, call.path, call.attempt, outcome.answer, outcome.result, draw)
        else:
            report = AttemptEnded(at, call.path, call.attempt, outcome, draw)
        self._take(Entry(report, None, attempt))

    # ------------------------------------------------------------ deciding

    def pump(self) -> None:
        """Decide whatever waits, unless a write is in flight or the inbox is being read."""
        if self.writing is not None or self.reading or self.gone or self.aside is not None:
            return
        least = 0.0
        while self.mailbox:
            entries = self._next_entries()
            try:
                pending = self._decided(entries)
            except Exception:
                # The machine is total; if it is wrong after all, one instance stops and says so, and the node goes on.
                self.instance = self.committed
                self._set_aside("the machine failed on it", traceback.format_exc(), entries)
                return
            if pending is not None:
                self._put(pending)
                return
            self._settled(entries)
            least = AFTER_NOTHING
        if self._quiet(()):
            self._put(self._pending([], [], [], WriteKind.PARK))
        else:
            self.arm(least)
            self.node.look_for_calm()

    def _next_entries(self) -> list[Entry]:
        if self.singly:
            entries, self.mailbox = self.mailbox[:1], self.mailbox[1:]
            self.singly = bool(self.mailbox)
        else:
            entries, self.mailbox = self.mailbox, []
        return entries

    def _decided(self, entries: list[Entry]) -> Pending | None:
        instance = self.instance
        records: list[Record] = []
        commands: list[Command] = []
        consumed = False
        for entry in entries:
            consumed = consumed or entry.item is not None
            if entry.report is not None:
                decision = decide(instance, entry.report)
                instance = decision.instance
                records += decision.records
                commands += decision.commands
        if not records and not consumed:
            return None
        self.instance = instance
        if instance.ended:
            kind = WriteKind.END
        elif self._quiet(commands):
            kind = WriteKind.PARK
        else:
            kind = WriteKind.STEP if self.new is None else WriteKind.NEW
        return self._pending(entries, commands, records, kind)

    def _quiet(self, commands: Iterable[Command]) -> bool:
        """Whether nothing will happen here for a while: no call under way or ordered, no report left, no timer soon."""
        if self.running or self.mailbox or self.instance.ended or any(isinstance(c, StartAttempt | StartProbe) for c in commands):
            return False
        due = self.instance.due_at
        return due is None or due > self.node.clock.now() + self.node.park_after

    def _pending(self, entries: list[Entry], commands: list[Command], records: list[Record], kind: WriteKind) -> Pending:
        instance = self.instance
        text = encode([record.to_json() for record in records]) if records else "[]"
        state = encode(snapshot(instance)) if self.since.due(len(records), len(text)) else None
        rows = rows_of(instance, commands)
        park = kind is WriteKind.PARK
        ending = instance.ending if kind is WriteKind.END else None
        write = Write(
            kind=kind,
            id=self.id,
            tenant=self.tenant,
            epoch=self.epoch,
            prev_seq=self.committed.seq,
            seq=instance.seq,
            records=text,
            at=self.node.clock.now(),
            status=instance.status.value,
            due_at=instance.due_at if park else None,
            new=self.new,
            snapshot=state,
            inbox_seen=self.inbox_seen,
            guard_inbox=self.new is None and (park or any(isinstance(c, CloseApproval | CloseWait) for c in commands)),
            inbox_done=tuple(entry.item for entry in entries if entry.item is not None),
            approvals=rows.approvals,
            closed=rows.closed,
            outbox=rows.outbox + self._told(records, kind),
            usage=usage_rows(records, instance.workflow.id),
            error=ending.error if ending is not None else None,
            waiting_for=waiting_for(instance) if park else None,
        )
        return Pending(self, write, instance, entries, commands, records)

    def _told(self, records: list[Record], kind: WriteKind) -> tuple[OutboxRow, ...]:
        """What others are told of this write, in the same commit; nothing, and at no cost, if nobody wants to hear."""
        out: tuple[OutboxRow, ...] = ()
        if records and (wanted := self.node.subscriptions.by_tenant.get(self.tenant)) is not None:
            out = tuple(telling.told(self.committed.status, self.instance, records, self.correlation_key, wanted))
        if self.callback_url is not None and kind is WriteKind.END:
            out = (*out, telling.callback(self.instance, self.callback_url, self.node.clock.now()))
        return out

    def _put(self, pending: Pending) -> None:
        self.writing = pending
        self.node.writer.put(pending)

    # ------------------------------------------------------------ the verdict

    def written(self, pending: Pending, verdict: Verdict) -> None:
        """The writer's answer to the write in flight."""
        self.writing = None
        if verdict.answer is Answer.APPLIED:
            self._applied(pending, verdict)
        elif verdict.answer is Answer.INBOX_MOVED and pending.aside is not None:
            # Perhaps a person has spoken: whoever claims it next reads the inbox before it is set aside.
            self._put(replace(pending, write=replace(pending.write, guard_inbox=False, due_at=self.node.clock.now())))
        elif verdict.answer is Answer.INBOX_MOVED:
            self._undo(pending.entries)
            self.reading = True
            self.node.ask_inbox(self)
        elif verdict.answer is Answer.REFUSED:
            self._refused(pending, verdict)
        else:
            self._settled(pending.entries)
            if verdict.answer in (Answer.DUPLICATE, Answer.HELD_BACK):
                self._answer_begin(verdict)
            self.drop(verdict.answer.value)

    def _applied(self, pending: Pending, verdict: Verdict) -> None:
        write = pending.write
        self.committed = pending.instance
        self.since.written(len(pending.records), len(write.records), write.snapshot)
        self.refusals = 0
        self.new = None
        observe = self.node.observe
        if observe is not None and pending.records:
            data = {"records": pending.records, "kind": write.kind.value, "status": write.status}
            observe(Event(Happening.COMMITTED, write.at, self.where, data=data))
        self._settled(pending.entries)
        self.node.committed(write)
        if self.watchers is not None and pending.records:
            self.watchers.tell(pending.records)
        self._answer_begin(verdict)
        if write.kind is WriteKind.END:
            self._tell_end(pending.instance)
            self._leave("ended", pending.instance)
        elif write.kind is WriteKind.PARK:
            self._leave("parked" if pending.aside is None else "set aside", None)
        else:
            self.carrying = True
            try:
                self._carry_out(pending.commands)
            finally:
                self.carrying = False
            self.pump()

    def _settled(self, entries: list[Entry]) -> None:
        """What these reports stood for is durable, or changed nothing."""
        for entry in entries:
            if entry.attempt is not None:
                self.node.attempts.committed(entry.attempt)

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, StartAttempt | StartProbe):
                attempt = Attempt(command, self.where, self._attempt_ended)
                self.running[command.path, command.attempt, attempt.probe] = attempt
                self.node.attempts.start(attempt)
            elif isinstance(command, StopAttempt):
                running = self.running.get((command.path, command.attempt, False))
                if running is not None:
                    self.node.attempts.stop(running, command.reason)
                elif not self._outcome_waits(command):
                    # Nobody makes this call (its node is gone), so it has stopped as far as it ever will.
                    self._take(Entry(AttemptEnded(self.node.clock.now(), command.path, command.attempt, Stopped(clean=False))))

    def _outcome_waits(self, command: StopAttempt) -> bool:
        return any(
            isinstance(entry.report, AttemptEnded) and (entry.report.path, entry.report.attempt) == (command.path, command.attempt)
            for entry in self.mailbox
        )

    def _undo(self, entries: list[Entry]) -> None:
        self.instance = self.committed
        # It may be that something was read from the inbox while the write was on its way.
        self.mailbox = in_turn([*entries, *self.mailbox])

    def _refused(self, pending: Pending, verdict: Verdict) -> None:
        if self.node.observe is not None:
            self.node.observe(Event(Happening.REFUSED, self.node.clock.now(), self.where, data={"message": verdict.message}))
        if self.new is not None:
            self._answer_begin(verdict)
            self.drop("refused")
            return
        if len(pending.entries) > 1:
            # One of them is the culprit; the others keep what they brought.
            self.singly = True
            self._undo(pending.entries)
            self.pump()
            return
        self.refusals += 1
        entries = [_without_poison(entry, verdict.message) for entry in pending.entries]
        if self.refusals > 1 or entries == pending.entries:
            self.instance = self.committed
            self._set_aside("the database refuses what is to be written", verdict.message, pending.entries)
        else:
            self._undo(entries)
            self.singly = len(self.mailbox) > 1
            self.pump()

    # ------------------------------------------------------------ time

    def arm(self, least: float = 0.0) -> None:
        """Look at the instance again when its next timer is due; not before `least` seconds."""
        due = None if self.node.attempts.draining else self.instance.due_at
        if due is None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = self.timer_due = None
            return
        if self.timer is not None:
            # One that fires too early looks again; only an earlier due time needs another handle.
            if self.timer_due is not None and self.timer_due <= due:
                return
            self.timer.cancel()
        self.timer_due = due
        delay = max(due - self.node.clock.now(), least, 0.0)
        self.timer = asyncio.get_running_loop().call_later(delay, self.look_at_timer)

    def rest(self, seconds: float) -> None:
        """Stay in memory for so long (at most `REST`) although there is nothing to do."""
        self.timer_due = self.instance.due_at
        self.timer = asyncio.get_running_loop().call_later(min(seconds, REST), self.look_at_timer)

    def look_at_timer(self) -> None:
        """Offer what is due by the clock, which may have been set meanwhile."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.timer_due = None
        due = self.instance.due_at
        if self.gone or due is None:
            return
        now = self.node.clock.now()
        if now < due:
            self.pump()
        elif self.writing is not None or self.reading:
            self.timer_due = due
            self.timer = asyncio.get_running_loop().call_later(AFTER_NOTHING, self.look_at_timer)
        else:
            self.offer(TimerDue(now, self.node.random.random()))

    # ------------------------------------------------------------ leaving

    def set_aside(self, reason: str) -> None:
        """Drive it no longer: it waits for a person, who finds the reason where it is listed."""
        self._set_aside(reason, "", [])

    def _set_aside(self, reason: str, details: str, culprits: list[Entry]) -> None:
        self._settled(culprits + self.mailbox)
        left = any(entry.item is not None for entry in self.mailbox)
        self.mailbox.clear()
        if self.node.observe is not None:
            data = {"reason": reason, "details": details}
            self.node.observe(Event(Happening.SET_ASIDE, self.node.clock.now(), self.where, data=data))
        if self.begun is not None:
            self._answer_begin(Verdict(Answer.REFUSED, message=reason))
            self.drop("set aside")
            return
        if self.aside is not None:
            return  # even that was refused: it stays in memory, untouched, so that it is not claimed again and again
        self.aside = reason
        for attempt in list(self.running.values()):
            self.node.attempts.drop(attempt)
        self.running.clear()
        pending = self._pending([], [], [], WriteKind.PARK)
        # What was taken from the inbox and not decided must not be slept over: it is looked at anew, without what went wrong.
        due = self.node.clock.now() + ASIDE_AGAIN if left else None
        write = replace(pending.write, due_at=due, guard_inbox=not left, snapshot=None, waiting_for=f"set aside: {reason}")
        self._put(replace(pending, write=write, aside=reason))

    def drop(self, reason: str) -> None:
        """Forget it: somebody else owns it, or will. Its calls are stopped, and nothing is cleaned up outside."""
        if not self.gone:
            self._leave(reason, None)

    def _leave(self, reason: str, ended: Instance | None) -> None:
        self.gone = True
        if self.timer is not None:
            self.timer.cancel()
        entries = self.mailbox + (self.writing.entries if self.writing is not None else [])
        self._settled(entries)
        self.mailbox = []
        for attempt in self.running.values():
            self.node.attempts.drop(attempt)
        self.running = {}
        if self.begun is not None and not self.begun.done():
            self.begun.set_exception(Unavailable(f"this node cannot start the instance: {reason}"))
        for future in self.ended:
            if not future.done():
                future.set_result(ended)
        if self.watchers is not None:
            self.watchers.close()
        if self.node.observe is not None and ended is None:
            self.node.observe(Event(Happening.LET_GO, self.node.clock.now(), self.where, data={"reason": reason}))
        self.node.let_go(self)

    def _answer_begin(self, verdict: Verdict) -> None:
        if self.begun is not None:
            if not self.begun.done():
                self.begun.set_result(verdict)
            self.begun = None

    def _tell_end(self, instance: Instance) -> None:
        if self.node.observe is not None:
            at = instance.ended_at if instance.ended_at is not None else self.node.clock.now()
            error = None if instance.ending is None else instance.ending.error
            data = {"status": instance.status.value, "seconds": at - instance.started_at, "error": error}
            self.node.observe(Event(Happening.ENDED, at, self.where, data=data))


def _without_poison(entry: Entry, message: str) -> Entry:
    """The same report with an outcome that the database can hold."""
    if isinstance(entry.report, AttemptEnded) and isinstance(entry.report.outcome, Succeeded | Failed):
        return entry._replace(report=replace(entry.report, outcome=not_storable(message)))
    return entry
