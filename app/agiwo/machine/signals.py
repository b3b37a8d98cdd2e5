"""Signals from outside: kept until a step wants them, used once, in the order in which they came, by a wait that takes them.

Delivery is stored first and matched afterwards, so it does not matter whether the signal or the wait comes first.
"""

from __future__ import annotations

from typing import Any

from agiwo.definition.compiled import KEEP, Step
from agiwo.errors import Failure, TemplateError
from agiwo.machine.commands import CloseWait
from agiwo.machine.reports import SignalReceived
from agiwo.machine.settle import fail, plain, succeed, truth
from agiwo.machine.state import SIGNAL, Instance, Run, Signal, StepStatus
from agiwo.machine.view import scope_of
from agiwo.machine.work import Work
from agiwo.template import Scope
from agiwo.values import kind_of, shown


def receive(work: Work, report: SignalReceived) -> None:
    """Keep a signal and let the wait take it that has waited longest; one that came before under the same id changes nothing."""
    instance = work.instance
    if report.id in instance.signals or report.id in instance.signals_used:
        return
    data: dict[str, Any] = {"id": report.id, "event": report.event, "payload": report.payload, "channel": report.channel}
    if instance.signals:
        longest = longest_kept(instance)
        if expired := [signal.id for signal in instance.signals.values() if work.at - signal.at > longest]:
            data["expired"] = expired
    work.emit("signal.received", data=data, by=report.by)
    signal = work.instance.signals[report.id]
    waiting = [run for run in work.instance.live_runs() if _waits(run)]
    for found in sorted(waiting, key=lambda run: (run.waiting_since or 0.0, run.step)):
        run = work.run(found.path)
        if _waits(run) and _offer(work, run, work.step(run.step), signal):
            return


def longest_kept(instance: Instance) -> float:
    """Seconds after which no wait of the workflow would take a signal that was kept."""
    return max((step.signal.keep for step in instance.workflow.body if step.signal is not None), default=0.0) or KEEP


def wait(work: Work, run: Run, step: Step, scope: Scope) -> None:
    """Begin to wait; a signal that was kept is taken at once. Raises TemplateError if an event has no name."""
    asked = step.signal
    assert asked is not None
    events = [_event(plain(one.event, scope, "event")) for one in asked.awaited]
    data: dict[str, Any] = {"reason": SIGNAL, "events": events}
    if asked.timeout is not None:
        data["timers"] = {"signal": work.at + asked.timeout}
    work.emit("step.waiting", run.path, data)
    if not asked.keep:
        return
    for signal in sorted(work.instance.signals.values(), key=lambda signal: signal.number):
        run = work.run(run.path)
        if not _waits(run) or (work.at - signal.at <= asked.keep and _offer(work, run, step, signal)):
            return


def _event(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise TemplateError(f"event: expected the name of an event, it gave {kind_of(value)} {shown(value)}")


def _waits(run: Run) -> bool:
    return run.status is StepStatus.WAITING and run.reason == SIGNAL


def _offer(work: Work, run: Run, step: Step, signal: Signal) -> bool:
    """Whether the wait takes the signal. A `match` that cannot be evaluated fails its step, and the signal stays for others."""
    asked = step.signal
    assert asked is not None
    for event, one in zip(run.arguments["events"], asked.awaited, strict=True):
        if event != signal.event:
            continue
        if one.match is not None:
            try:
                fits = truth(one.match, scope_of(work.instance, run, payload=signal.payload, event=signal.event), "match")
            except TemplateError as exc:
                fail(work, run, step, exc.failure())
                return False
            if not fits:
                continue
        taken = {"id": signal.id, "event": signal.event, "at": signal.at, "by": signal.by, "channel": signal.channel}
        work.emit("step.signal_taken", run.path, {"signal": taken}, by=signal.by)
        chosen = None if one.target is None else ({"event": event}, one.target)
        succeed(work, work.run(run.path), step, signal.payload, by=signal.by, chosen=chosen)
        return True
    return False


def expire(work: Work, run: Run, step: Step) -> None:
    """No signal came in time."""
    waited = step.signal.timeout if step.signal is not None and step.signal.timeout is not None else 0.0
    events = list(run.arguments["events"])
    work.order(CloseWait(run.path))
    why = f"no signal {' or '.join(events)} within {waited:g} seconds"
    fail(work, run, step, Failure("Timeout", why, details={"clock": "timeout", "events": events}))
