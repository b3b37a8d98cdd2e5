"""What an instance is at one moment: immutable values, from which a decision makes the next ones.

Holds no rule: what may become what stands in `transitions`, how a record changes the state in `evolve`. What changes with every
record is a named tuple, which copies with a change six times faster than a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from immutables import Map

from agiwo.definition.compiled import Workflow

#: The shared empty map; what stands here as a default is immutable.
NOTHING: Final[Map[Any, Any]] = Map()


#: What a step waits for whose call was taken on and is answered later.
CALLBACK: Final = "callback"
#: Why a step waits that takes a signal from outside.
SIGNAL: Final = "signal"
#: Why a step is QUEUED that the instance was told to stop before.
INTERRUPT: Final = "interrupt"
#: Why a step is QUEUED whose circuit is open.
CIRCUIT_OPEN: Final = "circuit_open"


class StepStatus(StrEnum):
    """The states of a step; who moves it on stands in `transitions.STEP`."""

    PENDING = "PENDING"  # not begun
    QUEUED = "QUEUED"  # may begin, and something holds it: room, a circuit, an interrupt; the reason says which
    RUNNING = "RUNNING"  # an attempt is under way
    RETRYING = "RETRYING"  # an attempt failed, the next has its time
    WAITING = "WAITING"  # for a timer or a signal (the reason)
    WAITING_FOR_APPROVAL = "WAITING_FOR_APPROVAL"  # for a person
    UNKNOWN = "UNKNOWN"  # a call may or may not have had its effect; a probe or a person says
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        return self in ENDED_STEP


ENDED_STEP = frozenset({StepStatus.SUCCESS, StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED})


class InstanceStatus(StrEnum):
    """The states of an instance."""

    RUNNING = "RUNNING"  # something runs or can start
    WAITING = "WAITING"  # everything live waits for a person, a timer or an answer
    CANCELLING = "CANCELLING"  # told to end; running calls are being stopped
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"

    @property
    def ended(self) -> bool:
        return self in ENDED_INSTANCE


ENDED_INSTANCE = frozenset({InstanceStatus.SUCCESS, InstanceStatus.FAILED, InstanceStatus.CANCELLED, InstanceStatus.TIMED_OUT})


class Phase(StrEnum):
    """Where an instance stands in its life; each phase starts when nothing of the one before is live."""

    BODY = "body"
    SETTLING = "settling"  # an end is decided; what is live comes to rest, nothing new starts
    HANDLING = "handling"  # error_handler
    FINALLY = "finally"
    ENDED = "ended"


class Settled(StrEnum):
    """How the end of a step counts for a join."""

    SUCCESS = "success"
    SKIPPED = "skipped"
    FAILED = "failed"


class Run(NamedTuple):
    """One iteration of one step, the unit that has a state, a path and an idempotency key.

    `attempt` numbers every start of the call and fences its report; `tries` counts those that the retry policy counts, `deaths` those whose
    node died. `commit` is the place in the order in which results were committed. `cause` is the path of the run whose failure led here.
    `taken` says what took its failure. `fallback` is there once the step's fallback was taken: its `kind`, the `error` that led to it, and
    what another tool is called with. `off` is the step whose join did not need it any more and stopped it, `signal` the signal that a wait
    took. Times are seconds since 1970.
    """

    step: int
    id: str
    path: str
    iteration: int
    status: StepStatus
    attempt: int = 0
    tries: int = 0
    deaths: int = 0
    begun_at: float | None = None
    first_attempt_at: float | None = None
    attempt_at: float | None = None
    ended_at: float | None = None
    arguments: Any = None
    secrets: Any = None
    digest: str | None = None
    output: Any = None
    has_output: bool = False
    error: Mapping[str, Any] | None = None
    attempts: tuple[Mapping[str, Any], ...] = ()
    approval: Mapping[str, Any] | None = None
    held: Any = None
    reason: str | None = None
    evidence: Any = None
    settled: Settled | None = None
    passes: bool = False
    taken: str | None = None
    cause: str | None = None
    commit: int | None = None
    stopping: str | None = None
    probing: bool = False
    marks: tuple[str, ...] = ()
    model: Any = None
    fallback: Mapping[str, Any] | None = None
    waiting_since: float | None = None
    signal: Mapping[str, Any] | None = None
    off: str | None = None


class Signal(NamedTuple):
    """A signal that is kept until a step wants it; `number` is its place in the order of arrival."""

    id: str
    event: str
    payload: Any
    at: float
    number: int
    by: str | None = None
    channel: str = "api"


@dataclass(frozen=True, slots=True)
class Stop:
    """What follows from a step after which the instance was told to stop: the steps (or the reserved word) that its end leads to."""

    steps: tuple[int, ...] = ()
    word: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Jump:
    """A jump that waits until its live target has ended."""

    target: int
    cause: str | None


class Overlap(NamedTuple):
    """A key that was written while steps beside the writer are live: what it had before, and by step what that step's writes come to.

    Kept until nothing is live, so that the writes of steps that run side by side meet in the order of the list and not of arrival.
    """

    base: Any
    has_base: bool
    parts: Map[int, Any]


class Scope(NamedTuple):
    """One list of steps being carried out; masks over the numbers of its steps.

    `live` has begun and not ended, `open` are joins to which a source has brought news that they have not counted. `counted` holds for each
    join the iteration of each source that it has used up. `held` has ended and nothing follows from it yet, since the instance was told to
    stop there.
    """

    path: str = ""
    latest: Map[int, int] = NOTHING
    live: int = 0
    open: int = 0
    counted: Map[int, tuple[int, ...]] = NOTHING
    jumps: tuple[Jump, ...] = ()
    held: int = 0

    @property
    def busy(self) -> int:
        """What is live, and what has ended and still has to lead on."""
        return self.live | self.held


@dataclass(frozen=True, slots=True)
class Ending:
    """The end that was decided: the status to come, the failure that led to it (if one did), the output (if it has one)."""

    status: InstanceStatus
    error: Mapping[str, Any] | None = None
    by: str | None = None
    reason: str | None = None
    output: Any = None


class Instance(NamedTuple):
    """One run of a workflow. `seq` is the number of its last record."""

    id: UUID
    workflow: Workflow
    tenant: str = "default"
    trace_id: str = ""
    status: InstanceStatus = InstanceStatus.RUNNING
    phase: Phase = Phase.BODY
    seq: int = 0
    input: Any = None
    starter: str | None = None
    labels: Mapping[str, str] = NOTHING
    started_at: float = 0.0
    ended_at: float | None = None
    values: Map[str, Any] = NOTHING  # context and state as they are now
    overlaps: Map[str, Overlap] = NOTHING
    scope: Scope = Scope()
    runs: Map[str, Run] = NOTHING
    timers: Map[tuple[str, str], float] = NOTHING  # (path or "", kind) -> due
    commits: int = 0
    ending: Ending | None = None
    finally_next: int = 0
    halted: bool = False  # the handler under way is over: what is live comes to rest, nothing new starts
    not_run: Mapping[str, str] = NOTHING
    signals: Map[str, Signal] = NOTHING  # by id: kept until a step wants them
    signals_used: Map[str, str] = NOTHING  # id -> path of the run that took it
    interrupt_before: tuple[str, ...] = ()
    interrupt_after: tuple[str, ...] = ()
    stops: Map[str, Stop] = NOTHING  # path -> what follows from it once somebody lets the instance go on

    @property
    def ended(self) -> bool:
        return self.phase is Phase.ENDED

    @property
    def due_at(self) -> float | None:
        """When the next timer is due; None if none is set."""
        return min(self.timers.values()) if self.timers else None

    def run(self, path: str) -> Run | None:
        return self.runs.get(path)

    def latest_run(self, step: int) -> Run | None:
        """The latest iteration of a step of the outermost list."""
        iteration = self.scope.latest.get(step, 0)
        return self.runs[run_path(self.workflow.body.steps[step].id, iteration)] if iteration else None

    def live_runs(self) -> list[Run]:
        """The runs that have begun and not ended, in the order of the list."""
        out: list[Run] = []
        live = self.scope.live
        while live:
            low = live & -live
            run = self.latest_run(low.bit_length() - 1)
            if run is not None:
                out.append(run)
            live ^= low
        return out


def run_path(id: str, iteration: int) -> str:
    """The path of an iteration: `fetch`, then `fetch~2` for its second run by jump."""
    return id if iteration == 1 else f"{id}~{iteration}"
