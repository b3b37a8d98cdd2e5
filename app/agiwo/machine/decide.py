"""`decide`: the one function that says what a report does to an instance. Total, synchronous, deterministic.

A report for an attempt that is not current, for an approval that is over, or for an instance that has ended changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from immutables import Map

from agiwo.definition.compiled import Step, Target, Word
from agiwo.errors import Failure, StepError, TemplateError, ValueRefused, is_a
from agiwo.machine.commands import Decision, StartProbe, StopAttempt
from agiwo.machine.ending import TOTAL_TIMEOUT, begin_end, bring_to_rest, cancelled, resting
from agiwo.machine.flow import advance
from agiwo.machine.gates import decide_gate, expire
from agiwo.machine.interrupts import interrupted
from agiwo.machine.outcome import circuit_is_open, give_up, produce
from agiwo.machine.reducers import initial
from agiwo.machine.reports import (
    ApprovalDecided,
    AttemptEnded,
    AttemptLost,
    Begin,
    CallbackReceived,
    CancelAsked,
    Failed,
    NotBegun,
    OutcomeDecided,
    ProbeEnded,
    Report,
    Resumed,
    SignalReceived,
    Stopped,
    Succeeded,
    TimerDue,
)
from agiwo.machine.retry import delay_before_next
from agiwo.machine.settle import fail, failure_target, follow, plain, succeed
from agiwo.machine.signals import expire as no_signal
from agiwo.machine.signals import receive
from agiwo.machine.start import approved, begin, called_with, start_attempt
from agiwo.machine.state import CALLBACK, Instance, InstanceStatus, Phase, Run, StepStatus
from agiwo.machine.view import awaits_callback, scope_of
from agiwo.machine.work import Activation, Work
from agiwo.values import check

#: How often a call may lose its node before a person has to look (LANGUAGE 5, "Retry").
MAX_DEATHS = 5
#: Seconds between two questions to a probe that has no final answer.
PROBE_AGAIN = 5.0


def decide(instance: Instance, report: Report) -> Decision:
    """What `report` does to `instance`: the instance as it then is, what to carry out, what to write down.

    Never raises for what a definition, a tool or a person sent; the answer without records means that nothing has changed.
    """
    if instance.ended or (instance.seq == 0) is not isinstance(report, Begin):
        return Decision(instance)
    work = Work(instance, report.at, getattr(report, "draw", 0.0))
    _REPORTS[type(report)](work, report)
    if work.records:
        advance(work)
    return work.decision()


def _current(work: Work, path: str, attempt: int, status: StepStatus) -> tuple[Run, Step] | None:
    run = work.instance.runs.get(path)
    if run is None or run.attempt != attempt or run.status is not status:
        return None
    return run, work.step_of(run)


# ---------------------------------------------------------------- begin


def _begin(work: Work, report: Begin) -> None:
    workflow = work.instance.workflow
    data: dict[str, Any] = {
        "workflow": workflow.id,
        "version": workflow.version,
        "hash": workflow.content_hash,
        "tenant": work.instance.tenant,
        "trace_id": report.trace_id,
        "input": report.input,
    }
    for name, paths in (("interrupt_before", report.interrupt_before), ("interrupt_after", report.interrupt_after)):
        if paths:
            data[name] = list(paths)
    if report.labels:
        data["labels"] = dict(report.labels)
    if workflow.timeout is not None:
        data["due"] = work.at + workflow.timeout
    error: dict[str, Any] | None = None
    try:
        data["values"] = _initial_values(work, report)
    except StepError as exc:
        error = exc.failure().to_json()
    work.emit("instance.started", data=data, by=report.starter)
    if error is not None:
        begin_end(work, InstanceStatus.FAILED, error=error, reason="the context cannot be rendered")
        return
    work.todo.extend(Activation(index) for index in workflow.body.start)


def _initial_values(work: Work, report: Begin) -> dict[str, Any]:
    """State defaults, the declared context rendered from the input, and over it what the trigger gave."""
    workflow = work.instance.workflow
    values = initial(workflow.state)
    begun = work.instance._replace(trace_id=report.trace_id, input=report.input, started_at=work.at, values=Map(values))
    scope = scope_of(begun)
    for key, template in workflow.context:
        if key not in report.context:
            values[key] = plain(template, scope, f"context.{key}")
    values.update(report.context)
    try:
        check(values)
    except ValueRefused as exc:
        raise TemplateError(f"context{exc.pointer}: {exc}") from None
    return values


# ---------------------------------------------------------------- attempts


def _attempt_ended(work: Work, report: AttemptEnded) -> None:
    found = _current(work, report.path, report.attempt, StepStatus.RUNNING)
    if found is None:
        return
    run, step = found
    outcome = report.outcome
    if isinstance(outcome, Succeeded) and step.callback is not None:
        _taken_on(work, run, step, outcome.result)
    elif isinstance(outcome, Succeeded):
        produce(work, run, step, outcome.result, model=outcome.model, calls=outcome.calls)
    elif isinstance(outcome, NotBegun):
        _not_begun(work, run, step)
    elif isinstance(outcome, Stopped):
        _stopped(work, run, step)
    else:
        _failed(work, run, step, outcome)


def _failed(work: Work, run: Run, step: Step, outcome: Failed) -> None:
    failure = outcome.failure
    if run.stopping not in (None, TOTAL_TIMEOUT):
        cancelled(work, run, step.effect, certain=not _is_unknown(step, failure))
        return
    if _is_unknown(step, failure):
        _unknown(work, run, step, failure, calls=outcome.calls)
        return
    if run.stopping == TOTAL_TIMEOUT:
        give_up(work, run, step, _total_timeout(step, failure), calls=outcome.calls, late=True)
    elif is_a(failure.type, "CircuitOpen"):
        circuit_is_open(work, run, step, failure)
    else:
        _again_or_fail(work, run, step, failure, calls=outcome.calls)


def _again_or_fail(work: Work, run: Run, step: Step, failure: Failure, *, calls: Any = None) -> None:
    delay = None
    if not resting(work, run):
        delay = delay_before_next(work.instance, run, step, failure, work.draw)
    if delay is None:
        give_up(work, run, step, failure, calls=calls)
        return
    due = work.at + delay
    total = work.instance.timers.get((run.path, "total"))
    if total is not None and due >= total:
        late = f"{failure.message} (the next try in {delay:g} s would come after total_timeout)"
        give_up(work, run, step, replace(failure, message=late), calls=calls)
        return
    data: dict[str, Any] = {"error": failure.to_json(), "delay": delay, "timers": {"retry": due}}
    if calls is not None:
        data["calls"] = calls
    work.emit("step.retrying", run.path, data, attempt=run.attempt)


def _stopped(work: Work, run: Run, step: Step) -> None:
    if run.stopping == TOTAL_TIMEOUT:
        failure = Failure("Timeout", "stopped at its total_timeout")
        if _is_unknown(step, failure):
            _unknown(work, run, step, failure)
        else:
            give_up(work, run, step, _total_timeout(step, failure), late=True)
        return
    cancelled(work, run, step.effect)


def _not_begun(work: Work, run: Run, step: Step) -> None:
    """Nothing was sent, so even an unsafe call is simply made by the next node; it counts as no try."""
    if run.stopping == TOTAL_TIMEOUT:
        give_up(work, run, step, _total_timeout(step, Failure("NodeLost", "the call was not made", not_done=True)), late=True)
    elif resting(work, run):
        work.emit("step.cancelled", run.path, {"reason": run.stopping or "not begun, and the instance is ending"}, attempt=run.attempt)
    else:
        data = {"reason": "handed back by a stopping node", "tries": run.tries - 1, "timers": {"retry": work.at}}
        work.emit("step.retrying", run.path, data, attempt=run.attempt)


def _total_timeout(step: Step, last: Failure) -> Failure:
    message = f"not done within total_timeout of {step.total_timeout:g} s; last: {last.message}"
    return Failure("Timeout", message, details={"clock": "total_timeout"})


# ---------------------------------------------------------------- callbacks


def _taken_on(work: Work, run: Run, step: Step, result: Any) -> None:
    """The other side has taken the work and will say later what became of it; until then nothing runs here."""
    if run.stopping == TOTAL_TIMEOUT:
        _overdue(work, run, step, _total_timeout(step, Failure("Timeout", "taken on, and not answered")))
    elif resting(work, run):
        cancelled(work, run, step.effect)
    else:
        assert step.callback is not None
        timers = {"callback": work.at + step.callback}
        if step.heartbeat is not None:
            timers["heartbeat"] = work.at + step.heartbeat
        data = {"reason": CALLBACK, "evidence": {"accepted": result}, "timers": timers}
        work.emit("step.waiting", run.path, data, attempt=run.attempt)


def _callback_received(work: Work, report: CallbackReceived) -> None:
    run = work.instance.runs.get(report.path)
    if run is None or not awaits_callback(run) or (step := work.step(run.step)).callback is None:
        return
    if report.kind == "sign":
        if run.status is StepStatus.WAITING and step.heartbeat is not None:
            work.emit("step.heard", run.path, {"timers": {"heartbeat": work.at + step.heartbeat}})
        return
    if report.kind == "failure" and (run.status in (StepStatus.QUEUED, StepStatus.RETRYING) or report.attempt not in (None, run.attempt)):
        return  # the next try is on its way already, or under way
    work.emit("step.called_back", run.path, {"kind": report.kind}, attempt=run.attempt)
    if run.status is StepStatus.RUNNING and run.stopping is None:
        # It was quicker than the answer to the call itself.
        work.order(StopAttempt(run.path, run.attempt, "called back"))
    run = work.run(run.path)
    if report.kind == "result":
        produce(work, run, step, report.result, by=CALLBACK)
    else:
        _again_or_fail(work, run, step, report.failure or Failure("ToolError", "the other side says that it failed"))


def _callback_due(work: Work, run: Run, step: Step) -> None:
    _overdue(work, run, step, Failure("Timeout", f"nobody called back within {step.callback:g} s", details={"clock": "callback"}))


def _heartbeat_due(work: Work, run: Run, step: Step) -> None:
    _overdue(work, run, step, Failure("Timeout", f"no sign of life within {step.heartbeat:g} s", details={"clock": "heartbeat"}))


def _overdue(work: Work, run: Run, step: Step, failure: Failure) -> None:
    """Whoever took the work on is silent: what is not safe to repeat may have been done."""
    if _is_unknown(step, failure):
        _unknown(work, run, step, failure)
    elif run.stopping == TOTAL_TIMEOUT or (failure.details or {}).get("clock") == TOTAL_TIMEOUT:
        give_up(work, run, step, failure, late=True)
    else:
        _again_or_fail(work, run, step, failure)


# ---------------------------------------------------------------- unknown outcomes


def _is_unknown(step: Step, failure: Failure) -> bool:
    """An unsafe call that was sent and gave no answer may have had its effect."""
    if step.effect.safe_to_repeat or failure.not_done:
        return False
    return any(is_a(failure.type, name) for name in ("Timeout", "NetworkError", "NodeLost"))


def _unknown(work: Work, run: Run, step: Step, failure: Failure, *, calls: Any = None) -> None:
    unknown = Failure("UnknownOutcome", f"the call may have been done: {failure.message}", cause=failure.to_json())
    probe = step.contract is not None and step.contract.reconcile
    if not probe and _leads_on(work, run, step):
        fail(work, run, step, unknown, calls=calls)
        return
    data: dict[str, Any] = {"error": {**unknown.to_json(), "step": step.id, "path": run.path}, "probing": probe}
    if calls is not None:
        data["calls"] = calls
    work.emit("step.unknown", run.path, data, attempt=run.attempt)
    if probe:
        _order_probe(work, work.run(run.path), step)


def _leads_on(work: Work, run: Run, step: Step) -> bool:
    """Whether a route takes the doubt; while an instance comes to rest no route is taken, and the probe or a person says."""
    return not resting(work, run) and failure_target(step, "UnknownOutcome") is not None


def _order_probe(work: Work, run: Run, step: Step) -> None:
    arguments, secrets, key = called_with(work, run)
    work.order(StartProbe(run.path, step, run.iteration, run.attempt, arguments, secrets, key))


def _attempt_lost(work: Work, report: AttemptLost) -> None:
    run = work.instance.runs.get(report.path)
    if run is None or run.attempt != report.attempt:
        return
    step = work.step_of(run)
    if run.status is StepStatus.UNKNOWN and run.probing:
        # The probe went with its node; ask again.
        work.emit("step.probing", run.path)
        _order_probe(work, work.run(run.path), step)
        return
    if run.status is not StepStatus.RUNNING:
        return
    lost = Failure("NodeLost", "the node that made this call is gone")
    if run.stopping not in (None, TOTAL_TIMEOUT):
        cancelled(work, run, step.effect)
    elif not step.effect.safe_to_repeat:
        _unknown(work, run, step, lost)
    elif run.stopping == TOTAL_TIMEOUT:
        give_up(work, run, step, _total_timeout(step, lost), late=True)
    elif run.deaths >= MAX_DEATHS:
        # Whatever kills a node each time is for a person to look at: done, not done and try again, or cancel.
        _unknown(work, run, step, Failure("NodeLost", f"{run.deaths + 1} nodes were lost during it, and it is not made again by itself"))
    else:
        start_attempt(work, run, step, lost=True)


def _probe_ended(work: Work, report: ProbeEnded) -> None:
    found = _current(work, report.path, report.attempt, StepStatus.UNKNOWN)
    if found is None or not found[0].probing:
        return
    run, step = found
    if report.answer == "done":
        work.emit("step.probed", run.path, {"answer": "done"})
        produce(work, work.run(run.path), step, report.result)
    elif report.answer == "not_done":
        work.emit("step.probed", run.path, {"answer": "not_done"})
        _not_done(work, work.run(run.path), step)
    elif report.answer == "unavailable":
        work.emit("step.probed", run.path, {"answer": "unavailable"})
        run = work.run(run.path)
        if _leads_on(work, run, step):
            fail(work, run, step, Failure.from_json(dict(run.error or {"type": "UnknownOutcome", "message": ""})))
    else:
        work.emit("step.probed", run.path, {"answer": report.answer, "timers": {"probe": work.at + PROBE_AGAIN}})


def _not_done(work: Work, run: Run, step: Step) -> None:
    """Nothing happened outside: a call whose node died is simply made again, one that failed goes by its retry policy."""
    cause = dict((run.error or {}).get("cause") or {})
    if resting(work, run):
        work.emit("step.cancelled", run.path, {"reason": "not done, and the instance is ending"})
    elif run.stopping == TOTAL_TIMEOUT:
        give_up(work, run, step, _total_timeout(step, Failure("Timeout", "stopped, and not done")), late=True)
    elif cause.get("type") == "NodeLost" and run.deaths < MAX_DEATHS:
        start_attempt(work, run, step, lost=True)
    else:
        failure = Failure(cause.get("type", "NodeLost"), cause.get("message", "the call was lost"), not_done=True)
        _again_or_fail(work, run, step, failure)


def _outcome_decided(work: Work, report: OutcomeDecided) -> None:
    run = work.instance.runs.get(report.path)
    if run is None or run.status is not StepStatus.UNKNOWN:
        return
    step = work.step_of(run)
    data = {"done": report.done, "reason": report.reason}
    work.emit("step.outcome_decided", run.path, data, by=report.by)
    run = work.run(run.path)
    if report.done:
        produce(work, run, step, report.result, by=report.by)
    elif resting(work, run):
        work.emit("step.cancelled", run.path, {"reason": f"{report.by}: not done"})
    else:
        start_attempt(work, run, step, lost=True)


# ---------------------------------------------------------------- timers


def _timer_due(work: Work, report: TimerDue) -> None:
    due = sorted((when, path, kind) for (path, kind), when in work.instance.timers.items() if when <= report.at)
    for _, path, kind in due:
        if work.instance.ended or (path, kind) not in work.instance.timers:
            continue
        if path:
            run = work.run(path)
            _TIMERS[kind](work, run, work.step_of(run))
        elif kind == "workflow":
            _workflow_timeout(work)
        else:
            error = {"type": "Timeout", "message": f"not done within handler_timeout of {work.instance.workflow.handler_timeout:g} s"}
            work.todo.clear()
            work.emit("instance.handler_failed", data={"error": error, "stop": True})
            bring_to_rest(work, "handler_timeout", stop=True)


def _retry_due(work: Work, run: Run, step: Step) -> None:
    start_attempt(work, run, step)


def _wait_due(work: Work, run: Run, step: Step) -> None:
    succeed(work, run, step, None)


def _probe_due(work: Work, run: Run, step: Step) -> None:
    work.emit("step.probing", run.path)
    _order_probe(work, work.run(run.path), step)


def _total_due(work: Work, run: Run, step: Step) -> None:
    if run.status in (StepStatus.RETRYING, StepStatus.QUEUED):
        last = Failure.from_json(run.error) if run.error else Failure("Timeout", "")
        give_up(work, run, step, _total_timeout(step, last), late=True)
    elif run.status is StepStatus.WAITING and run.reason == CALLBACK:
        _overdue(work, run, step, _total_timeout(step, Failure("Timeout", "nobody called back")))
    elif run.status is StepStatus.RUNNING and run.stopping is None:
        work.emit("step.stopping", run.path, {"reason": TOTAL_TIMEOUT}, attempt=run.attempt)
        work.order(StopAttempt(run.path, run.attempt, TOTAL_TIMEOUT))


_TIMERS: dict[str, Callable[[Work, Run, Step], None]] = {
    "retry": _retry_due,
    "circuit": _retry_due,
    "wait": _wait_due,
    "approval": expire,
    "signal": no_signal,
    "probe": _probe_due,
    "total": _total_due,
    "callback": _callback_due,
    "heartbeat": _heartbeat_due,
}


def _workflow_timeout(work: Work) -> None:
    limit = work.instance.workflow.timeout or 0.0
    error = {"type": "Timeout", "message": f"the workflow was not done within {limit:g} s"}
    begin_end(work, InstanceStatus.TIMED_OUT, error=error, reason="workflow timeout", stop=True)


# ---------------------------------------------------------------- people


def _approval_decided(work: Work, report: ApprovalDecided) -> None:
    allowed = decide_gate(work, report)
    if allowed is not None:
        approved(work, *allowed)


def _cancel_asked(work: Work, report: CancelAsked) -> None:
    reason = f"cancelled by {report.by}" + (f": {report.reason}" if report.reason else "")
    if work.instance.phase is Phase.BODY:
        begin_end(work, InstanceStatus.CANCELLED, by=report.by, reason=reason, stop=True)
        return
    work.emit("instance.cancel_asked", data={"reason": report.reason}, by=report.by)
    if work.instance.phase is Phase.SETTLING:
        # The end is decided already; a cancel only stops what it is waiting for. Handlers are not disturbed.
        bring_to_rest(work, reason, stop=True)


def _resumed(work: Work, report: Resumed) -> None:
    """What was told to stop goes on: what had ended leads on, what was to begin begins."""
    stops = work.instance.stops
    found = [run for run in interrupted(work.instance) if report.paths is None or run.path in report.paths]
    if not found:
        return
    work.emit("instance.resumed", data={"reason": report.reason, "paths": [run.path for run in found]}, by=report.by)
    for run in found:
        if work.instance.phase is not Phase.BODY:
            return
        step, stop = work.step(run.step), stops.get(run.path)
        if stop is None:
            begin(work, work.run(run.path), step)
        elif stop.steps or stop.word is not None:
            follow(work, run, step, Target(stop.steps, None if stop.word is None else Word(stop.word)), stop.cause)


_REPORTS: dict[type[Any], Callable[[Work, Any], None]] = {
    Begin: _begin,
    AttemptEnded: _attempt_ended,
    AttemptLost: _attempt_lost,
    ProbeEnded: _probe_ended,
    TimerDue: _timer_due,
    ApprovalDecided: _approval_decided,
    CancelAsked: _cancel_asked,
    OutcomeDecided: _outcome_decided,
    CallbackReceived: _callback_received,
    SignalReceived: receive,
    Resumed: _resumed,
}
