"""What is offered to the machine. Time and random draws arrive here, since the machine takes neither by itself.

Every report is a value; one for an attempt that is not current, or for an instance that has ended, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agiwo.errors import Failure


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The attempt gave a result.

    `model` is what a model step wants kept beside it (model, finish reason, usage), `calls` its calls in full.
    """

    result: Any
    model: Any = None
    calls: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed; `calls` as in Succeeded."""

    failure: Failure
    calls: Any = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt was stopped because the machine asked for it; not `clean` if it did not stop within its grace and is fenced."""

    clean: bool = True


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The call was ordered and never made, since its node stops; whoever has the instance next makes it."""


Outcome = Succeeded | Failed | Stopped | NotBegun


@dataclass(frozen=True, slots=True)
class Begin:
    """Start a blank instance with its checked input; `context` holds values given at the trigger, `starter` is a principal.

    `interrupt_before` and `interrupt_after` are the ids (every run) or paths (one run) of steps to stop at.
    """

    at: float
    input: Any = None
    context: Mapping[str, Any] = field(default_factory=dict)
    starter: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    trace_id: str = ""
    interrupt_before: Sequence[str] = ()
    interrupt_after: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An executor has done (or failed, or been stopped in) one attempt. `draw` in [0, 1) is for the jitter of a retry."""

    at: float
    path: str
    attempt: int
    outcome: Outcome
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class AttemptLost:
    """The node that made this attempt is gone, and nobody knows what became of the call."""

    at: float
    path: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ProbeEnded:
    """What a `reconcile` probe says of an UNKNOWN step: done (with the result), not_done, running, or unavailable."""

    at: float
    path: str
    attempt: int
    answer: str
    result: Any = None
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class TimerDue:
    """Time has passed; every timer that is due by `at` fires."""

    at: float
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A person decided: `action` is approve or reject.

    `values` is the form, `edited` the changed output of a review, in a tuple of one since null is an output too.
    """

    at: float
    approval: str
    action: str
    by: str
    channel: str
    comment: str | None = None
    values: Mapping[str, Any] | None = None
    edited: tuple[Any] | None = None


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Somebody wants the instance to end."""

    at: float
    by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class OutcomeDecided:
    """A person says what became of an UNKNOWN step's call: done with this result, or not done."""

    at: float
    path: str
    by: str
    done: bool
    result: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CallbackReceived:
    """The other side answers a call that was to be answered later: `kind` is result, failure, or sign (it is still at it).

    It holds for the whole run, whichever attempt handed the address out: all of them ask for the same work under the same key. `attempt` is
    the one that was under way when a failure was told; told of an earlier one it changes nothing.
    """

    at: float
    path: str
    kind: str
    result: Any = None
    failure: Failure | None = None
    attempt: int | None = None
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """Something happened outside: `event` names it, `payload` is what it carries. The same `id` counts once."""

    at: float
    id: str
    event: str
    payload: Any
    by: str
    channel: str = "api"


@dataclass(frozen=True, slots=True)
class Resumed:
    """Somebody lets the instance go on from where it was told to stop: from these paths, or (None) from wherever it stands."""

    at: float
    by: str
    reason: str | None = None
    paths: Sequence[str] | None = None


Report = (
    Begin
    | AttemptEnded
    | AttemptLost
    | ProbeEnded
    | TimerDue
    | ApprovalDecided
    | CancelAsked
    | OutcomeDecided
    | CallbackReceived
    | SignalReceived
    | Resumed
)
