"""What a person tells a running instance: to end, or what became of a call whose outcome nobody knows.

It puts the wish where the instance's owner finds it; what follows from it the machine decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from agiwo.errors import Conflict, InvalidInput, NotFound, Problem
from agiwo.machine.interrupts import interrupted
from agiwo.machine.state import ENDED_INSTANCE, Instance, StepStatus
from agiwo.ports.records import Posted, Records
from agiwo.service.callers import OPERATOR, Caller
from agiwo.service.changes import Change
from agiwo.service.instances import Instances
from agiwo.service.view import actions, status_of
from agiwo.values import digest


class Steering:
    """The verbs on one instance; `poke` tells the engine of this process that an inbox has something."""

    def __init__(self, instances: Instances, records: Records, poke: Callable[[UUID], None]) -> None:
        self._instances = instances
        self._records = records
        self._poke = poke

    async def cancel(self, caller: Caller, id: UUID, change: Change) -> None:
        """Ask an instance to end; asking again changes nothing.

        Raises NotFound, Denied for a caller who is no operator, Conflict (code `ended`, with the present state) if it has ended already.
        """
        caller.need(OPERATOR)
        await self._put(caller, id, change, "cancel", {"by": caller.principal, "reason": change.reason})

    async def decide_outcome(self, caller: Caller, id: UUID, path: str, change: Change, *, done: bool, result: Any) -> None:
        """Say of an UNKNOWN step whether its call was done (with this result) or not.

        Raises NotFound for an unknown instance or step, Conflict if the step is not UNKNOWN, InvalidInput for a result that does not fit,
        Denied for a caller who is no operator.
        """
        caller.need(OPERATOR)
        instance = await self._instances.load(caller, id)
        run = instance.run(path)
        if run is None:
            raise NotFound(f"there is no step run `{path[:200]}` in this instance", code="step_not_found")
        if run.status is not StepStatus.UNKNOWN:
            raise conflict(instance, f"`{path}` is {run.status}; only the outcome of an UNKNOWN step can be decided", "not_unknown")
        schema = instance.workflow.body.steps[run.step].output_schema
        if done and schema is not None and (problems := schema.problems(result)):
            placed = [Problem(p.code, p.message, "/result" + p.pointer, found=p.found, expected=p.expected) for p in problems]
            raise InvalidInput("the result does not fit the step's output_schema", problems=placed)
        body = {"path": path, "by": caller.principal, "done": done, "result": result, "reason": change.reason}
        await self._put(caller, id, change, "outcome", body, dedup=f"outcome/{path}/{run.attempt}")

    async def resume(self, caller: Caller, id: UUID, change: Change) -> None:
        """Let an instance go on from where the trigger told it to stop; asking again changes nothing.

        Raises NotFound, Denied for a caller who is no operator, Conflict (code `not_interrupted`) if it stands at no such place.
        """
        caller.need(OPERATOR)
        instance = await self._instances.load(caller, id)
        paths = [run.path for run in interrupted(instance)]
        if not paths:
            raise conflict(instance, "the instance is not interrupted", "not_interrupted")
        # What was seen is let go, and nothing at which it stops before this is taken up.
        body = {"by": caller.principal, "reason": change.reason, "paths": paths}
        await self._put(caller, id, change, "resume", body, dedup=f"resume/{digest(paths)}")

    async def _put(self, caller: Caller, id: UUID, change: Change, kind: str, body: dict[str, Any], dedup: str | None = None) -> None:
        if change.dry:
            if (await self._instances.row(caller, id)).status in ENDED_INSTANCE:
                raise conflict(await self._instances.load(caller, id), "the instance has ended", "ended")
            return
        posted = await self._records.put_inbox(id, caller.tenant, kind, body, dedup)
        if posted is Posted.UNKNOWN:
            raise NotFound("there is no such instance", code="instance_not_found")
        if posted is Posted.ENDED:
            raise conflict(await self._instances.load(caller, id), "the instance has ended", "ended")
        if posted is Posted.DUPLICATE and kind == "outcome":
            raise conflict(await self._instances.load(caller, id), "the outcome of this call is decided already", "decided")
        await self._records.audit(caller.tenant, caller.principal, kind, f"instance/{id}", {"reason": change.reason})
        self._poke(id)


def conflict(instance: Instance, message: str, code: str) -> Conflict:
    """What stands in the way: the present state, and what is allowed now."""
    return Conflict(message, code=code, present_status=status_of(instance), actions=actions(instance))
