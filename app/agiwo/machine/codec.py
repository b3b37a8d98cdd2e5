"""An instance as JSON and back: the snapshot that bounds how much history a take-over has to read.

Only what is not its default is written; the definition is named, never held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from immutables import Map

from agiwo.definition.compiled import Workflow
from agiwo.machine.state import (
    NOTHING,
    Ending,
    Instance,
    InstanceStatus,
    Jump,
    Overlap,
    Phase,
    Run,
    Scope,
    Settled,
    Signal,
    StepStatus,
    Stop,
)

FORMAT = 1

_REQUIRED = object()
_RUN_FIELDS = tuple((name, Run._field_defaults.get(name, _REQUIRED)) for name in Run._fields if name not in ("step", "id"))


def snapshot(instance: Instance) -> dict[str, Any]:
    """The instance's state as JSON; `restore` gives the same instance back."""
    scope = instance.scope
    out: dict[str, Any] = {
        "format": FORMAT,
        "seq": instance.seq,
        "trace_id": instance.trace_id,
        "status": str(instance.status),
        "phase": str(instance.phase),
        "input": instance.input,
        "started_at": instance.started_at,
        "values": dict(instance.values),
        "commits": instance.commits,
        "runs": [_run_out(run) for _, run in sorted(instance.runs.items())],
        "scope": {
            "latest": sorted(scope.latest.items()),
            "live": hex(scope.live),
            "open": hex(scope.open),
            "counted": [[k, list(v)] for k, v in sorted(scope.counted.items())],
            "jumps": [[j.target, j.cause] for j in scope.jumps],
        },
        "timers": [[path, kind, due] for (path, kind), due in sorted(instance.timers.items())],
    }
    if instance.starter is not None:
        out["starter"] = instance.starter
    if instance.labels:
        out["labels"] = dict(instance.labels)
    if instance.ended_at is not None:
        out["ended_at"] = instance.ended_at
    if instance.overlaps:
        out["overlaps"] = [[key, o.base, o.has_base, sorted(o.parts.items())] for key, o in sorted(instance.overlaps.items())]
    if instance.ending is not None:
        e = instance.ending
        out["ending"] = {"status": str(e.status), "error": e.error, "by": e.by, "reason": e.reason, "output": e.output}
    if instance.finally_next:
        out["finally_next"] = instance.finally_next
    if instance.halted:
        out["halted"] = True
    if instance.not_run:
        out["not_run"] = dict(instance.not_run)
    if scope.held:
        out["scope"]["held"] = hex(scope.held)
    return out | _from_outside(instance)


def _from_outside(instance: Instance) -> dict[str, Any]:
    """What was asked for at the trigger, and what was sent since."""
    out: dict[str, Any] = {name: list(ids) for name in ("interrupt_before", "interrupt_after") if (ids := getattr(instance, name))}
    if instance.stops:
        out["stops"] = [[path, list(s.steps), s.word, s.cause] for path, s in sorted(instance.stops.items())]
    if instance.signals:
        out["signals"] = [list(signal) for _, signal in sorted(instance.signals.items())]
    if instance.signals_used:
        out["signals_used"] = dict(instance.signals_used)
    return out


def _run_out(run: Run) -> dict[str, Any]:
    out: dict[str, Any] = {"id": run.id}
    for name, default in _RUN_FIELDS:
        value = getattr(run, name)
        if value is not default and (value != default or type(value) is not type(default)):
            out[name] = list(value) if isinstance(value, tuple) else str(value) if isinstance(value, StepStatus | Settled) else value
    return out


def restore(workflow: Workflow, tenant: str, id: UUID, data: Mapping[str, Any]) -> Instance:
    """The instance of a snapshot. Raises ValueError for a format that this release does not know."""
    if data.get("format") != FORMAT:
        raise ValueError(f"snapshot format {data.get('format')} is not {FORMAT}")
    scope = data["scope"]
    runs = {run["path"]: _run_in(workflow, run) for run in data["runs"]}
    ending = data.get("ending")
    return Instance(
        id=id,
        workflow=workflow,
        tenant=tenant,
        trace_id=data["trace_id"],
        status=InstanceStatus(data["status"]),
        phase=Phase(data["phase"]),
        seq=data["seq"],
        input=data["input"],
        starter=data.get("starter"),
        labels=data.get("labels", NOTHING),
        started_at=data["started_at"],
        ended_at=data.get("ended_at"),
        values=Map(data["values"]),
        overlaps=Map({key: Overlap(base, has, Map({s: p for s, p in parts})) for key, base, has, parts in data.get("overlaps", ())}),
        scope=Scope(
            latest=Map({k: v for k, v in scope["latest"]}),
            live=int(scope["live"], 16),
            open=int(scope["open"], 16),
            counted=Map({k: tuple(v) for k, v in scope["counted"]}),
            jumps=tuple(Jump(target, cause) for target, cause in scope["jumps"]),
            held=int(scope.get("held", "0"), 16),
        ),
        runs=Map(runs),
        timers=Map({(path, kind): due for path, kind, due in data["timers"]}),
        commits=data["commits"],
        ending=None if ending is None else Ending(**{**ending, "status": InstanceStatus(ending["status"])}),
        finally_next=data.get("finally_next", 0),
        halted=data.get("halted", False),
        not_run=data.get("not_run", NOTHING),
        signals=Map({id: Signal(id, *rest) for id, *rest in data.get("signals", ())}),
        signals_used=Map(data.get("signals_used", {})),
        interrupt_before=tuple(data.get("interrupt_before", ())),
        interrupt_after=tuple(data.get("interrupt_after", ())),
        stops=Map({path: Stop(tuple(steps), word, cause) for path, steps, word, cause in data.get("stops", ())}),
    )


def _run_in(workflow: Workflow, data: Mapping[str, Any]) -> Run:
    given = dict(data)
    given["status"] = StepStatus(given["status"])
    if "settled" in given and given["settled"] is not None:
        given["settled"] = Settled(given["settled"])
    for name in ("attempts", "marks"):
        if name in given:
            given[name] = tuple(given[name])
    return Run(step=workflow.body.number[given["id"]], **given)
