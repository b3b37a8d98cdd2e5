"""The circuit breakers of this node as people see them, and what an operator may do with them.

It counts nothing and refuses no call; a change is told to the other nodes by whoever keeps the circuits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from agiwo.clock import rfc3339
from agiwo.errors import InvalidInput, NotFound, Problem
from agiwo.ports.breakers import BreakerState, BreakerSwitch, Circuit
from agiwo.ports.records import Records
from agiwo.service.callers import OPERATOR, Caller
from agiwo.service.changes import Change
from agiwo.values import shown

#: The name of the circuits of models; every other one is a tool's.
MODELS = "llm_task"
#: Seconds for which an operator may hold a circuit open.
LONGEST = 86_400.0


class Circuits:
    """The verbs on circuits; `tools` gives the names of the tools that there are. A caller sees those of their own tenant."""

    def __init__(self, switch: BreakerSwitch, records: Records, tools: Callable[[], Collection[str]]) -> None:
        self._switch = switch
        self._tools = tools
        self._records = records

    def listed(self, caller: Caller, after: tuple[str, str] | None, limit: int) -> Sequence[BreakerState]:
        """A page of the circuits that are not at rest, by name and key; `after` is the name and key of the last one seen."""
        found = self._switch.snapshot(caller.tenant)
        return [state for state in found if after is None or (state.circuit.name, state.circuit.key) > after][:limit]

    async def reset(self, caller: Caller, name: str, key: str, change: Change) -> None:
        """Close a circuit and forget its failures.

        Raises NotFound if it is at rest on this node or there is no such circuit, Denied for a caller who is no operator.
        """
        caller.need(OPERATOR)
        circuit = Circuit(caller.tenant, name, key)
        if all(state.circuit != circuit for state in self._switch.snapshot(caller.tenant)):
            raise NotFound(f"no circuit of {shown(name[:200])} with this key has failures on this node", code="circuit_not_found")
        if change.dry:
            return
        self._switch.reset(circuit)
        await self._audit(caller, "circuit_reset", circuit, {"reason": change.reason})

    async def hold_open(self, caller: Caller, name: str, key: str, seconds: float, change: Change) -> None:
        """Refuse the calls of a target for so many seconds, whatever they would give.

        Raises NotFound for a name that no circuit can have, InvalidInput for a span that cannot be, Denied for a caller who is no operator.
        """
        caller.need(OPERATOR)
        if name != MODELS and name not in self._tools():
            raise NotFound(f"there is no tool {shown(name[:200])}", code="circuit_not_found")
        if not 0 < seconds <= LONGEST:
            expected = f"seconds above 0 and up to {LONGEST:g}"
            problem = Problem("out_of_range", f"expected {expected}", "/seconds", found=shown(seconds), expected=expected)
            raise InvalidInput("a circuit cannot be held open for so long", problems=[problem])
        if change.dry:
            return
        circuit = Circuit(caller.tenant, name, key)
        why = f"held open by {caller.principal}" + (f": {change.reason}" if change.reason else "")
        self._switch.trip(circuit, seconds, why)
        await self._audit(caller, "circuit_open", circuit, {"reason": change.reason, "seconds": seconds})

    async def _audit(self, caller: Caller, action: str, circuit: Circuit, data: dict[str, Any]) -> None:
        await self._records.audit(caller.tenant, caller.principal, action, f"circuit/{circuit.name}/{circuit.key}", data)


def circuit_view(state: BreakerState) -> dict[str, Any]:
    """A circuit as lists show it."""
    return {
        "name": state.circuit.name,
        "key": state.circuit.key,
        "state": state.state,
        "failures": state.failures,
        "opens_at": state.most,
        "opened_at": None if state.opened_at is None else rfc3339(state.opened_at),
        "next_probe_at": None if state.until is None else rfc3339(state.until),
        "probing": state.probing,
        "last_error": None if state.error is None else dict(state.error),
        "actions": ["reset", "open"],
    }
