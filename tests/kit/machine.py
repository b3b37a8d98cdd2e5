"""Drives the pure machine as an engine would, in any order, and checks after every decision what must hold whatever happens.

The world is a function from (path, attempt) to an outcome, so that two orders of arrival meet the same world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agiwo.definition import check, load
from agiwo.definition.compiled import Workflow
from agiwo.definition.contract import Effect, ToolContract
from agiwo.errors import Failure
from agiwo.machine import (
    CloseApproval,
    Decision,
    Instance,
    OpenApproval,
    Record,
    Run,
    StartAttempt,
    StartProbe,
    StepStatus,
    StopAttempt,
    blank,
    decide,
    evolve,
    restore,
    snapshot,
)
from agiwo.machine.interrupts import interrupted
from agiwo.machine.reports import (
    ApprovalDecided,
    AttemptEnded,
    AttemptLost,
    Begin,
    CancelAsked,
    Failed,
    Outcome,
    OutcomeDecided,
    ProbeEnded,
    Report,
    Resumed,
    SignalReceived,
    Stopped,
    Succeeded,
    TimerDue,
)
from agiwo.machine.retry import NOT_DONE_TRIES
from agiwo.machine.view import wait_kind

ID = UUID("0190f3a0-0000-7042-8000-000000000001")
ANY_OBJECT = {"type": "object"}

#: A tool of each effect; what they answer is the test's matter.
CONTRACTS = {
    name: ToolContract(name, parameters=ANY_OBJECT, effect=effect, reconcile=reconcile)
    for name, effect, reconcile in (
        ("t.pure", Effect.PURE, False),
        ("t.read", Effect.READ, False),
        ("t.put", Effect.IDEMPOTENT_WRITE, False),
        ("t.write", Effect.WRITE, False),
        ("t.probed", Effect.WRITE, True),
        ("t.irreversible", Effect.IRREVERSIBLE, False),
    )
}


def compiled(text: str) -> Workflow:
    """A definition that must be free of errors."""
    checked = check(load(text), CONTRACTS, models=["default"])
    errors = [p for p in checked.problems if p.severity == "error"]
    assert not errors, "\n".join(f"{p.line}: {p.code} {p.message}" for p in errors)
    assert checked.workflow is not None
    return checked.workflow


def differences(one: Instance, other: Instance) -> list[tuple[str, Any, Any]]:
    """The fields in which two instances differ."""
    pairs = ((name, getattr(one, name), getattr(other, name)) for name in Instance._fields if name != "workflow")
    return [(name, a, b) for name, a, b in pairs if a != b]


World = Callable[[str, int], Outcome]


def all_well(path: str, attempt: int) -> Outcome:
    return Succeeded({"path": path})


def failing(**kinds: str) -> World:
    """A world in which these steps always fail, with this type of failure."""

    def world(path: str, attempt: int) -> Outcome:
        kind = kinds.get(path.partition("~")[0])
        return Failed(Failure(kind, f"{path} attempt {attempt}")) if kind else Succeeded({"path": path})

    return world


@dataclass
class Drive:
    """One instance being driven. `history` holds all records, `calls` every attempt that was ever ordered."""

    workflow: Workflow
    world: World = all_well
    input: Any = None
    context: dict[str, Any] = field(default_factory=dict)
    now: float = 1_000_000.0
    instance: Instance = field(init=False)
    history: list[Record] = field(default_factory=list)
    calls: list[StartAttempt] = field(default_factory=list)
    running: dict[str, StartAttempt] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)
    probes: dict[str, StartProbe] = field(default_factory=dict)
    approvals: dict[str, OpenApproval] = field(default_factory=dict)
    past: list[Report] = field(default_factory=list)
    signals: int = 0
    interrupt_before: tuple[str, ...] = ()
    interrupt_after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.instance = blank(ID, self.workflow)
        stops = {"interrupt_before": self.interrupt_before, "interrupt_after": self.interrupt_after}
        self.report(Begin(self.now, input=self.input, context=self.context, trace_id="0" * 32, **stops))

    # ------------------------------------------------------------ reports

    def report(self, report: Report) -> Decision:
        """Offer a report, check everything, carry out the commands."""
        before = self.instance
        decision = decide(before, report)
        self.check(before, report, decision)
        self.instance = decision.instance
        self.history.extend(decision.records)
        self.past.append(report)
        for command in decision.commands:
            self._carry_out(command)
        for path in [p for p in self.running if self._status(p) is not StepStatus.RUNNING]:
            del self.running[path]
        for path in [p for p in self.probes if not self._is_probing(p)]:
            del self.probes[path]
        self.check_owed()
        return decision

    def _carry_out(self, command: object) -> None:
        if isinstance(command, StartAttempt):
            assert not any(c.path == command.path and c.attempt == command.attempt for c in self.calls), "ordered twice for one attempt"
            self.calls.append(command)
            self.running[command.path] = command
            self.stopping.discard(command.path)
        elif isinstance(command, StopAttempt):
            assert command.path in self.running
            self.stopping.add(command.path)
        elif isinstance(command, StartProbe):
            self.probes[command.path] = command
        elif isinstance(command, OpenApproval):
            self.approvals[command.id] = command
        elif isinstance(command, CloseApproval):
            del self.approvals[command.id]

    def _status(self, path: str) -> StepStatus | None:
        run = self.instance.runs.get(path)
        return run.status if run else None

    def _is_probing(self, path: str) -> bool:
        run = self.instance.runs.get(path)
        return run is not None and run.status is StepStatus.UNKNOWN and run.probing

    # ------------------------------------------------------------ moves

    def finish(self, path: str, outcome: Outcome | None = None) -> None:
        """The running call at `path` ends as the world (or `outcome`) says; one that was told to stop has stopped."""
        call = self.running[path]
        if outcome is None:
            outcome = Stopped() if path in self.stopping else self.world(path, call.attempt)
        self.now += 1
        self.report(AttemptEnded(self.now, path, call.attempt, outcome))

    def lose(self, path: str) -> None:
        self.now += 1
        self.report(AttemptLost(self.now, path, self.running.pop(path).attempt))

    def probe(self, path: str, answer: str, result: Any = None) -> None:
        self.now += 1
        self.report(ProbeEnded(self.now, path, self.probes.pop(path).attempt, answer, result))

    def pass_time(self) -> None:
        """Go to the next timer."""
        due = self.instance.due_at
        assert due is not None
        self.now = max(self.now, due)
        self.report(TimerDue(self.now))

    def answer(self, action: str = "approve", *, id: str | None = None, **more: Any) -> None:
        id = id or next(iter(self.approvals))
        del self.approvals[id]
        self.now += 1
        self.report(ApprovalDecided(self.now, id, action, by="user:a@example.com", channel="api", **more))

    def cancel(self) -> None:
        self.now += 1
        self.report(CancelAsked(self.now, "user:op@example.com", "enough"))

    def signal(self, event: str, payload: Any = None, *, id: str | None = None) -> None:
        self.now += 1
        self.signals += 1
        self.report(SignalReceived(self.now, id or f"s{self.signals}", event, payload, by="key:sender"))

    def resume(self) -> None:
        self.now += 1
        self.report(Resumed(self.now, "user:op@example.com", "looked at it"))

    def waiting(self) -> list[Run]:
        """The runs that wait for a signal."""
        return [run for run in self.instance.live_runs() if wait_kind(run) == "signal"]

    def say(self, path: str, done: bool, result: Any = None) -> None:
        self.now += 1
        self.report(OutcomeDecided(self.now, path, "user:op@example.com", done, result))

    def moves(self) -> list[tuple[str, str]]:
        """Everything that the outside may do next, in a fixed order."""
        out = [("finish", path) for path in sorted(self.running)]
        out += [("probe", path) for path in sorted(self.probes)]
        out += [("approve", id) for id in sorted(self.approvals)]
        out += [("signal", run.path) for run in self.waiting()]
        if interrupted(self.instance):
            out.append(("resume", ""))
        if self.instance.timers:
            out.append(("time", ""))
        out += [("say", r.path) for r in self.instance.live_runs() if r.status is StepStatus.UNKNOWN and not r.probing and not out]
        return out

    def move(self, kind: str, what: str) -> None:
        if kind == "finish":
            self.finish(what)
        elif kind == "probe":
            self.probe(what, "not_done")
        elif kind == "approve":
            self.answer(id=what)
        elif kind == "signal":
            self.signal(self.instance.runs[what].arguments["events"][0], {"for": what})
        elif kind == "resume":
            self.resume()
        elif kind == "time":
            self.pass_time()
        else:
            self.say(what, True)

    def to_end(self, choices: Sequence[int] = (), limit: int = 3000, *, patient: bool = False) -> Drive:
        """Carry on to the end; `choices` pick the order, then the first move each time. `patient`: time passes only if nothing else can."""
        numbers = iter(choices)
        for _ in range(limit):
            if self.instance.ended:
                return self
            moves = self.moves()
            if patient and len(moves) > 1:
                moves = [move for move in moves if move[0] != "time"]
            assert moves, f"a live instance that nobody owes a report: {self.statuses()}"
            self.move(*moves[next(numbers, 0) % len(moves)])
        raise AssertionError(f"no end after {limit} moves: {self.statuses()}")

    # ------------------------------------------------------------ what holds

    def check(self, before: Instance, report: Report, decision: Decision) -> None:
        again = decide(before, report)
        assert again == decision, "the same input gave another answer"
        if before.ended:
            assert not decision.records
            assert not decision.commands
        replayed = before
        for record in decision.records:
            replayed = evolve(replayed, Record.from_json(record.to_json()))
        lost = differences(replayed, decision.instance)
        assert not lost, f"the records do not give the instance: {lost}"
        assert [r.seq for r in decision.records] == list(range(before.seq + 1, decision.instance.seq + 1))
        after = decision.instance
        lost = differences(restore(self.workflow, "default", ID, snapshot(after)), after)
        assert not lost, f"the snapshot does not give the instance: {lost}"
        for command in decision.commands:
            if isinstance(command, StartAttempt):
                self._within_policy(after, command)

    def _within_policy(self, instance: Instance, call: StartAttempt) -> None:
        run = instance.runs[call.path]
        limit = call.step.retry.max_attempts
        if not call.step.effect.safe_to_repeat:
            limit = max(limit, NOT_DONE_TRIES)
        assert run.tries <= limit

    def check_owed(self) -> None:
        """A live instance always has something that owes it a report; an ended one has nothing open."""
        if self.instance.ended:
            assert not self.running
            assert not self.approvals
            assert not self.probes
            assert not self.instance.timers
            assert not self.instance.stops
            assert all(run.status.ended for run in self.instance.runs.values())
            started = {run.id for run in self.instance.runs.values()}
            assert set(self.instance.not_run) == {s.id for s in self.workflow.body} - started
            return
        for run in self.instance.live_runs():
            owed = (
                run.path in self.running
                or run.path in self.probes
                or any(path == run.path for path, _ in self.instance.timers)
                or any(a.path == run.path for a in self.approvals.values())
                or (run.status is StepStatus.UNKNOWN and not run.probing)
                or wait_kind(run) in ("signal", "interrupt")
            )
            assert owed, f"{run.path} is {run.status} and nobody owes it a report"
        assert self.instance.live_runs() or self.instance.stops, "alive, and nothing is live"

    def stale(self) -> None:
        """Every report that was ever offered, again: nothing may change."""
        for report in self.past:
            if isinstance(report, TimerDue | CancelAsked | OutcomeDecided | Resumed):
                continue
            if isinstance(report, AttemptLost | ProbeEnded) and self._is_probing(report.path):
                continue  # asking a probe once more is what a loss during a probe is for
            decision = decide(self.instance, report)
            assert decision.records == ()
            assert decision.instance is self.instance or decision.instance == self.instance

    # ------------------------------------------------------------ looking

    def statuses(self) -> dict[str, str]:
        return {path: str(run.status) for path, run in sorted(self.instance.runs.items())}

    def called(self) -> list[str]:
        return [call.path for call in self.calls]

    def outcome(self) -> dict[str, Any]:
        """What an outsider sees at the end, order of arrival aside."""
        runs = {
            path: (str(run.status), run.output, run.reason, run.attempt, run.taken, str(run.settled))
            for path, run in self.instance.runs.items()
        }
        ending = self.instance.ending
        not_run = dict(self.instance.not_run)
        return {"status": str(self.instance.status), "runs": runs, "not_run": not_run, "output": ending and ending.output}
