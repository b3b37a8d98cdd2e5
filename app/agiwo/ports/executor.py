"""What carries out one attempt of one kind of step. It answers in a closed vocabulary and never raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded

#: What a cancellation says (its first argument) that comes at an attempt's deadline, or because it gave no sign of life.
TIMED_OUT, SILENT = "timeout", "heartbeat"

#: A sign of life of a long call, from any thread, with what it wants said of its progress (a JSON value).
Sign = Callable[[Any], None]


def silent(progress: Any) -> None:
    """Nobody waits for a sign."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where an attempt belongs: what every call, log line and trace of it carries. `sign` is awaited where the step has a heartbeat."""

    instance_id: UUID
    workflow: str
    version: str
    tenant: str
    trace_id: str
    sign: Sign = silent


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What a probe found out.

    `answer` is done (with the result), not_done, running, failed (the probe itself could not be made: ask again later), or
    unavailable (there is nobody to ask, so a route or a person decides).
    """

    answer: str
    result: Any = None


class Executor(Protocol):
    """Carries out calls. Cancelled by asyncio at the deadline or when the machine asks; it must then let the cancellation through.

    The cancellation says why: TIMED_OUT, SILENT, or the machine's reason.
    """

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed: ...

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer: ...
