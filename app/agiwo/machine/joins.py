"""How a join stands: computed from its sources each time, so that its answer does not depend on the order in which they ended.

Looks only; what follows from it is started and skipped in `flow`.
"""

from __future__ import annotations

from typing import NamedTuple

from agiwo.definition.compiled import Join, JoinKind, Step
from agiwo.machine.state import Instance, Run, Settled, StepStatus, run_path
from agiwo.machine.work import Work

#: Why a step was skipped whose join did not let it start.
NOT_MET = ("join_not_met", "upstream")


class Standing(NamedTuple):
    """The sources of a join: ids by how they have settled, and masks of those that may still come and of those that will not.

    A source that will not come (`lacking`) is also among the `absent`.
    """

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    pending: int = 0
    lacking: int = 0


def standing(instance: Instance, step: Step, *, failing: int | None = None) -> Standing:
    """How the join of `step` stands; `failing` is a source that is about to have failed."""
    join = step.join
    assert join is not None
    scope = instance.scope
    busy = scope.busy if failing is None else scope.busy & ~(1 << failing)
    if not join.early and busy & join.mask:
        return Standing(pending=busy & join.mask)
    coming = busy | _jumped(instance)
    used = scope.counted.get(step.index)
    steps = instance.workflow.body.steps
    succeeded: list[str] = []
    failed: list[str] = []
    absent: list[str] = []
    pending = lacking = 0
    for position, source in enumerate(join.sources):
        id = steps[source].id
        if busy >> source & 1:
            pending |= 1 << source
        elif source == failing:
            failed.append(id)
        elif scope.latest.get(source, 0) > (used[position] if used else 0):
            run = instance.runs[run_path(id, scope.latest[source])]
            if run.passes if join.kind is JoinKind.ROW else run.settled is Settled.SUCCESS:
                succeeded.append(id)
            else:
                (failed if run.settled is Settled.FAILED else absent).append(id)
        elif coming and coming & instance.workflow.body.leading_to(source, step.index):
            pending |= 1 << source
            if not join.early:
                return Standing(pending=pending)
        else:
            lacking |= 1 << source
            absent.append(id)
    return Standing(tuple(succeeded), tuple(failed), tuple(absent), pending, lacking)


def _jumped(instance: Instance) -> int:
    mask = 0
    for jump in instance.scope.jumps:
        mask |= 1 << jump.target
    return mask


def verdict(join: Join, found: Standing) -> bool | None:
    """Whether the join is met; None while that is still open."""
    if join.early:
        if len(found.succeeded) >= join.need:
            return True
        return False if len(found.succeeded) + found.pending.bit_count() < join.need else None
    if found.pending:
        return None
    if join.kind is JoinKind.ALL_DONE:
        return True
    if join.kind is JoinKind.ALL_SUCCESS or join.kind.counts:
        return not found.failed and not found.absent
    return bool(found.succeeded) and not found.failed


def counted(work: Work, step: Step) -> list[int]:
    """The iteration of each source that a start of `step` uses up.

    Of a source that has brought news it is the one that ended; of one that has not, and is on its way, the one to come, so that it starts
    nothing later.
    """
    scope = work.instance.scope
    used = scope.counted.get(step.index)
    join = step.join
    # What is live, and what is about to start: whichever target of one jump is begun first, and joins that have news.
    on_way = scope.busy | scope.open & ~step.bit | _jumped(work.instance)
    for activation in work.todo:
        on_way |= 1 << activation.step
    if join is not None and join.cancel_rest:
        on_way &= ~_called_off(work.instance)
    out: list[int] = []
    for position, source in enumerate(join.sources if join is not None else ()):
        latest = scope.latest.get(source, 0)
        news = scope.live >> source & 1 or latest > (used[position] if used else 0)
        if not news and on_way and on_way & work.instance.workflow.body.leading_to(source, step.index):
            latest += 1
        out.append(latest)
    return out


def _called_off(instance: Instance) -> int:
    """Mask of the live steps that a join has told to stop."""
    mask = 0
    for run in instance.live_runs():
        if run.off is not None:
            mask |= 1 << run.step
    return mask


def tolerates(instance: Instance, step: Step, source: Step, iteration: int) -> bool:
    """Whether the join of `step` allows that this iteration of `source` fails: it waits whatever happens, or can be met without it."""
    join = step.join
    if join is None or step.in_row or not join.kind.allows_failed:
        return False
    if join.kind is JoinKind.ALL_DONE:
        return True
    used = scope_used(instance, step, source)
    if used >= iteration:
        return not _was_not_met(instance.latest_run(step.index))
    return verdict(join, standing(instance, step, failing=source.index)) is not False


def scope_used(instance: Instance, step: Step, source: Step) -> int:
    """The last iteration of `source` that the join of `step` has used up."""
    used = instance.scope.counted.get(step.index)
    return 0 if used is None or step.join is None else used[step.join.sources.index(source.index)]


def _was_not_met(run: Run | None) -> bool:
    return run is not None and run.status is StepStatus.SKIPPED and run.reason in NOT_MET


def waiting_on(instance: Instance, step: Step) -> list[Step]:
    """The steps whose join has `step` as a source."""
    return steps_in(instance, instance.workflow.body.waiting_on[step.index])


def steps_in(instance: Instance, mask: int) -> list[Step]:
    """The steps of a mask, in the order of the list."""
    out: list[Step] = []
    while mask:
        low = mask & -mask
        out.append(instance.workflow.body.steps[low.bit_length() - 1])
        mask ^= low
    return out
