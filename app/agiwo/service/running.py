"""Starting an instance and waiting for it: until it has ended, or until a person is asked.

An instance that ends in this process is answered from memory; only what waits, or runs elsewhere, is read from the storage.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agiwo.clock import Clock
from agiwo.machine.state import Instance
from agiwo.service.callers import Caller
from agiwo.service.changes import PLAIN, Change
from agiwo.service.following import Following
from agiwo.service.instances import Instances
from agiwo.service.redaction import instance_for
from agiwo.service.trigger import Ended, Started, TriggerCall, Triggering
from agiwo.service.view import instance_view


class Running:
    """The verb `run`: trigger and wait."""

    def __init__(self, triggering: Triggering, instances: Instances, following: Following, clock: Clock) -> None:
        self._triggering = triggering
        self._instances = instances
        self._following = following
        self._clock = clock

    async def until_settled(
        self, caller: Caller, call: TriggerCall, seconds: float, change: Change = PLAIN
    ) -> tuple[Started, dict[str, Any]]:
        """Start an instance and give its view when it has ended or waits for a person, after `seconds` at the latest.

        Raises what `trigger` raises.
        """
        until = self._clock.monotonic() + seconds
        started, instance = await self._begun(caller, call, seconds, change)
        if instance is not None:
            return started, instance_for(caller, {**instance_view(instance), "correlation_key": call.correlation_key})
        await self._following.settled(caller, started.id, max(until - self._clock.monotonic(), 0.0))
        return started, await self._instances.view(caller, started.id)

    async def to_end(self, caller: Caller, call: TriggerCall, seconds: float | None = None) -> dict[str, Any]:
        """Start an instance and give its view when it has ended, whatever it waits for meanwhile.

        Raises what `trigger` raises, and TimeoutError after `seconds` (the instance goes on).
        """
        async with asyncio.timeout(seconds):
            started, instance = await self._begun(caller, call, seconds)
            if instance is not None:
                return instance_for(caller, {**instance_view(instance), "correlation_key": call.correlation_key})
            async for _ in self._following.records(caller, started.id, 0):
                continue
        return await self._instances.view(caller, started.id)

    async def _begun(
        self, caller: Caller, call: TriggerCall, seconds: float | None, change: Change = PLAIN
    ) -> tuple[Started, Instance | None]:
        ended: Ended = asyncio.get_running_loop().create_future()
        started = await self._triggering.trigger(caller, call, ended, change)
        if started.repeated or started.entrusted:
            return started, None
        # Not wait_for: a wait that runs out must not cancel what the engine will still set.
        await asyncio.wait((ended,), timeout=seconds)
        return started, ended.result() if ended.done() else None
