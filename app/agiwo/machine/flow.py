"""What starts next: jumps, joins, and the phases of an instance's life, until nothing more can be decided.

Joins are computed from their sources each time and are no state of their own, so their answer does not depend on the order of arrival.
"""

from __future__ import annotations

from agiwo.definition.compiled import JoinKind, Step
from agiwo.errors import TemplateError, ValueRefused
from agiwo.machine.ending import begin_end, end
from agiwo.machine.settle import after_skip
from agiwo.machine.start import activate
from agiwo.machine.state import InstanceStatus, Phase, Settled, run_path
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
        elif work.instance.scope.live:
            return
        else:
            _next_phase(work)


# ---------------------------------------------------------------- jumps and joins


def _waiting_jump(work: Work) -> bool:
    scope = work.instance.scope
    for jump in scope.jumps:
        if not scope.live >> jump.target & 1:
            activate(work, Activation(jump.target, jump.cause, waited=True))
            return True
    return False


def _open_join(work: Work) -> bool:
    """Resolve one join that has news; False if none can be.

    First those whose sources have all brought news; then those whose missing sources cannot come any more, unless another open join may
    still bring them; last, if open joins wait only for each other, the one written first.
    """
    open = work.instance.scope.open & ~work.instance.scope.live
    if not open:
        return False
    missing: list[tuple[Step, int]] = []
    for step in _steps(work, open):
        lacking = _lacking(work, step)
        if lacking is None:
            continue
        if not lacking:
            _resolve(work, step, 0)
            return True
        missing.append((step, lacking))
    for step, lacking in missing:
        if not _reachable_from(work, step, lacking, open & ~step.bit):
            _resolve(work, step, lacking)
            return True
    if missing:
        _resolve(work, *missing[0])
        return True
    return False


def _steps(work: Work, mask: int) -> list[Step]:
    out: list[Step] = []
    while mask:
        low = mask & -mask
        out.append(work.step(low.bit_length() - 1))
        mask ^= low
    return out


def _lacking(work: Work, step: Step) -> int | None:
    """Mask of the sources that bring no news and will not come; None while one of them may still come."""
    scope = work.instance.scope
    join = step.join
    assert join is not None
    if scope.live & join.mask:
        return None
    used = scope.counted.get(step.index)
    coming = scope.live
    for jump in scope.jumps:
        coming |= 1 << jump.target
    lacking = 0
    for position, source in enumerate(join.sources):
        if scope.latest.get(source, 0) > (used[position] if used else 0):
            continue
        if coming and coming & work.instance.workflow.body.leading_to(source, step.index):
            return None
        lacking |= 1 << source
    return lacking


def _reachable_from(work: Work, step: Step, sources: int, others: int) -> bool:
    body = work.instance.workflow.body
    while sources:
        low = sources & -sources
        if others & body.leading_to(low.bit_length() - 1, step.index):
            return True
        sources ^= low
    return False


def _resolve(work: Work, step: Step, lacking: int) -> None:
    """All sources are settled: the step starts, or is skipped and says by whom."""
    join = step.join
    assert join is not None
    scope = work.instance.scope
    succeeded: list[str] = []
    failed: list[str] = []
    absent: list[str] = []
    for source in join.sources:
        run = None
        id = work.step(source).id
        if not lacking >> source & 1:
            run = work.instance.runs[run_path(id, scope.latest[source])]
        if run is not None and (run.passes if join.kind is JoinKind.ROW else run.settled is Settled.SUCCESS):
            succeeded.append(id)
        elif run is not None and run.settled is Settled.FAILED:
            failed.append(id)
        else:
            absent.append(id)
    if _holds(join.kind, succeeded, failed, absent):
        work.todo.append(Activation(step.index, _cause(work, step, lacking)))
        return
    path = run_path(step.id, scope.latest.get(step.index, 0) + 1)
    used = [scope.latest.get(source, 0) for source in join.sources]
    blocking = failed or absent
    data = {"reason": "join_not_met" if failed or succeeded else "upstream", "evidence": {"sources": blocking}, "counted": used}
    work.emit("step.skipped", path, data)
    after_skip(work, work.run(path), step)


def _holds(kind: JoinKind, succeeded: list[str], failed: list[str], absent: list[str]) -> bool:
    if kind is JoinKind.ALL_DONE:
        return True
    if kind is JoinKind.ALL_SUCCESS:
        return not failed and not absent
    return bool(succeeded) and not failed


def _cause(work: Work, step: Step, lacking: int) -> str | None:
    """The failure that led to a source leads on to what waits for it."""
    assert step.join is not None
    for source in step.join.sources:
        if not lacking >> source & 1:
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
