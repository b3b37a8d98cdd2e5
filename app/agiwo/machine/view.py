"""What templates see of an instance: the roots of LANGUAGE 4, resolved lazily, values handed on and never copied.

Only values that stand in the instance; nothing here asks a clock or a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.clock import rfc3339
from agiwo.machine.state import CALLBACK, CIRCUIT_OPEN, INTERRUPT, SIGNAL, Instance, Run, StepStatus, run_path
from agiwo.template import Absent

#: What `steps.X` offers.
STEP_MEMBERS = ("output", "status", "error", "attempts", "iteration", "approval", "signal", "model", "started_at", "ended_at", "iterations")
INSTANCE_MEMBERS = ("id", "workflow", "version", "trace_id", "tenant", "started_at")

_WHY_NO_OUTPUT = {
    StepStatus.FAILED: "the step failed",
    StepStatus.SKIPPED: "the step was skipped",
    StepStatus.CANCELLED: "the step was cancelled",
}


_WAITS = {
    StepStatus.WAITING_FOR_APPROVAL: "approval",
    StepStatus.UNKNOWN: "outcome",
    StepStatus.WAITING: "timer",
    StepStatus.RETRYING: "retry",
}
#: Everything that a run may wait for, in the order in which it is shown: people first.
WAIT_KINDS = ("approval", "outcome", INTERRUPT, SIGNAL, "timer", "retry", CALLBACK, "circuit", "room")


def wait_kind(run: Run) -> str | None:
    """What a run waits for, one of WAIT_KINDS; None for one that runs or has ended."""
    if run.status is StepStatus.QUEUED:
        return INTERRUPT if run.reason == INTERRUPT else "circuit" if run.reason == CIRCUIT_OPEN else "room"
    if run.status is StepStatus.WAITING and run.reason in (CALLBACK, SIGNAL):
        return run.reason
    return _WAITS.get(run.status)


#: States in which the other side may still say what became of a call that was to be answered later, by whichever attempt it was made.
_AWAITED = frozenset({StepStatus.QUEUED, StepStatus.RUNNING, StepStatus.RETRYING, StepStatus.WAITING, StepStatus.UNKNOWN})


def awaits_callback(run: Run) -> bool:
    """Whether an answer to a call of `run` still counts: it has not ended, and goes on neither with its fallback nor before a person."""
    return run.fallback is None and run.status in _AWAITED


@dataclass(frozen=True, slots=True)
class StepsView:
    """`steps`: every step of the list by its id. `candidate` is a run that is about to be settled and is seen as if it were."""

    instance: Instance
    candidate: Run | None = None

    def member(self, name: str) -> object:
        index = self.instance.workflow.body.number.get(name)
        if index is None:
            return Absent(f"steps.{name}", "there is no such step", self.members())
        return StepView(self.instance, index, self.candidate if self.candidate and self.candidate.step == index else None)

    def members(self) -> tuple[str, ...]:
        return tuple(self.instance.workflow.body.number)


@dataclass(frozen=True, slots=True)
class StepView:
    """`steps.X`: the status of its latest iteration, the output of the latest one that has ended."""

    instance: Instance
    index: int
    candidate: Run | None = None

    def member(self, name: str) -> object:  # noqa: C901 - one line a member; a table of lambdas would only hide it
        id = self.instance.workflow.body.steps[self.index].id
        latest = self.candidate or self.instance.latest_run(self.index)
        if name == "output":
            return self._output(id)
        if name == "status":
            return str(latest.status if latest else StepStatus.PENDING)
        if name == "attempts":
            return latest.attempt if latest else 0
        if name == "iteration":
            return latest.iteration if latest else 0
        if name not in STEP_MEMBERS:
            return Absent(f"steps.{id}.{name}", "a step has no such member", STEP_MEMBERS)
        ended = self._ended()
        if name == "iterations":
            return [self._iteration(id, n) for n in range(1, (latest.iteration if latest else 0) + 1)]
        if ended is None:
            return Absent(f"steps.{id}.{name}", self._why(latest))
        if name == "error":
            return dict(ended.error) if ended.error is not None else Absent(f"steps.{id}.error", "the step did not fail")
        if name == "approval":
            return dict(ended.approval) if ended.approval else Absent(f"steps.{id}.approval", "nobody was asked")
        if name == "signal":
            if ended.signal is None:
                return Absent(f"steps.{id}.signal", "the step took no signal")
            return {**ended.signal, "at": rfc3339(ended.signal["at"])}
        if name == "model":
            return ended.model if ended.model is not None else Absent(f"steps.{id}.model", "the step asked no model")
        at = ended.begun_at if name == "started_at" else ended.ended_at
        return rfc3339(at) if at is not None else None

    def members(self) -> tuple[str, ...]:
        return STEP_MEMBERS

    def _iteration(self, id: str, number: int) -> dict[str, Any]:
        run = self.instance.runs.get(run_path(id, number))
        if run is None:
            return {}
        out: dict[str, Any] = {"status": str(run.status), "iteration": number}
        if run.has_output:
            out["output"] = run.output
        return out

    def _ended(self) -> Run | None:
        """The latest iteration that has ended; while one is live that is the one before it."""
        if self.candidate is not None:
            return self.candidate
        latest = self.instance.latest_run(self.index)
        if latest is None or latest.status.ended:
            return latest
        return self.instance.runs.get(run_path(latest.id, latest.iteration - 1)) if latest.iteration > 1 else None

    def _output(self, id: str) -> object:
        ended = self._ended()
        if ended is not None and ended.has_output:
            return ended.output
        return Absent(f"steps.{id}.output", self._why(ended or self.instance.latest_run(self.index)))

    def _why(self, run: Run | None) -> str:
        if run is None:
            return "the step has not run"
        why = _WHY_NO_OUTPUT.get(run.status)
        if why is None:
            return f"the step has not ended ({run.status})"
        if run.status is StepStatus.FAILED and run.error is not None:
            return f"{why} ({run.error['type']})"
        return f"{why} ({run.reason})" if run.reason else why


def present_values(instance: Instance) -> Mapping[str, Any]:
    """Context and state as they are now, writes of steps that run side by side included."""
    return instance.values


def scope_of(instance: Instance, run: Run | None = None, **more: Any) -> dict[str, object]:
    """The scope for rendering in `instance`, as seen by `run`.

    `more` adds roots of the moment (`result`, `payload`). A run with `settled` set counts as ended (a candidate for `output`, `route`).
    """
    values = present_values(instance)
    state = instance.workflow.state
    candidate = run if run is not None and run.settled is not None else None
    scope: dict[str, object] = {
        "input": instance.input,
        "context": {k: v for k, v in values.items() if k not in state} if state else dict(values),
        "state": {k: values[k] for k in state if k in values},
        "steps": StepsView(instance, candidate),
        "instance": InstanceView(instance),
        **more,
    }
    error = _error_seen(instance, run) if "error" not in more else None
    if error is not None:
        scope["error"] = error
    return scope


def _error_seen(instance: Instance, run: Run | None) -> Mapping[str, Any] | None:
    cause = instance.runs.get(run.cause) if run is not None and run.cause is not None else None
    if cause is not None and cause.error is not None:
        return {**cause.error, "step": cause.id, "path": cause.path, "attempts": [dict(a) for a in cause.attempts]}
    return instance.ending.error if instance.ending is not None else None


@dataclass(frozen=True, slots=True)
class InstanceView:
    """`instance`: what the running instance is called."""

    instance: Instance

    def member(self, name: str) -> object:
        instance = self.instance
        if name == "id":
            return str(instance.id)
        if name == "workflow":
            return instance.workflow.id
        if name == "version":
            return instance.workflow.version
        if name == "started_at":
            return rfc3339(instance.started_at)
        if name in ("trace_id", "tenant"):
            return getattr(instance, name)
        return Absent(f"instance.{name}", "there is no such member", INSTANCE_MEMBERS)

    def members(self) -> tuple[str, ...]:
        return INSTANCE_MEMBERS
