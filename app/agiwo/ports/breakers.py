"""Circuit breakers as others see them: what stands open, the news of it between nodes, and what an operator may do.

Who refuses calls, and how failures are counted, is the executors' matter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

OPEN, HALF_OPEN, CLOSED = "open", "half_open", "closed"


@dataclass(frozen=True, slots=True)
class Circuit:
    """One circuit of a tenant: the name of the tool (`llm_task` for models), and what tells its circuits apart (a host, a connection)."""

    tenant: str
    name: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class BreakerState:
    """A circuit as it stands on this node.

    `failures` in a row of `most`; `opened_at` and `until` are seconds since 1970, None while it is closed; `probing` says whether the one
    call that is let through is under way. `error` is the last failure that counted: type, message and status.
    """

    circuit: Circuit
    state: str
    failures: int
    most: int
    opened_at: float | None = None
    until: float | None = None
    probing: bool = False
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """News: a circuit has opened (for `seconds` from now on, by this failure) or has closed."""

    circuit: Circuit
    state: str
    seconds: float = 0.0
    error: Mapping[str, Any] | None = None


class BreakerNews(Protocol):
    """Carries news of circuits between nodes. It may lose some: then a node counts for itself."""

    def tell(self, change: BreakerChange) -> None:
        """Let the other nodes know soon. Never raises, never blocks."""
        ...

    def hear(self) -> AsyncIterator[BreakerChange]:
        """What is told, by this node too, for ever; it connects again by itself."""
        ...


class BreakerSwitch(Protocol):
    """What an operator sees and does; a change is told to the other nodes."""

    def snapshot(self, tenant: str | None = None) -> Sequence[BreakerState]:
        """The circuits that are not at rest (a failure counted, or open), by tenant, name and key; of all tenants without one."""
        ...

    def reset(self, circuit: Circuit) -> bool:
        """Close it and forget its failures; False if it was at rest."""
        ...

    def trip(self, circuit: Circuit, seconds: float, reason: str) -> None:
        """Open it for so long, whatever its calls do."""
        ...
