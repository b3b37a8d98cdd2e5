"""How a step begins: its condition, its guard, its arguments rendered and frozen, its gate, its call.

Everything is evaluated here once, before the first attempt; later attempts and approvals use what was frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agiwo.definition.compiled import Kind, Step, Word
from agiwo.definition.durations import moment, seconds
from agiwo.errors import Failure, TemplateError, ValidationError, ValueRefused, canonical_type
from agiwo.ids import idempotency_key
from agiwo.machine.commands import StartAttempt
from agiwo.machine.ending import begin_end, bring_to_rest
from agiwo.machine.gates import ask, is_asked
from agiwo.machine.interrupts import stops_before
from agiwo.machine.joins import counted
from agiwo.machine.settle import after_skip, fail, plain, succeed, truth
from agiwo.machine.signals import wait as wait_for_signal
from agiwo.machine.state import INTERRUPT, InstanceStatus, Phase, Run, StepStatus, run_path
from agiwo.machine.view import scope_of
from agiwo.machine.work import Activation, Work
from agiwo.template import Absent, Expression, Scope, ValueTemplate, path_text
from agiwo.template.absent import is_namespace, step_into
from agiwo.values import check, digest, shown


def activate(work: Work, activation: Activation) -> None:
    """Begin a step; if it is live (or still has to lead on), its next iteration waits for its end."""
    step = work.step(activation.step)
    scope = work.instance.scope
    if scope.busy & step.bit:
        work.emit("jump.waiting", data={"target": step.id, "cause": activation.cause})
        return
    iteration = scope.latest.get(step.index, 0) + 1
    run = Run(step.index, step.id, run_path(step.id, iteration), iteration, StepStatus.PENDING, begun_at=work.at, cause=activation.cause)
    work.opening[run.path] = _opening(work, step, activation)
    if iteration > step.max_iterations:
        # A route may take this once; a step that comes back even so ends the instance, or the route could turn for ever.
        message = f"{step.id} has run {step.max_iterations} times and was to run again (max_iterations)"
        fail(work, run, step, Failure("LoopLimitExceeded", message), unhandled=iteration > step.max_iterations + 1)
        return
    if stops_before(work.instance, run):
        work.emit("step.queued", run.path, {"reason": INTERRUPT})
        return
    begin(work, run, step)


def begin(work: Work, run: Run, step: Step) -> None:
    """Do what a step does first: its condition, its guard, then what its kind asks for."""
    try:
        _begin(work, run, step)
    except (TemplateError, ValidationError) as exc:
        fail(work, run, step, exc.failure())


def _opening(work: Work, step: Step, activation: Activation) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if step.join is not None:
        data["counted"] = counted(work, step)
    if activation.cause is not None:
        data["cause"] = activation.cause
    if activation.waited:
        data["jumped"] = True
    return data


def _begin(work: Work, run: Run, step: Step) -> None:
    scope = scope_of(work.instance, run)
    if step.when is not None and not truth(step.when, scope, "when"):
        evidence = {"expression": step.when.source, "values": operands(step.when, scope)}
        data: dict[str, Any] = {"reason": "when", "evidence": evidence}
        if step.in_row and (step.on_skip is None or step.on_skip.word is Word.NEXT):
            data["passes"] = True
        work.emit("step.skipped", run.path, data)
        after_skip(work, work.run(run.path), step)
        return
    if step.guard is not None and not truth(step.guard, scope, "guard"):
        evidence = {"expression": step.guard.source, "values": operands(step.guard, scope)}
        fail(work, run, step, Failure("GuardFailed", f"the guard {step.guard.source!r} does not hold"), evidence=evidence)
        return
    if step.kind in _QUIET and step.gate is not None and is_asked(work, run, step, "before"):
        ask(work, run, step, step.gate, {}, {})
        return
    _KINDS[step.kind](work, run, step, scope)


def approved(work: Work, run: Run, step: Step) -> None:
    """A person has let the step begin: make its call, or do what a step without one does."""
    if step.kind not in _QUIET:
        start_attempt(work, run, step)
        return
    try:
        _KINDS[step.kind](work, run, step, scope_of(work.instance, run))
    except (TemplateError, ValidationError) as exc:
        fail(work, run, step, exc.failure())


def operands(expression: Expression, scope: Scope) -> dict[str, Any]:
    """What an expression read, for the trace: each path with its value, cut to what fits a line."""
    out: dict[str, Any] = {}
    for read in expression.reads:
        name = path_text(read.root, read.path)
        value = scope.get(read.root)
        for part in read.path:
            value = step_into(value, part, name)
        if isinstance(value, Absent):
            out[name] = {"absent": value.why}
        elif not is_namespace(value):
            short = value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 200)
            out[name] = value if short else shown(value, 200)
    return out


# ---------------------------------------------------------------- kinds


def _call(work: Work, run: Run, step: Step, scope: Scope) -> None:
    arguments, secrets = freeze(step, scope)
    frozen: dict[str, Any] = {"arguments": arguments, "digest": digest(arguments)}
    if secrets:
        frozen["secrets"] = secrets
    if step.gate is not None and is_asked(work, run, step, "before"):
        ask(work, run, step, step.gate, arguments, frozen)
        return
    start_attempt(work, run, step, frozen)


def freeze(step: Step, scope: Scope) -> tuple[Any, list[Any]]:
    """The step's arguments, rendered, converted and checked; and where secrets are to be filled in.

    Raises TemplateError, ValidationError.
    """
    if step.arguments is None:
        return {}, []
    rendered = step.arguments.render(scope)
    value = rendered.value
    try:
        check(value)
    except ValueRefused as exc:
        raise ValidationError(f"parameters{exc.pointer}: {exc}") from None
    if step.kind is Kind.TOOL_CALL and step.parameters_schema is not None:
        value = _fit(step, value)
    return value, [slot.to_json() for slot in rendered.secrets]


def _fit(step: Step, value: Any) -> Any:
    """Check against the tool's schema. A `sql` parameter is checked as the text that it is; its bound values go along unchanged."""
    bound: dict[str, Any] = {}
    if isinstance(value, dict) and step.contract is not None:
        for name, use in step.contract.uses.items():
            if use == "sql" and isinstance(value.get(name), dict):
                bound[name] = value[name]
        if bound:
            value = {**value, **{name: item["statement"] for name, item in bound.items()}}
    assert step.parameters_schema is not None
    try:
        fitted = step.parameters_schema.coerce(value)
    except ValidationError as exc:
        raise ValidationError(f"{step.tool}: {exc.message}", details=exc.data) from None
    return {**fitted, **bound} if bound else fitted


def start_attempt(work: Work, run: Run, step: Step, frozen: Mapping[str, Any] | None = None, *, lost: bool = False) -> None:
    """Order the next attempt. One whose predecessor's node died does not count as a try."""
    attempt = run.attempt + 1
    data: dict[str, Any] = dict(frozen or {})
    if lost:
        data["deaths"] = run.deaths + 1
    else:
        data["tries"] = run.tries + 1
    if step.total_timeout is not None and (run.path, "total") not in work.instance.timers:
        # The first try, or the one after a doubt was settled: the time in which a person had to say what happened does not count.
        data["timers"] = {"total": work.at + step.total_timeout}
    work.emit("step.started", run.path, data, attempt=attempt)
    run = work.run(run.path)
    arguments, secrets, key = called_with(work, run)
    work.order(StartAttempt(run.path, step, run.iteration, attempt, arguments, secrets, step.timeout, key, step.heartbeat))


def called_with(work: Work, run: Run) -> tuple[Any, Any, str]:
    """The arguments, the places of secrets and the idempotency key of what `run` calls: its own call, or that of its fallback."""
    if run.fallback is None or "arguments" not in run.fallback:
        return run.arguments, run.secrets, idempotency_key(work.instance.id, run.path)
    return run.fallback["arguments"], run.fallback.get("secrets"), idempotency_key(work.instance.id, f"{run.path}#fallback")


def _wait(work: Work, run: Run, step: Step, scope: Scope) -> None:
    due = _due(work, step, scope)
    if due <= work.at:
        succeed(work, run, step, None)
        return
    work.emit("step.waiting", run.path, {"reason": "timer", "timers": {"wait": due}})


def _due(work: Work, step: Step, scope: Scope) -> float:
    if step.duration is not None:
        value = plain(step.duration, scope, "duration")
        try:
            return work.at + seconds(value)
        except ValueError as exc:
            raise TemplateError(f"duration: {exc}; it gave {shown(value)}") from None
    value = plain(step.until, scope, "until") if step.until is not None else None
    try:
        return moment(value)
    except ValueError as exc:
        raise TemplateError(f"until: {exc}; it gave {shown(value)}") from None


def _approval(work: Work, run: Run, step: Step, scope: Scope) -> None:
    if step.gate is None or not is_asked(work, run, step, "before"):
        succeed(work, run, step, {})
        return
    ask(work, run, step, step.gate, {}, {})


def _at_once(work: Work, run: Run, step: Step, scope: Scope) -> None:
    succeed(work, run, step, None)


def _end(work: Work, run: Run, step: Step, scope: Scope) -> None:
    template = step.output
    if template is None and step.end_status == InstanceStatus.SUCCESS:
        template = work.instance.workflow.output
    output = _final_output(template, scope, own=step.output is not None) if template is not None else None
    succeed(work, run, replace(step, output=None), None)
    if work.instance.phase is Phase.BODY:
        status = InstanceStatus(step.end_status)
        error = {"type": "ToolError", "message": f"ended by {step.id}", "step": step.id} if status is InstanceStatus.FAILED else None
        begin_end(work, status, reason=f"ended by {run.path}", by=run.path, output=output, error=error, stop=True)
        return
    # In a handler: it is over, and an error_handler has said how the instance ends.
    work.todo.clear()
    handling = work.instance.phase is Phase.HANDLING
    work.emit("instance.resolved", data={"status": step.end_status, "output": output} if handling else {}, by=run.path)
    bring_to_rest(work, f"ended by {run.path}", stop=True)


def _final_output(template: ValueTemplate, scope: Scope, *, own: bool) -> Any:
    """The step's own `output`, else the workflow's, in which what is not there gives null."""
    return plain(template, scope, "output") if own else template.render(scope, open_as_null=True).value


def _fail(work: Work, run: Run, step: Step, scope: Scope) -> None:
    error = plain(step.fail_error, scope, "error") if step.fail_error is not None else {}
    if not isinstance(error, dict):
        error = {"message": str(error)}
    message = str(error.get("message", f"ended by {step.id}"))
    status = error.get("status")
    failure = Failure(
        canonical_type(str(error.get("type", "ToolError"))),
        message,
        status=status if type(status) is int else None,
        details=error.get("details"),
    )
    fail(work, run, step, failure, unhandled=True)


#: Kinds that make no call, though a person may be asked before them.
_QUIET = frozenset({Kind.WAIT, Kind.WAIT_FOR_SIGNAL, Kind.SET, Kind.BRANCH})
_KINDS = {
    Kind.TOOL_CALL: _call,
    Kind.LLM_TASK: _call,
    Kind.WAIT: _wait,
    Kind.WAIT_FOR_SIGNAL: wait_for_signal,
    Kind.APPROVAL: _approval,
    Kind.SET: _at_once,
    Kind.BRANCH: _at_once,
    Kind.END: _end,
    Kind.FAIL: _fail,
}
