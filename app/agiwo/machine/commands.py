"""What the machine answers with: effects to be carried out, and the records of what was decided.

`OpenApproval`, `CloseApproval` and `CloseWait` belong into the same write as the records; the others are carried out once it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.definition.compiled import Step
from agiwo.machine.state import Instance


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the history: what, when, about which run and attempt, by whom, with which results.

    `seq` counts from 1 within the instance.
    """

    seq: int
    type: str
    at: float
    path: str | None = None
    attempt: int | None = None
    by: str | None = None
    data: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"seq": self.seq, "type": self.type, "at": self.at}
        if self.path is not None:
            out["path"] = self.path
        if self.attempt is not None:
            out["attempt"] = self.attempt
        if self.by is not None:
            out["by"] = self.by
        if self.data:
            out["data"] = self.data
        return out

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Record:
        return Record(data["seq"], data["type"], data["at"], data.get("path"), data.get("attempt"), data.get("by"), data.get("data"))


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Make this call; `timeout` in seconds, `heartbeat` the longest silence in seconds (None: it need not say anything).

    `secrets` says where in `arguments` the executor fills secrets in.
    """

    path: str
    step: Step
    iteration: int
    attempt: int
    arguments: Any
    secrets: Any
    timeout: float
    idempotency_key: str
    heartbeat: float | None = None


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """Abort this call and report `Stopped` (or what it gave, if it was quicker)."""

    path: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class StartProbe:
    """Ask the tool whether the call with this key was done; report `ProbeEnded`."""

    path: str
    step: Step
    iteration: int
    attempt: int
    arguments: Any
    secrets: Any
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """Ask people: one row, and a notice to each approver over each channel."""

    id: str
    path: str
    step: str
    digest: str
    title: str
    show: Any
    matter: Any
    at: str
    editable: bool
    fields: Mapping[str, Any] | None
    approvers: tuple[str, ...]
    notify: tuple[str, ...]
    asked_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class CloseApproval:
    """The matter is settled without a person: expired, cancelled or void. Must not overtake a decision that already stands in the inbox."""

    id: str
    state: str


@dataclass(frozen=True, slots=True)
class CloseWait:
    """A wait for a signal is over without one. Must not overtake a signal that already stands in the inbox."""

    path: str


Command = StartAttempt | StopAttempt | StartProbe | OpenApproval | CloseApproval | CloseWait


@dataclass(frozen=True, slots=True)
class Decision:
    """The instance as it is now, what to do, and what to write down. No records: nothing has changed."""

    instance: Instance
    commands: tuple[Command, ...] = ()
    records: tuple[Record, ...] = ()
