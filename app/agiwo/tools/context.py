"""What a tool is told about the call that it serves.

It must not let a tool reach the engine: everything here is a value, a name or a callback that may be ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agiwo.clock import Clock, SystemClock
from agiwo.errors import StepError
from agiwo.outbound.connections import Connections

Log = Callable[..., None]


#: Sends a message over a channel to addresses; gives those that were told.
Tell = Callable[[str, Sequence[str], Mapping[str, Any]], Awaitable[list[str]]]


async def no_channel(channel: str, to: Sequence[str], body: Mapping[str, Any]) -> list[str]:
    """Where nobody can be told: raises StepError."""
    raise StepError(f"there is no channel {channel!r} in the configuration; there are: none", type="NotFound", not_done=True)


def _silent(message: str, **fields: Any) -> None:
    """Nobody listens."""


def _no_sign(progress: Any = None) -> None:
    """Nobody waits for a sign of life."""


#: Sends a signal: its id, event, payload, and the id of an instance or a correlation key; gives what became of it, by receiver.
SendSignal = Callable[[str, str, Any, str | None, str | None], Awaitable[Sequence[Mapping[str, Any]]]]


@dataclass(frozen=True, slots=True)
class CallbackUrls:
    """Where the other side answers a call of a step with `completion: callback`; whoever knows these addresses may answer."""

    url: str
    failure_url: str
    heartbeat_url: str


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a call belongs and what it may use.

    `step` is the path of the step; `idempotency_key` is the same for all attempts of one step run. `deadline` is a time of
    `clock.monotonic()` in seconds, None without a limit. `log(message, **fields)` writes a line of the instance's log. `secrets` gives a
    secret's value by its name. `heartbeat(progress)` is the sign of life that a step with `heartbeat` waits for; `callback` says where the
    answer of a step with `completion: callback` is awaited. `tell` sends a message over a channel by its name, `signals` a signal to other
    instances, where there are any.
    """

    instance_id: str = ""
    workflow: str = ""
    version: str = ""
    step: str = ""
    iteration: int = 1
    attempt: int = 1
    tenant: str = "default"
    idempotency_key: str = ""
    trace_id: str = "0" * 32
    deadline: float | None = None
    clock: Clock = field(default_factory=SystemClock)
    connections: Connections = field(default_factory=Connections)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    log: Log = _silent
    heartbeat: Callable[[Any], None] = _no_sign
    callback: CallbackUrls | None = None
    tell: Tell = no_channel
    signals: SendSignal | None = field(default=None, repr=False)

    def remaining(self, at_most: float | None = None) -> float | None:
        """Seconds until the deadline, never below 0 and never above `at_most`; None if neither bounds it."""
        if self.deadline is None:
            return at_most
        left = max(0.0, self.deadline - self.clock.monotonic())
        return left if at_most is None else min(left, at_most)

    @property
    def span_id(self) -> str:
        """The span of this attempt, 16 hex digits, derived from what it is."""
        seed = f"{self.instance_id}\x1f{self.step}\x1f{self.iteration}\x1f{self.attempt}"
        return hashlib.sha256(seed.encode()).hexdigest()[:16]

    def traceparent(self) -> str:
        """The W3C trace context of this attempt, for the header of that name."""
        return f"00-{self.trace_id}-{self.span_id}-01"
