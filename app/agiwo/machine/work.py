"""One decision under way: the instance as it becomes, what is written down, what is to be done.

`emit` is the only way to change the instance, and goes through `evolve`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agiwo.definition.compiled import Step
from agiwo.machine.commands import Command, Decision, Record
from agiwo.machine.evolve import evolve
from agiwo.machine.state import Instance, Run


@dataclass(frozen=True, slots=True)
class Activation:
    """A step that is to start: by its join, by a jump, or as a handler; `waited` says that the jump stood in the scope until now."""

    step: int
    cause: str | None = None
    waited: bool = False


@dataclass(slots=True)
class Work:
    """The draft of a decision. `at` is the report's time, `draw` its random number in [0, 1)."""

    instance: Instance
    at: float
    draw: float = 0.0
    records: list[Record] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    todo: deque[Activation] = field(default_factory=deque)
    opening: dict[str, dict[str, Any]] = field(default_factory=dict)  # path -> what the first record of that run carries as well

    def emit(
        self,
        type: str,
        path: str | None = None,
        data: Mapping[str, Any] | None = None,
        *,
        attempt: int | None = None,
        by: str | None = None,
    ) -> None:
        if path is not None and path in self.opening:
            data = {**self.opening.pop(path), **(data or {})}
        record = Record(self.instance.seq + 1, type, self.at, path, attempt, by, data)
        self.instance = evolve(self.instance, record)
        self.records.append(record)

    def order(self, command: Command) -> None:
        self.commands.append(command)

    def step(self, index: int) -> Step:
        return self.instance.workflow.body.steps[index]

    def step_of(self, run: Run) -> Step:
        """The step that `run` carries out: once its fallback is taken, the step with that in the place of its call."""
        step = self.step(run.step)
        return step if run.fallback is None or step.fallback is None else step.fallback.step

    def run(self, path: str) -> Run:
        return self.instance.runs[path]

    def decision(self) -> Decision:
        return Decision(self.instance, tuple(self.commands), tuple(self.records))
