"""How a record changes an instance. Applies results and evaluates nothing, so that a history replays to the same state for ever.

`decide` makes its own changes through here too; there is no second way to change an instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from immutables import Map

from agiwo.definition.compiled import JoinKind, Step, Workflow
from agiwo.machine.commands import Record
from agiwo.machine.reducers import ABSENT, written
from agiwo.machine.state import (
    ENDED_STEP,
    NOTHING,
    Ending,
    Instance,
    InstanceStatus,
    Jump,
    Phase,
    Run,
    Scope,
    Settled,
    Signal,
    StepStatus,
    Stop,
)
from agiwo.machine.transitions import INSTANCE, STEP, IllegalTransition


def blank(id: UUID, workflow: Workflow, tenant: str = "default") -> Instance:
    """An instance before its first record."""
    return Instance(id=id, workflow=workflow, tenant=tenant)


def evolve(instance: Instance, record: Record) -> Instance:
    """The instance after `record`.

    Raises IllegalTransition if the record's number is not the next one or the table does not allow it.
    """
    if record.seq != instance.seq + 1:
        raise IllegalTransition(f"record {record.seq} after {instance.seq}")
    data = record.data or NOTHING
    if record.path is not None and record.type in STEP:
        return _step(instance, record, record.path, data)
    allowed = INSTANCE.get(record.type)
    if allowed is None:
        raise IllegalTransition(f"unknown record {record.type}")
    if instance.phase not in allowed[0]:
        raise IllegalTransition(f"{record.type} in phase {instance.phase}")
    return _INSTANCE[record.type](instance, record, data)._replace(seq=record.seq)


# ---------------------------------------------------------------- steps


def parse_path(path: str) -> tuple[str, int]:
    """A path of the outermost list as step id and iteration."""
    id, _, number = path.partition("~")
    return id, int(number) if number else 1


def _step(instance: Instance, record: Record, path: str, data: Mapping[str, Any]) -> Instance:
    run = instance.runs.get(path)
    sources, target = STEP[record.type]
    found = run.status if run is not None else StepStatus.PENDING
    if found not in sources:
        raise IllegalTransition(f"{record.type} for {path}, which is {found}")
    scope = instance.scope
    values, overlaps = instance.values, instance.overlaps
    signals, used = instance.signals, instance.signals_used
    if run is None:
        id, iteration = parse_path(path)
        step = instance.workflow.body[id]
        if not scope.live:
            overlaps = NOTHING  # nothing is live beside this step, so what was written before is behind it
        run = Run(step.index, id, path, iteration, StepStatus.PENDING, begun_at=record.at, cause=data.get("cause"))
        scope = _begun(scope, step, iteration, data)
    else:
        step = instance.workflow.body.steps[run.step]
    status = target or run.status
    run = _CHANGES[record.type](run, record, data)
    if status is not run.status:
        run = run._replace(status=status)
    timers = _timers(instance.timers, path, status, target is not None, data.get("timers"))
    commits = instance.commits
    if (taken := data.get("signal")) is not None:
        signals, used = signals.delete(taken["id"]), used.set(taken["id"], path)
    if status in ENDED_STEP:
        scope = _ended(instance.workflow, scope, step, run)
        if run.commit is not None:
            commits = run.commit
        for key, value in data.get("writes", ()):
            now, overlap = written(instance.workflow.state.get(key), overlaps.get(key), values.get(key, ABSENT), step.index, value)
            values, overlaps = values.set(key, now), overlaps.set(key, overlap)
    return instance._replace(
        seq=record.seq,
        scope=scope,
        runs=instance.runs.set(path, run),
        timers=timers,
        commits=commits,
        values=values,
        overlaps=overlaps,
        signals=signals,
        signals_used=used,
    )


def _begun(scope: Scope, step: Step, iteration: int, data: Mapping[str, Any]) -> Scope:
    counted = scope.counted
    if (used := data.get("counted")) is not None:
        counted = counted.set(step.index, tuple(used))
    jumps = scope.jumps
    if data.get("jumped") and jumps:
        first = next((j for j in jumps if j.target == step.index), None)
        jumps = tuple(j for j in jumps if j is not first)
    latest = scope.latest.set(step.index, iteration)
    return Scope(scope.path, latest, scope.live | step.bit, scope.open & ~step.bit, counted, jumps, scope.held)


def _ended(workflow: Workflow, scope: Scope, step: Step, run: Run) -> Scope:
    open = scope.open
    waiting = workflow.body.waiting_on[step.index]
    while waiting:
        low = waiting & -waiting
        waiting ^= low
        if _is_news(workflow, workflow.body.steps[low.bit_length() - 1], scope, run):
            open |= low
    return Scope(scope.path, scope.latest, scope.live & ~step.bit, open, scope.counted, scope.jumps, scope.held)


def _is_news(workflow: Workflow, waiting: Step, scope: Scope, run: Run) -> bool:
    """Whether the end of `run` is one that the join of `waiting` has not used up; a row goes on only from a step that passes.

    What a join has called off is no news on any way that leads to that join.
    """
    join = waiting.join
    if run.off is not None and (waiting.id == run.off or _leads_to(workflow, waiting, workflow.body[run.off])):
        return False
    if join is None or (join.kind is JoinKind.ROW and not run.passes):
        return False
    used = scope.counted.get(waiting.index)
    return used is None or run.iteration > used[join.sources.index(run.step)]


def _leads_to(workflow: Workflow, step: Step, other: Step) -> bool:
    """Whether a source of the join of `other` can be reached from `step` without passing through `other`."""
    return other.join is not None and any(workflow.body.leading_to(source, other.index) & step.bit for source in other.join.sources)


#: Clocks that belong to the state that set them and go with it.
STATE_TIMERS = ("retry", "circuit", "wait", "signal", "approval", "probe", "callback", "heartbeat")

#: States in which total_timeout does not run: the step has ended, or waits for a person or a probe, which has its own clock.
CLOCK_STOPPED = ENDED_STEP | {StepStatus.WAITING_FOR_APPROVAL, StepStatus.UNKNOWN}


def _timers(
    timers: Map[tuple[str, str], float], path: str, status: StepStatus, changed: bool, given: Mapping[str, float] | None
) -> Map[tuple[str, str], float]:
    if timers and changed:
        for kind in STATE_TIMERS:
            if (path, kind) in timers:
                timers = timers.delete((path, kind))
        if status in CLOCK_STOPPED and (path, "total") in timers:
            timers = timers.delete((path, "total"))
    for kind, due in (given or NOTHING).items():
        timers = timers.set((path, kind), due)
    return timers


def _started(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(
        attempt=record.attempt or run.attempt + 1,
        attempt_at=record.at,
        first_attempt_at=record.at if run.first_attempt_at is None else run.first_attempt_at,
        tries=data.get("tries", run.tries),
        deaths=data.get("deaths", run.deaths),
        arguments=data.get("arguments", run.arguments),
        secrets=data.get("secrets", run.secrets),
        digest=data.get("digest", run.digest),
        probing=False,
        stopping=None,
        reason=None,
    )


def _waiting(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    events = data.get("events")
    arguments = run.arguments if events is None else {"events": events}
    evidence = data.get("evidence", run.evidence)
    return run._replace(reason=data.get("reason"), evidence=evidence, waiting_since=record.at, arguments=arguments)


def _heard(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run


def _called_back(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(probing=False, stopping=data.get("stopping", run.stopping))


def _signal_taken(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(signal=data["signal"], reason=None)


def _approval_asked(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    run = run._replace(
        approval=data["approval"],
        arguments=data.get("arguments", run.arguments),
        secrets=data.get("secrets", run.secrets),
        digest=data.get("digest", run.digest),
        model=data.get("model", run.model),
        probing=False,
    )
    return run._replace(held=data["held"]) if "held" in data else run


def _approval_decided(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(approval={**(run.approval or {}), **data["approval"]})


def _retrying(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    if "error" not in data:
        return run._replace(reason=data.get("reason"), tries=data.get("tries", run.tries), probing=False)
    return run._replace(error=data["error"], attempts=(*run.attempts, data["error"]), probing=False)


def _queued(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    error, tries = data.get("error", run.error), data.get("tries", run.tries)
    return run._replace(reason=data["reason"], error=error, tries=tries, probing=False)


def _fallback(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    error = data["error"]
    return run._replace(fallback={**data["fallback"], "error": error}, error=error, attempts=(*run.attempts, error), tries=0, probing=False)


def _unknown(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(error=data["error"], probing=bool(data.get("probing")))


def _probing(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(probing=True)


def _probed(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(probing=False)


def _outcome_decided(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(probing=False, marks=(*run.marks, "set_by_person"))


def _stopping(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(stopping=data["reason"], off=data.get("off", run.off))


def _succeeded(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(
        marks=(*run.marks, "degraded") if data.get("degraded") else run.marks,
        ended_at=record.at,
        output=data.get("output"),
        has_output=True,
        held=None,
        error=None,
        settled=Settled.SUCCESS,
        passes=data.get("passes", True),
        commit=data["commit"],
        model=data.get("model", run.model),
        evidence=data.get("route", run.evidence),
        probing=False,
    )


def _failed(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(
        ended_at=record.at,
        held=None,
        error=data["error"],
        attempts=(*run.attempts, data.get("last", data["error"])),
        settled=Settled(data["settled"]),
        passes=data.get("passes", False),
        taken=data.get("taken"),
        evidence=data.get("evidence", run.evidence),
        probing=False,
    )


def _skipped(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    return run._replace(
        ended_at=record.at,
        settled=Settled.SKIPPED,
        passes=data.get("passes", False),
        reason=data["reason"],
        evidence=data.get("evidence"),
        off=data.get("off"),
    )


def _cancelled(run: Run, record: Record, data: Mapping[str, Any]) -> Run:
    marks = (*run.marks, "outcome_unknown") if data.get("outcome") == "unknown" else run.marks
    off = data.get("off", run.off)
    return run._replace(ended_at=record.at, held=None, settled=Settled.SKIPPED, reason=data["reason"], marks=marks, probing=False, off=off)


_CHANGES: Mapping[str, Callable[[Run, Record, Mapping[str, Any]], Run]] = {
    "step.started": _started,
    "step.waiting": _waiting,
    "step.heard": _heard,
    "step.called_back": _called_back,
    "step.signal_taken": _signal_taken,
    "step.approval_asked": _approval_asked,
    "step.approval_decided": _approval_decided,
    "step.retrying": _retrying,
    "step.queued": _queued,
    "step.fallback": _fallback,
    "step.unknown": _unknown,
    "step.probing": _probing,
    "step.probed": _probed,
    "step.outcome_decided": _outcome_decided,
    "step.stopping": _stopping,
    "step.succeeded": _succeeded,
    "step.failed": _failed,
    "step.skipped": _skipped,
    "step.cancelled": _cancelled,
}


# ---------------------------------------------------------------- the instance


def _instance_started(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    timers = instance.timers
    if (due := data.get("due")) is not None:
        timers = timers.set(("", "workflow"), due)
    return instance._replace(
        trace_id=data.get("trace_id", ""),
        input=data.get("input"),
        starter=record.by,
        labels=data.get("labels", NOTHING),
        interrupt_before=tuple(data.get("interrupt_before", ())),
        interrupt_after=tuple(data.get("interrupt_after", ())),
        started_at=record.at,
        values=Map(data.get("values", NOTHING)),
        timers=timers,
    )


def _instance_ending(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    ending = Ending(InstanceStatus(data["status"]), data.get("error"), record.by, data.get("reason"), data.get("output"))
    status = InstanceStatus.CANCELLING if data.get("stop") else instance.status
    timers = instance.timers.delete(("", "workflow")) if ("", "workflow") in instance.timers else instance.timers
    scope = instance.scope._replace(jumps=(), open=0, held=0)
    settling = instance._replace(phase=Phase.SETTLING, ending=ending, status=status, timers=timers, scope=scope)
    return settling._replace(stops=NOTHING)


def _instance_handling(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    timers = instance.timers.set(("", "handlers"), data["due"])
    scope = instance.scope._replace(jumps=(), open=0)  # what came to rest may have opened joins of the body
    return instance._replace(phase=Phase.HANDLING, status=InstanceStatus.RUNNING, timers=timers, scope=scope)


def _instance_finally(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    timers = instance.timers.set(("", "handlers"), data["due"])
    scope = instance.scope._replace(jumps=(), open=0)
    running = instance._replace(phase=Phase.FINALLY, status=InstanceStatus.RUNNING, halted=False)
    return running._replace(timers=timers, scope=scope, finally_next=data["next"])


def _instance_resolved(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    ending = instance.ending
    if ending is not None and "status" in data:
        ending = replace(ending, status=InstanceStatus(data["status"]), output=data.get("output"))
    return instance._replace(ending=ending, halted=True)


def _instance_noted(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    return instance


def _instance_handler_failed(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    timers = instance.timers.delete(("", "handlers")) if data.get("stop") else instance.timers
    return instance._replace(timers=timers, halted=True)


def _instance_ended(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    ending = instance.ending or Ending(InstanceStatus(data["status"]))
    return instance._replace(
        phase=Phase.ENDED,
        status=InstanceStatus(data["status"]),
        ending=replace(ending, output=data.get("output"), error=data.get("error")),
        ended_at=record.at,
        timers=Map(),
        overlaps=NOTHING,
        not_run=data.get("not_run", NOTHING),
    )


def _instance_interrupted(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    run = instance.runs[data["path"]]
    number = instance.workflow.body.number
    stop = Stop(tuple(number[id] for id in data.get("steps", ())), data.get("word"), data.get("cause"))
    scope = instance.scope._replace(held=instance.scope.held | 1 << run.step)
    return instance._replace(scope=scope, stops=instance.stops.set(run.path, stop))


def _instance_resumed(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    runs, stops, held = instance.runs, instance.stops, instance.scope.held
    for path in data["paths"]:
        if path in stops:
            stops, held = stops.delete(path), held & ~(1 << runs[path].step)
        else:
            runs = runs.set(path, runs[path]._replace(reason=None))
    return instance._replace(scope=instance.scope._replace(held=held), stops=stops, runs=runs)


def _signal_received(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    signals = instance.signals
    for id in data.get("expired", ()):
        signals = signals.delete(id)
    signal = Signal(data["id"], data["event"], data.get("payload"), record.at, record.seq, record.by, data["channel"])
    return instance._replace(signals=signals.set(signal.id, signal))


def _join_cut(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    """A join has enough: jumps that wait to lead to its sources, and stops after what leads there, are given up."""
    off = {instance.workflow.body.number[id] for id in data["off"]}
    scope, stops, held = instance.scope, instance.stops, instance.scope.held
    for path in [path for path in stops if instance.runs[path].step in off]:
        stops, held = stops.delete(path), held & ~(1 << instance.runs[path].step)
    jumps = tuple(jump for jump in scope.jumps if jump.target not in off)
    return instance._replace(scope=scope._replace(jumps=jumps, held=held), stops=stops)


def _jump_waiting(instance: Instance, record: Record, data: Mapping[str, Any]) -> Instance:
    jump = Jump(instance.workflow.body.number[data["target"]], data.get("cause"))
    return instance._replace(scope=instance.scope._replace(jumps=(*instance.scope.jumps, jump)))


_INSTANCE: Mapping[str, Callable[[Instance, Record, Mapping[str, Any]], Instance]] = {
    "instance.started": _instance_started,
    "instance.ending": _instance_ending,
    "instance.handling": _instance_handling,
    "instance.finally": _instance_finally,
    "instance.resolved": _instance_resolved,
    "instance.cancel_asked": _instance_noted,
    "instance.handler_failed": _instance_handler_failed,
    "instance.ended": _instance_ended,
    "instance.interrupted": _instance_interrupted,
    "instance.resumed": _instance_resumed,
    "signal.received": _signal_received,
    "jump.waiting": _jump_waiting,
    "join.cut": _join_cut,
}
