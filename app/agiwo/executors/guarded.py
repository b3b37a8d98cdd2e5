"""An executor behind circuit breakers: what a call's end says of the other side is counted, and a call to an open circuit is not made.

It neither retries nor waits, and lets every cancellation through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from agiwo.definition.contract import Breaker, Effect, ToolContract
from agiwo.errors import Failure
from agiwo.executors.breakers import Breakers, Pass
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded
from agiwo.ports.breakers import Circuit
from agiwo.ports.executor import SILENT, TIMED_OUT, Circumstances, Executor, ProbeAnswer

#: Seconds beyond its time after which a call that has not come back counts as failed: a thread that hangs is never seen to end.
OVERDUE = 1.0
LONGEST_KEY = 200
MODELS = "llm_task"

#: The circuit of a call and what is declared for it; None for a call that no breaker watches.
CircuitOf = Callable[[StartAttempt, Circumstances], tuple[Circuit, Breaker] | None]


class GuardedCalls:
    """An Executor that lets `inner` make only those calls that their circuit admits."""

    def __init__(self, inner: Executor, breakers: Breakers, circuit_of: CircuitOf) -> None:
        self._inner = inner
        self._breakers = breakers
        self._circuit_of = circuit_of

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        found = self._circuit_of(call, where)
        if found is None:
            return await self._inner.perform(call, where)
        circuit, declared = found
        leave = self._breakers.admit(circuit, self._breakers.policy(circuit.name, declared))
        if isinstance(leave, Failure):
            return Failed(leave)
        loop = asyncio.get_running_loop()
        late = Failure("Timeout", f"no result within {call.timeout:g} s")
        begun = loop.time()
        overdue = loop.call_later(call.timeout + OVERDUE, self._breakers.ended, leave, late)
        try:
            outcome = await self._inner.perform(call, where)
        except asyncio.CancelledError as exc:
            # Silent, or at its deadline, it has failed; if it was stopped for any other reason, that says nothing of the other side.
            if exc.args[:1] in ((TIMED_OUT,), (SILENT,)) or loop.time() - begun >= call.timeout:
                self._breakers.ended(leave, late)
            raise
        else:
            self._ended(leave, outcome, late if loop.time() - begun >= call.timeout else None)
            return outcome
        finally:
            overdue.cancel()
            self._breakers.gave_nothing(leave)

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
        """Asking what became of a call is no call that counts."""
        return await self._inner.probe(call, where)

    def _ended(self, leave: Pass, outcome: Succeeded | Failed, late: Failure | None) -> None:
        self._breakers.ended(leave, late or (outcome.failure if isinstance(outcome, Failed) else None))


def tool_circuit(call: StartAttempt, where: Circumstances) -> tuple[Circuit, Breaker] | None:
    """The circuit of a tool's call; none for a pure one, which has no other side."""
    contract = call.step.contract
    if contract is None or contract.breaker is None or contract.effect is Effect.PURE:
        return None
    return Circuit(where.tenant, contract.name, key_of(contract, contract.breaker, call.arguments)), contract.breaker


def model_circuit(call: StartAttempt, where: Circumstances) -> tuple[Circuit, Breaker] | None:
    """The circuit of a model step: one for each profile; none for a step that has other profiles to fall back on."""
    if call.step.llm.get("fallback"):
        return None
    return Circuit(where.tenant, MODELS, str(call.step.llm.get("profile", ""))[:LONGEST_KEY]), Breaker()


def key_of(contract: ToolContract, breaker: Breaker, arguments: object) -> str:
    """What tells a tool's circuits apart: the first of its key's parameters that the call has, of a URL its host; as recorded, without
    secrets."""
    given: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
    properties: Mapping[str, Any] = contract.parameters.get("properties", {})
    for name in breaker.key:
        value = given.get(name, properties.get(name, {}).get("default"))
        if value is not None:
            text = str(value)
            return (_host(text) if contract.uses.get(name) == "url" else text)[:LONGEST_KEY]
    return ""


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        return f"{host}:{parts.port}" if parts.port is not None else host
    except ValueError:
        return ""
