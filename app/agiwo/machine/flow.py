"""What starts next: jumps, joins, and the phases of an instance's life, until nothing more can be decided.

Joins are computed from their sources each time and are no state of their own, so their answer does not depend on the order of arrival.
"""

from __future__ import annotations

from agiwo.definition.compiled import Join, Step
from agiwo.definition.reading import mask_of
from agiwo.errors import TemplateError, ValueRefused
from agiwo.machine.ending import begin_end, call_off, end
from agiwo.machine.joins import Standing, counted, standing, steps_in, verdict
from agiwo.machine.settle import after_skip, allowed_by_join, unhandled_failure
from agiwo.machine.start import activate
from agiwo.machine.state import InstanceStatus, Phase, Run, run_path
from agiwo.machine.view import scope_of
from agiwo.machine.work import Activation, Work
from agiwo.values import check


def advance(work: Work) -> None:
    """Carry on until only reports from outside can move the instance."""
    while not work.instance.ended:
        if work.todo:
            activate(work, work.todo.popleft())
        elif work.instance.phase is not Phase.SETTLING and not work.instance.halted and (_waiting_jump(work) or _open_join(work)):
            continue
        elif work.instance.scope.busy:
            return
        else:
            _next_phase(work)


# ---------------------------------------------------------------- jumps and joins


def _waiting_jump(work: Work) -> bool:
    scope = work.instance.scope
    for jump in scope.jumps:
        if not scope.busy >> jump.target & 1:
            activate(work, Activation(jump.target, jump.cause, waited=True))
            return True
    return False


def _open_join(work: Work) -> bool:
    """Resolve one join that has news; False if none can be.

    First those whose sources have all brought news, or enough of them; then those whose missing sources cannot come any more, unless
    another open join may still bring them; last, if open joins wait only for each other, the one written first.
    """
    scope = work.instance.scope
    open = scope.open & ~scope.busy
    if not open:
        return False
    missing: list[tuple[Step, Standing]] = []
    for step in steps_in(work.instance, open):
        join = step.join
        assert join is not None
        found = standing(work.instance, step)
        met = verdict(join, found)
        if met is None:
            continue
        if not found.lacking or (met and join.early):
            _resolve(work, step, found)
            return True
        missing.append((step, found))
    for step, found in missing:
        if not _reachable_from(work, step, found.lacking, open & ~step.bit):
            _resolve(work, step, found)
            return True
    if missing:
        _resolve(work, *missing[0])
        return True
    return False


def _reachable_from(work: Work, step: Step, sources: int, others: int) -> bool:
    body = work.instance.workflow.body
    while sources:
        low = sources & -sources
        if others & body.leading_to(low.bit_length() - 1, step.index):
            return True
        sources ^= low
    return False


def _resolve(work: Work, step: Step, found: Standing) -> None:
    """It is settled how the join stands: the step starts, or is skipped and says by whom."""
    join = step.join
    assert join is not None
    if verdict(join, found):
        if join.cancel_rest:
            _cut(work, step, join)
        work.todo.append(Activation(step.index, _cause(work, step, found)))
        return
    scope = work.instance.scope
    path = run_path(step.id, scope.latest.get(step.index, 0) + 1)
    used = counted(work, step) if join.early else [scope.latest.get(source, 0) for source in join.sources]
    reason = "join_not_met" if join.kind.counts or found.failed or found.succeeded else "upstream"
    work.emit("step.skipped", path, {"reason": reason, "evidence": {"sources": list(found.failed or found.absent)}, "counted": used})
    if join.kind.counts and (run := _no_longer_allowed(work, step, found)) is not None:
        unhandled_failure(work, run, run.error or {})
        return
    after_skip(work, work.run(path), step)


def _no_longer_allowed(work: Work, step: Step, found: Standing) -> Run | None:
    """A source whose failure only this join allowed, as long as it could be met without it."""
    for id in found.failed:
        source = work.instance.workflow.body[id]
        run = work.instance.latest_run(source.index)
        if run is not None and run.taken == "join" and not allowed_by_join(work, run, source, but=step):
            return run
    return None


def _cut(work: Work, step: Step, join: Join) -> None:
    """The join has enough and wants no more: what still leads to its sources is called off, and leads on to nothing there."""
    scope, body = work.instance.scope, work.instance.workflow.body
    leading = 0
    for source in join.sources:
        leading |= body.leading_to(source, step.index)
    off = (scope.held | mask_of(jump.target for jump in scope.jumps)) & leading
    work.emit("join.cut", data={"step": step.id, "off": [one.id for one in steps_in(work.instance, off)]})
    for one in steps_in(work.instance, scope.open & leading & ~scope.live):
        path = run_path(one.id, scope.latest.get(one.index, 0) + 1)
        work.emit("step.skipped", path, {"reason": "cancelled", "counted": counted(work, one), "off": step.id})
    for run in work.instance.live_runs():
        if leading >> run.step & 1:
            call_off(work, run, f"{step.id} has what it waits for", stop=True, off=step.id)


def _cause(work: Work, step: Step, found: Standing) -> str | None:
    """The failure that led to a source leads on to what waits for it."""
    assert step.join is not None
    for source in step.join.sources:
        if not (found.lacking | found.pending) >> source & 1:
            run = work.instance.latest_run(source)
            if run is not None and run.cause is not None:
                return run.cause
    return None


# ---------------------------------------------------------------- phases


def _next_phase(work: Work) -> None:
    """Nothing is live: the body is complete, or the end that was decided goes one phase on."""
    instance = work.instance
    workflow = instance.workflow
    if instance.phase is Phase.BODY:
        _complete(work)
        return
    ending = instance.ending
    assert ending is not None
    if (
        instance.phase is Phase.SETTLING
        and workflow.error_handler is not None
        and ending.status
        in (
            InstanceStatus.FAILED,
            InstanceStatus.TIMED_OUT,
        )
    ):
        work.emit("instance.handling", data={"due": work.at + workflow.handler_timeout})
        work.todo.append(Activation(workflow.error_handler, ending.by if ending.by in instance.runs else None))
        return
    at = instance.finally_next if instance.phase is Phase.FINALLY else 0
    if at < len(workflow.finally_):
        work.emit("instance.finally", data={"next": at + 1, "due": work.at + workflow.handler_timeout})
        work.todo.append(Activation(workflow.finally_[at]))
        return
    end(work, ending.status, ending.output, ending.error)


def _complete(work: Work) -> None:
    workflow = work.instance.workflow
    output = None
    try:
        if workflow.output is not None:
            output = workflow.output.render(scope_of(work.instance), open_as_null=True).value
            check(output)
    except (TemplateError, ValueRefused) as exc:
        error = {"type": "TemplateError", "message": f"output: {exc}"}
        begin_end(work, InstanceStatus.FAILED, error=error, reason="the output cannot be rendered")
        return
    if workflow.finally_:
        begin_end(work, InstanceStatus.SUCCESS, output=output, reason="complete")
        return
    end(work, InstanceStatus.SUCCESS, output)
