"""How a step comes to an end and what its end leads to: output, writes, routes, and what takes a failure.

The only module that decides whether a failure is handled (LANGUAGE 5, "Handled").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.definition.compiled import Kind, Route, Step, Target, Word
from agiwo.errors import Failure, TemplateError, ValidationError, ValueRefused, canonical_type, is_a
from agiwo.machine.ending import begin_end, bring_to_rest, in_handlers, resting
from agiwo.machine.interrupts import stops_after
from agiwo.machine.joins import tolerates, waiting_on
from agiwo.machine.reducers import ABSENT, written
from agiwo.machine.state import InstanceStatus, Overlap, Run, Settled, StepStatus
from agiwo.machine.view import scope_of
from agiwo.machine.work import Activation, Work
from agiwo.template import Absent, Expression, Scope, ValueTemplate
from agiwo.values import check, kind_of, shown

Extra = Mapping[str, Any]
NOTHING: Extra = {}
#: Where a step leads, and the evidence for the history.
Chosen = tuple[dict[str, Any], Target]


def plain(template: ValueTemplate, scope: Scope, what: str) -> Any:
    """A rendered value at a place that takes no secret. Raises TemplateError."""
    rendered = template.render(scope)
    if rendered.secrets:
        raise TemplateError(f"{what}: a secret has no place here")
    return rendered.value


def value_of(expression: Expression, scope: Scope, what: str) -> Any:
    value = expression.evaluate(scope)
    if isinstance(value, Absent):
        raise TemplateError(f"{what} {expression.source!r}: {value.what} does not exist: {value.why}")
    return value


def truth(expression: Expression, scope: Scope, what: str) -> bool:
    """A condition's answer. Raises TemplateError if it is anything but true or false."""
    value = value_of(expression, scope, what)
    if not isinstance(value, bool):
        raise TemplateError(f"{what} {expression.source!r} must give true or false, it gave {kind_of(value)} {shown(value)}")
    return value


# ---------------------------------------------------------------- success


def succeed(
    work: Work,
    run: Run,
    step: Step,
    result: Any,
    *,
    model: Any = None,
    calls: Any = None,
    by: str | None = None,
    chosen: Chosen | None = None,
) -> None:
    """Settle `run` with `result` as what its call gave: output, writes and route are evaluated first, and any of them may fail the step.

    `chosen` is where it leads, with the evidence, if that was settled by what the step waited for.
    """
    if step.kind not in (Kind.TOOL_CALL, Kind.LLM_TASK) and (misfit := output_misfit(step, result)) is not None:
        fail(work, run, step, misfit)
        return
    try:
        output, writes, routed = _evaluate(work, run, step, result, model)
    except (TemplateError, ValidationError, NoMatch) as exc:
        failure = exc.failure() if isinstance(exc, TemplateError | ValidationError) else Failure("NoMatchingCase", str(exc))
        fail(work, run, step, failure, calls=calls)
        return
    chosen = chosen or routed
    _record_success(work, run, step, output, writes, chosen, model=model, calls=calls, by=by)
    if resting(work, run):
        return
    lead_on(work, run, step, step.on_success if chosen is None else chosen[1], run.cause)


def output_misfit(step: Step, result: Any) -> Failure | None:
    """Why a result does not fit the step's `output_schema`; None if it does."""
    if step.output_schema is None or not (problems := step.output_schema.problems(result)):
        return None
    details = {"reason": "schema", "problems": [p.to_json() for p in problems[:5]]}
    return Failure("OutputInvalid", f"the result does not fit output_schema: {problems[0].message}", details=details)


def _evaluate(work: Work, run: Run, step: Step, result: Any, model: Any) -> tuple[Any, list[tuple[str, Any]], Chosen | None]:
    candidate = run._replace(status=StepStatus.SUCCESS, output=result, has_output=True, settled=Settled.SUCCESS, model=model)
    output = result
    if step.output is not None:
        output = plain(step.output, scope_of(work.instance, candidate, result=result), "output")
        _keepable(output, "output")
        candidate = candidate._replace(output=output)
    writes: list[tuple[str, Any]] = []
    if step.writes:
        scope = scope_of(work.instance, candidate, result=result)
        changed: dict[str, tuple[Any, Overlap]] = {}
        for key, template in step.writes:
            value = plain(template, scope, f"writes.{key}")
            changed[key] = _written(work, run, key, value, changed.get(key))
            writes.append((key, value))
    chosen = None
    if step.route is not None:
        chosen = choose(step.route, scope_of(work.instance, candidate, result=result))
    return output, writes, chosen


def _keepable(value: Any, what: str) -> None:
    try:
        check(value)
    except ValueRefused as exc:
        raise ValidationError(f"{what}{exc.pointer}: {exc}") from None


def _written(work: Work, run: Run, key: str, value: Any, before: tuple[Any, Overlap] | None) -> tuple[Any, Overlap]:
    """A write, checked in its place among those that it meets: what the key then has must fit its schema. `before`: the step's last one."""
    _keepable(value, key)
    instance = work.instance
    declared = instance.workflow.state.get(key)
    now, overlap = before or (instance.values.get(key, ABSENT), instance.overlaps.get(key))
    after = written(declared, overlap, now, run.step, value)
    _keepable(after[0], f"state.{key}")
    if declared is not None and declared.schema is not None:
        problems = declared.schema.problems(after[0])
        if problems:
            raise ValidationError(f"state.{key}{problems[0].pointer}: {problems[0].message}")
    return after


def _record_success(
    work: Work,
    run: Run,
    step: Step,
    output: Any,
    writes: list[tuple[str, Any]],
    chosen: Chosen | None,
    *,
    model: Any,
    calls: Any,
    by: str | None,
) -> None:
    data: dict[str, Any] = {"output": output, "commit": work.instance.commits + 1}
    if model is not None:
        data["model"] = model
    if calls is not None:
        data["calls"] = calls
    if writes:
        data["writes"] = writes
    if chosen is not None:
        data["route"] = chosen[0]
    if run.fallback is not None:
        data["degraded"] = run.fallback["kind"]
    work.emit("step.succeeded", run.path, data, attempt=run.attempt or None, by=by)


# ---------------------------------------------------------------- routes


class NoMatch(Exception):
    """No case of a route is true, and it has no default."""


def choose(route: Route, scope: Scope) -> tuple[dict[str, Any], Target]:
    """What a route picks, with the evidence for the history. Raises NoMatch or TemplateError."""
    if route.choose is not None:
        value = value_of(route.choose, scope, "choose")
        label = value if isinstance(value, str) else shown(value)
        target = route.targets.get(label)
        if target is not None:
            return {"choose": route.choose.source, "value": label}, target
        if route.default is not None:
            return {"choose": route.choose.source, "value": label, "default": True}, route.default
        raise NoMatch(f"{route.choose.source!r} gave {shown(value)}; the targets are {', '.join(route.targets)}")
    for number, case in enumerate(route.cases):
        if truth(case.when, scope, "when"):
            return {"case": number, "when": case.when.source}, case.target
    if route.default is not None:
        return {"default": True}, route.default
    raise NoMatch("no case is true and there is no default")


def lead_on(work: Work, run: Run, step: Step, target: Target | None, cause: str | None) -> None:
    """Go on from a step that has ended: to what its end leads to, unless the instance was told to stop after it."""
    if stops_after(work.instance, run):
        following: dict[str, Any] = (
            {} if target is None else {"steps": [work.step(index).id for index in target.steps], "word": target.word}
        )
        work.emit("instance.interrupted", data={"path": run.path, **following, "cause": cause})
    elif target is not None:
        follow(work, run, step, target, cause)


def follow(work: Work, run: Run, step: Step, target: Target, cause: str | None) -> None:
    """Start what a route names. A jump along an edge that the target depends on anyway is left to the join."""
    if target.word is Word.FAIL:
        error = {"type": "ToolError", "message": f"{step.id} leads to `fail`", "step": step.id, "path": run.path}
        unhandled_failure(work, run, error)
        return
    for index in target.steps:
        join = work.step(index).join
        if join is not None and not work.step(index).in_row and join.mask >> step.index & 1:
            continue
        work.todo.append(Activation(index, cause))


def after_skip(work: Work, run: Run, step: Step) -> None:
    """A skipped step's chain goes on: `on_skip`, else as after success; its route is not evaluated."""
    target = step.on_skip or step.on_success
    if target is not None:
        follow(work, run, step, target, run.cause)


# ---------------------------------------------------------------- failure

#: Failures behind a taken fallback that are not its own: a call with an unknown outcome, and what people decided on a result.
_NOT_OF_FALLBACK = ("UnknownOutcome", "ApprovalRejected", "ApprovalTimeout")


def fail(work: Work, run: Run, step: Step, failure: Failure, *, calls: Any = None, evidence: Any = None, unhandled: bool = False) -> None:
    """Settle `run` as failed for good, and go where its failure leads: a route, a join that allows it, or the end of the instance.

    `unhandled` leaves routes aside (a `fail` step, a step over its bound for the second time).
    """
    last = None
    if run.fallback is not None and failure.type not in _NOT_OF_FALLBACK:
        # That the fallback failed too hides nothing: the error is the one that it was taken for.
        last = {**failure.to_json(), "step": step.id, "path": run.path}
        failure = Failure.from_json(run.fallback["error"])
    error = {**failure.to_json(), "step": step.id, "path": run.path}
    if last is not None:
        error["others"] = [last]
    if run.cause is not None and (before := work.instance.runs.get(run.cause)) is not None and before.error is not None:
        error["cause"] = {k: v for k, v in before.error.items() if k != "cause"}
    target = None
    if not unhandled and not resting(work, run):
        target = failure_target(step, failure.type)
    settled, passes, taken = (Settled.FAILED, False, None) if unhandled else _taken(work, run, step, target)
    data: dict[str, Any] = {"error": error, "settled": str(settled), "passes": passes or None, "taken": taken}
    data.update(calls=calls, evidence=evidence, last=last)
    data = {name: value for name, value in data.items() if value is not None}
    work.emit("step.failed", run.path, data, attempt=run.attempt or None)
    if resting(work, run):
        return
    if taken is None:
        unhandled_failure(work, run, error)
    elif taken == "continue":
        _go_on(work, run, step, error if last is None else last)
    else:
        lead_on(work, run, step, target if target is not None and target.steps else None, run.path)


def _taken(work: Work, run: Run, step: Step, target: Target | None) -> tuple[Settled, bool, str | None]:
    if target is None:
        return Settled.FAILED, False, "join" if allowed_by_join(work, run, step) else None
    if target.word is Word.FAIL:
        return Settled.FAILED, False, None
    if target.word is Word.CONTINUE:
        return Settled.SUCCESS, True, "continue"
    if target.word is Word.NEXT:
        return Settled.SKIPPED, True, "route"
    return Settled.SKIPPED, False, "route"


def allowed_by_join(work: Work, run: Run, step: Step, *, but: Step | None = None) -> bool:
    """Whether a step waits for `step` whose join allows its failure; `but` leaves one of them aside."""
    waiting = waiting_on(work.instance, step)
    return any(one is not but and tolerates(work.instance, one, step, run.iteration) for one in waiting)


def failure_target(step: Step, type: str) -> Target | None:
    """The first route that takes a failure of this type; a call with an unknown outcome is taken only by a route that names it."""
    type = canonical_type(type)
    gate = step.gate
    if type == "Timeout" and step.on_timeout is not None:
        return step.on_timeout
    if type == "ApprovalTimeout" and gate is not None and isinstance(gate.on_timeout, Target):
        return gate.on_timeout
    rejected = type == "ApprovalRejected" or (type == "ApprovalTimeout" and gate is not None and gate.on_timeout == "reject")
    if rejected:
        on_reject = (gate.on_reject if gate is not None else None) or step.on_reject
        if on_reject is not None:
            return on_reject
    for route in step.on_failure:
        if not route.errors:
            if type != "UnknownOutcome":
                return route.target
        elif any(is_a(type, name) for name in route.errors):
            return route.target
    return None


def _go_on(work: Work, run: Run, step: Step, error: Mapping[str, Any]) -> None:
    """`continue`: as after success, though a route has no output to look at; where it was the route that failed, the path is complete."""
    if step.route is not None:
        if error["type"] == "NoMatchingCase":
            lead_on(work, run, step, None, run.cause)
            return
        try:
            _, target = choose(step.route, scope_of(work.instance, run))
        except (NoMatch, TemplateError) as exc:
            type = "TemplateError" if isinstance(exc, TemplateError) else "NoMatchingCase"
            unhandled_failure(work, run, {"type": type, "message": str(exc), "step": step.id, "path": run.path})
            return
        lead_on(work, run, step, target, run.cause)
    else:
        lead_on(work, run, step, step.on_success, run.cause)


def unhandled_failure(work: Work, run: Run, error: Mapping[str, Any]) -> None:
    """A failure that nothing takes ends the instance, or the handler that it happened in."""
    if in_handlers(work):
        # A handler's own failure never hides the first error; what runs beside it comes to rest, as in the body.
        work.todo.clear()
        work.emit("instance.handler_failed", data={"error": error})
        bring_to_rest(work, f"step {run.path} failed", stop=False)
        return
    begin_end(work, InstanceStatus.FAILED, error=error, by=run.path, reason=f"step {run.path} failed")
