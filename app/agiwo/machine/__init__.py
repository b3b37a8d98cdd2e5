"""The heart: a pure, synchronous state machine over values.

`decide` answers a report, `evolve` applies a record, and nothing else changes an instance.
"""

from agiwo.machine.codec import restore, snapshot
from agiwo.machine.commands import (
    CloseApproval,
    CloseWait,
    Command,
    Decision,
    OpenApproval,
    Record,
    StartAttempt,
    StartProbe,
    StopAttempt,
)
from agiwo.machine.decide import decide
from agiwo.machine.evolve import blank, evolve
from agiwo.machine.state import Instance, InstanceStatus, Phase, Run, StepStatus

__all__ = [
    "CloseApproval",
    "CloseWait",
    "Command",
    "Decision",
    "Instance",
    "InstanceStatus",
    "OpenApproval",
    "Phase",
    "Record",
    "Run",
    "StartAttempt",
    "StartProbe",
    "StepStatus",
    "StopAttempt",
    "blank",
    "decide",
    "evolve",
    "restore",
    "snapshot",
]
