"""What the end of a call leads to: its result checked and put before a person, or its failure met by the step's fallback.

It does not decide whether a call is made again; a failure comes here when it is final, or when the circuit is open.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agiwo.definition.compiled import FallbackKind, Step
from agiwo.errors import Failure, StepError, TemplateError, ValueRefused
from agiwo.machine.ending import TOTAL_TIMEOUT, resting
from agiwo.machine.gates import ask, is_asked
from agiwo.machine.settle import fail, failure_target, output_misfit, plain, succeed
from agiwo.machine.start import freeze, start_attempt
from agiwo.machine.state import CIRCUIT_OPEN, Run
from agiwo.machine.view import scope_of
from agiwo.machine.work import Work
from agiwo.values import check, digest

#: Seconds until a step looks at an open circuit again that did not say when it lets a call through.
LOOK_AGAIN = 5.0
#: Seconds over which those are spread, at most, that wait for the same circuit.
SPREAD = 5.0


def produce(work: Work, run: Run, step: Step, result: Any, *, model: Any = None, calls: Any = None, by: str | None = None) -> None:
    """A call has given its result: check it, put it before a person if the step says so, else settle the step."""
    try:
        check(result)
    except ValueRefused as exc:
        unkept = Failure("ValidationError", f"the result cannot be stored: {exc} (at {exc.pointer or '/'})")
        give_up(work, run, step, unkept, calls=calls, done=True)
        return
    if (misfit := output_misfit(step, result)) is not None:
        give_up(work, run, step, misfit, calls=calls, evidence={"result": result}, done=True)
        return
    gate = step.gate
    try:
        if gate is not None and not resting(work, run) and is_asked(work, run, step, "after", result=result):
            held: dict[str, Any] = {"held": result}
            if model is not None:
                held["model"] = model
            if calls is not None:
                held["calls"] = calls
            ask(work, run, step, gate, result, held)
            return
    except TemplateError as exc:
        fail(work, run, step, exc.failure(), calls=calls)
        return
    succeed(work, run, step, result, model=model, calls=calls, by=by)


def give_up(
    work: Work, run: Run, step: Step, failure: Failure, *, calls: Any = None, evidence: Any = None, late: bool = False, done: bool = False
) -> None:
    """No further try of the call: take the step's fallback if it has one that may be taken, else settle the step as failed.

    `late`: total_timeout is used up, so that nothing can be called any more. `done`: the call had its effect, though its result is no use.
    """
    if not _may_fall_back(work, run, step, failure, late=late, done=done):
        fail(work, run, step, failure, calls=calls, evidence=evidence)
        return
    _fall_back(work, run, step, failure, calls)


def _may_fall_back(work: Work, run: Run, step: Step, failure: Failure, *, late: bool, done: bool) -> bool:
    fallback = step.fallback
    if fallback is None or failure.type == "UnknownOutcome" or resting(work, run):
        return False
    if fallback.kind is FallbackKind.VALUE:
        return True
    if late or run.stopping == TOTAL_TIMEOUT:
        return False
    # Two unsafe calls in a row may do the work twice, unless it is certain that the first one did nothing.
    both_unsafe = not step.effect.safe_to_repeat and not fallback.step.effect.safe_to_repeat
    return not both_unsafe or (failure.not_done and not done)


def _fall_back(work: Work, run: Run, step: Step, failure: Failure, calls: Any) -> None:
    fallback = step.fallback
    assert fallback is not None
    error = {**failure.to_json(), "step": step.id, "path": run.path}
    scope = scope_of(work.instance, run, error={**error, "attempts": [*map(dict, run.attempts), error]})
    taken: dict[str, Any] = {"kind": str(fallback.kind)}
    value: Any = None
    wrong: StepError | None = None
    try:
        if fallback.kind is FallbackKind.TOOL:
            arguments, secrets = freeze(fallback.step, scope)
            taken |= {"tool": fallback.step.tool, "arguments": arguments, "digest": digest(arguments)}
            if secrets:
                taken["secrets"] = secrets
        elif fallback.value is not None:
            value = plain(fallback.value, scope, "fallback.value")
    except StepError as exc:
        wrong = exc
    data: dict[str, Any] = {"fallback": taken, "error": error}
    if calls is not None:
        data["calls"] = calls
    work.emit("step.fallback", run.path, data, attempt=run.attempt)
    run = work.run(run.path)
    if wrong is not None:
        failed = wrong.failure()
        fail(work, run, fallback.step, replace(failed, message=f"the fallback: {failed.message}"))
    elif fallback.kind is FallbackKind.VALUE:
        produce(work, run, fallback.step, value)
    else:
        start_attempt(work, run, fallback.step)


def circuit_is_open(work: Work, run: Run, step: Step, failure: Failure) -> None:
    """The call was refused before it was made: fall back, take a route for it, or wait for the circuit's next probe.

    It counts as no try. The wait holds no slot; only total_timeout and the end of the instance cut it short.
    """
    if resting(work, run):
        work.emit("step.cancelled", run.path, {"reason": "the circuit is open, and the instance is ending"}, attempt=run.attempt)
        return
    if step.fallback is not None or run.fallback is not None or failure_target(step, failure.type) is not None:
        give_up(work, run, step, failure)
        return
    least = LOOK_AGAIN if failure.retry_after is None else failure.retry_after
    due = work.at + least + work.draw * min(least, SPREAD)
    total = work.instance.timers.get((run.path, "total"))
    if total is not None and due >= total:
        late = f"{failure.message} (the next probe in {least:g} s would come after total_timeout)"
        fail(work, run, step, replace(failure, message=late))
        return
    error = {**failure.to_json(), "step": step.id, "path": run.path}
    data = {"reason": CIRCUIT_OPEN, "error": error, "tries": run.tries - 1, "timers": {"circuit": due}}
    work.emit("step.queued", run.path, data, attempt=run.attempt)
