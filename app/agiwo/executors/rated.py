"""An executor behind limits on rates: a call beyond what the operator allows is not made, and is told when it may come again.

It waits for nothing itself: the step's policy says what becomes of the refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agiwo.errors import Failure
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded
from agiwo.ports.executor import Circumstances, Executor, ProbeAnswer
from agiwo.ports.rates import RateLimits


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls in `per` seconds."""

    limit: int
    per: int


class RatedCalls:
    """An Executor that lets `inner` make what the rates, by the name of the tool, allow for all tenants together."""

    def __init__(self, inner: Executor, limits: RateLimits, rates: Mapping[str, Rate]) -> None:
        self._inner = inner
        self._limits = limits
        self._rates = rates

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        name = call.step.tool or ""
        rate = self._rates.get(name)
        if rate is not None and (wait := await self._limits.acquire(f"tool:{name}", rate.limit, rate.per)):
            message = f"held back here: {name} may be called {rate.limit} times in {rate.per} s"
            return Failed(Failure("RateLimited", message, not_done=True, retry_after=wait))
        return await self._inner.perform(call, where)

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
        """Asking what became of a call is no call that counts."""
        return await self._inner.probe(call, where)
