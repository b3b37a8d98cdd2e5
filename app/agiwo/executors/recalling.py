"""An executor that keeps the results of calls whose step may fall back to its last good one, and hands them on when it does.

Keeping is done beside the call, as well as it goes: it never fails or delays a step.
"""

from __future__ import annotations

import asyncio

from agiwo.clock import Clock
from agiwo.definition.compiled import FallbackKind, Step
from agiwo.definition.durations import worded
from agiwo.errors import Failure
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded
from agiwo.ports.executor import Circumstances, Executor, ProbeAnswer
from agiwo.ports.last_good import CallDigest, GoodResult, LastGood
from agiwo.ports.store import StoreUnavailable
from agiwo.values import digest

#: Results that are being kept at one time; more are not.
MOST_AT_ONCE = 100


class RecallingCalls:
    """An Executor around `inner`, on the results in `kept`."""

    def __init__(self, inner: Executor, kept: LastGood, clock: Clock) -> None:
        self._inner = inner
        self._kept = kept
        self._clock = clock
        self._keeping: set[asyncio.Task[None]] = set()

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        if call.step.recall is not None:
            return await self._recalled(_digest(call, where), call.step.recall)
        outcome = await self._inner.perform(call, where)
        seconds = _asked_for(call.step)
        if seconds is not None and isinstance(outcome, Succeeded) and len(self._keeping) < MOST_AT_ONCE:
            task = asyncio.create_task(self._keep(_digest(call, where), GoodResult(outcome.result, self._clock.now()), seconds))
            self._keeping.add(task)
            task.add_done_callback(self._keeping.discard)
        return outcome

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
        return await self._inner.probe(call, where)

    async def settled(self) -> None:
        """Wait for what is being kept."""
        await asyncio.gather(*self._keeping)

    async def _keep(self, call: CallDigest, good: GoodResult, seconds: float) -> None:
        try:
            await self._kept.keep(call, good, seconds)
        except Exception:
            return  # a fallback less; the step has its result

    async def _recalled(self, call: CallDigest, seconds: float) -> Succeeded | Failed:
        try:
            good = await self._kept.find(call, self._clock.now() - seconds)
        except StoreUnavailable as exc:
            return Failed(Failure("Unavailable", f"the last good result cannot be looked up: {exc}"))
        if good is None:
            message = f"there is no good result of {call.tool} with these arguments from the last {worded(seconds)}"
            return Failed(Failure("NotFound", message))
        return Succeeded(good.result)


def _digest(call: StartAttempt, where: Circumstances) -> CallDigest:
    """Secrets count by their names: a new password is no other call."""
    return CallDigest(where.tenant, call.step.tool or "", digest([call.arguments, call.secrets or []]))


def _asked_for(step: Step) -> float | None:
    fallback = step.fallback
    if step.callback is not None:
        return None  # what the call gives is not its result
    return fallback.step.recall if fallback is not None and fallback.kind is FallbackKind.LAST_GOOD else None
