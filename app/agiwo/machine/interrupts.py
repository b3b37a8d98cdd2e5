"""Stops that whoever started the instance has asked for: before a step begins, or after it has ended and before anything follows from it.

A stop holds one path of the graph; what runs beside it goes on. It ends by a person alone.
"""

from __future__ import annotations

from collections.abc import Collection

from agiwo.machine.state import INTERRUPT, Instance, Phase, Run, StepStatus


def stops_before(instance: Instance, run: Run) -> bool:
    return instance.phase is Phase.BODY and _named(run, instance.interrupt_before)


def stops_after(instance: Instance, run: Run) -> bool:
    return instance.phase is Phase.BODY and _named(run, instance.interrupt_after)


def _named(run: Run, names: Collection[str]) -> bool:
    """An id stands for every run of the step, a path with its number for that run alone."""
    return bool(names) and (run.id in names or run.path in names)


def interrupted(instance: Instance) -> list[Run]:
    """The runs at which the instance was told to stop, in the order of the list: what has not begun, and what has ended."""
    found = [run for run in instance.live_runs() if run.status is StepStatus.QUEUED and run.reason == INTERRUPT]
    found += [instance.runs[path] for path in instance.stops]
    return sorted(found, key=lambda run: (run.step, run.iteration))
