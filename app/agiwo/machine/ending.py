"""How an instance comes to an end: what is decided, what happens to what is still live, and what is told at the very end.

Nothing new starts once an end is decided, and nothing goes on to a handler while anything is live.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.definition.contract import Effect
from agiwo.machine.commands import CloseApproval, StopAttempt
from agiwo.machine.state import CALLBACK, InstanceStatus, Phase, Run, StepStatus
from agiwo.machine.work import Work

#: Why a call is being stopped that has used up its step's `total_timeout`; every other reason means that its instance comes to rest.
TOTAL_TIMEOUT = "total_timeout"


def resting(work: Work, run: Run) -> bool:
    """Whether nothing may follow from `run`: an end is decided, or its handler is over, or it was told to stop."""
    instance = work.instance
    return instance.phase is Phase.SETTLING or instance.halted or run.stopping not in (None, TOTAL_TIMEOUT)


def begin_end(
    work: Work,
    status: InstanceStatus,
    *,
    error: Mapping[str, Any] | None = None,
    by: str | None = None,
    reason: str,
    output: Any = None,
    stop: bool = False,
) -> None:
    """Decide the end `status`. With `stop` running calls are aborted, else they finish (drain); waits are cancelled in either case."""
    data: dict[str, Any] = {"status": str(status), "reason": reason, "stop": stop}
    if error is not None:
        data["error"] = error
    if output is not None:
        data["output"] = output
    work.todo.clear()
    work.emit("instance.ending", data=data, by=by)
    bring_to_rest(work, reason, stop=stop)


def bring_to_rest(work: Work, reason: str, *, stop: bool) -> None:
    """Cancel everything that waits and, with `stop`, ask every running call to stop."""
    for run in work.instance.live_runs():
        call_off(work, run, reason, stop=stop)


def call_off(work: Work, run: Run, reason: str, *, stop: bool, off: str | None = None) -> None:
    """Cancel a run that waits; with `stop` ask a running call to stop. `off` is the step whose join does not need it any more."""
    data = {"reason": reason} if off is None else {"reason": reason, "off": off}
    if run.status is StepStatus.RUNNING:
        if stop and run.stopping in (None, TOTAL_TIMEOUT):
            work.emit("step.stopping", run.path, data, attempt=run.attempt)
            if run.stopping is None:
                work.order(StopAttempt(run.path, run.attempt, reason))
    elif run.status is StepStatus.UNKNOWN:
        # Its call may have had its effect. A failing instance waits for the probe or the person; only a cancel leaves it so.
        if stop:
            work.emit("step.cancelled", run.path, {**data, "outcome": "unknown"})
    else:
        if run.status is StepStatus.WAITING_FOR_APPROVAL and run.approval is not None:
            work.order(CloseApproval(run.approval["id"], "cancelled"))
        if run.status is StepStatus.WAITING and run.reason == CALLBACK and not work.step(run.step).effect.safe_to_repeat:
            data["outcome"] = "unknown"  # the other side has taken the work, and nobody will hear what becomes of it
        work.emit("step.cancelled", run.path, data)


def cancelled(work: Work, run: Run, effect: Effect, *, certain: bool = False) -> None:
    """A call that was told to stop has stopped, or was lost while it was stopping; `certain` if it is known what became of it."""
    data: dict[str, Any] = {"reason": run.stopping or "cancelled"}
    if not effect.safe_to_repeat and not certain:
        data["outcome"] = "unknown"
    work.emit("step.cancelled", run.path, data, attempt=run.attempt)


def end(work: Work, status: InstanceStatus, output: Any = None, error: Mapping[str, Any] | None = None) -> None:
    """The last record: the end and, for each step that never began, why."""
    data: dict[str, Any] = {"status": str(status)}
    if output is not None:
        data["output"] = output
    if error is not None:
        data["error"] = error
    if not_run := reasons_not_run(work, status):
        data["not_run"] = not_run
    work.emit("instance.ended", data=data)


def reasons_not_run(work: Work, status: InstanceStatus) -> dict[str, str]:
    """Step id -> not_chosen, upstream, cancelled or not_reached, for steps that have no run."""
    instance = work.instance
    out: dict[str, str] = {}
    for step in instance.workflow.body:
        if step.index in instance.scope.latest:
            continue
        if step.set_aside:
            out[step.id] = "not_reached"
        elif status is InstanceStatus.SUCCESS:
            out[step.id] = "not_chosen"
        elif status is InstanceStatus.FAILED:
            out[step.id] = "upstream"
        else:
            out[step.id] = "cancelled"
    return out


def in_handlers(work: Work) -> bool:
    return work.instance.phase in (Phase.HANDLING, Phase.FINALLY)
