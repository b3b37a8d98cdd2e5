"""The state machine's one address: which record may move a step, or an instance, from which states to which.

`evolve` refuses what does not stand here, and the diagram in docs/machine.md is drawn from these tables.
A step that has no run yet is PENDING; a record that is listed with no target leaves the status as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from agiwo.machine.state import InstanceStatus as I
from agiwo.machine.state import Phase as P
from agiwo.machine.state import StepStatus as S

LIVE = frozenset({S.QUEUED, S.RUNNING, S.RETRYING, S.WAITING, S.WAITING_FOR_APPROVAL, S.UNKNOWN})

#: record type -> (states that it may find, the state that it leaves; None: the same)
STEP: Mapping[str, tuple[frozenset[S], S | None]] = {
    "step.started": (LIVE | {S.PENDING}, S.RUNNING),
    "step.queued": (frozenset({S.PENDING, S.RUNNING}), S.QUEUED),
    "step.waiting": (frozenset({S.PENDING, S.QUEUED, S.RUNNING, S.WAITING_FOR_APPROVAL}), S.WAITING),
    "step.heard": (frozenset({S.WAITING}), None),
    "step.called_back": (frozenset({S.QUEUED, S.RUNNING, S.RETRYING, S.WAITING, S.UNKNOWN}), None),
    "step.signal_taken": (frozenset({S.WAITING}), None),
    "step.approval_asked": (LIVE | {S.PENDING}, S.WAITING_FOR_APPROVAL),
    "step.approval_decided": (frozenset({S.WAITING_FOR_APPROVAL}), None),
    "step.retrying": (frozenset({S.RUNNING, S.WAITING, S.UNKNOWN}), S.RETRYING),
    "step.fallback": (frozenset({S.QUEUED, S.RUNNING, S.RETRYING, S.WAITING, S.UNKNOWN}), None),
    "step.unknown": (frozenset({S.RUNNING, S.WAITING}), S.UNKNOWN),
    "step.probing": (frozenset({S.UNKNOWN}), None),
    "step.probed": (frozenset({S.UNKNOWN}), None),
    "step.outcome_decided": (frozenset({S.UNKNOWN}), None),
    "step.stopping": (frozenset({S.RUNNING}), None),
    "step.succeeded": (LIVE | {S.PENDING}, S.SUCCESS),
    "step.failed": (LIVE | {S.PENDING}, S.FAILED),
    "step.skipped": (frozenset({S.PENDING, S.QUEUED}), S.SKIPPED),
    "step.cancelled": (LIVE, S.CANCELLED),
}

#: record type -> (phases that it may find, the phase that it leaves; None: the record names it)
INSTANCE: Mapping[str, tuple[frozenset[P], P | None]] = {
    "instance.started": (frozenset({P.BODY}), P.BODY),
    "instance.ending": (frozenset({P.BODY}), P.SETTLING),
    "instance.handling": (frozenset({P.SETTLING}), P.HANDLING),
    "instance.finally": (frozenset({P.SETTLING, P.HANDLING, P.FINALLY}), P.FINALLY),
    "instance.resolved": (frozenset({P.HANDLING, P.FINALLY}), None),
    "instance.cancel_asked": (frozenset({P.BODY, P.SETTLING, P.HANDLING, P.FINALLY}), None),
    "instance.handler_failed": (frozenset({P.HANDLING, P.FINALLY}), None),
    "instance.ended": (frozenset({P.BODY, P.SETTLING, P.HANDLING, P.FINALLY}), P.ENDED),
    "instance.interrupted": (frozenset({P.BODY}), None),
    "instance.resumed": (frozenset({P.BODY}), None),
    "signal.received": (frozenset({P.BODY, P.SETTLING, P.HANDLING, P.FINALLY}), None),
    "jump.waiting": (frozenset({P.BODY, P.HANDLING, P.FINALLY}), None),
    "join.cut": (frozenset({P.BODY, P.HANDLING, P.FINALLY}), None),
}

#: The ends of an instance, and the step states that no record leaves.
FINAL_INSTANCE = frozenset({I.SUCCESS, I.FAILED, I.CANCELLED, I.TIMED_OUT})
FINAL_STEP = frozenset({S.SUCCESS, S.FAILED, S.SKIPPED, S.CANCELLED})


class IllegalTransition(Exception):
    """A record does not fit the state that it found; a bug, or a history that was tampered with."""


def mermaid() -> str:
    """The step's state diagram, drawn from the table."""
    lines = ["stateDiagram-v2"]
    seen: set[tuple[str, str, str]] = set()
    for record, (sources, target) in STEP.items():
        for source in sorted(sources):
            if target is None or source is target:
                continue
            begin = "[*]" if source is S.PENDING else str(source)
            edge = (begin, str(target), record.removeprefix("step."))
            if edge not in seen:
                seen.add(edge)
                lines.append(f"    {edge[0]} --> {edge[1]}: {edge[2]}")
    lines += [f"    {state} --> [*]" for state in sorted(FINAL_STEP)]
    return "\n".join(lines) + "\n"


def table() -> str:
    """The step's transitions as a Markdown table."""
    rows = ["| record | from | to |", "| --- | --- | --- |"]
    for record, (sources, target) in STEP.items():
        rows.append(f"| `{record}` | {', '.join(sorted(sources))} | {target or 'as it was'} |")
    return "\n".join(rows) + "\n"
