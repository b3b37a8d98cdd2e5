"""What the other side of a call says later, at the address that it was given: the result, a failure, or that it is still at it.

The address is the credential; whoever has it may answer, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from agiwo.clock import Clock
from agiwo.errors import Conflict, Failure, Gone, InvalidInput, NotFound, Problem
from agiwo.machine.state import Run
from agiwo.machine.view import awaits_callback
from agiwo.ports.records import Posted, Records
from agiwo.schema import Schema
from agiwo.service.callers import Caller
from agiwo.service.instances import Instances
from agiwo.service.tokens import Awaited, CallbackLinks
from agiwo.values import digest

BY = "callback"


class Callbacks:
    """The verbs at a callback's address; `poke` tells the engine of this process that an inbox has something."""

    def __init__(self, links: CallbackLinks, instances: Instances, records: Records, clock: Clock, poke: Callable[[UUID], None]) -> None:
        self._links = links
        self._instances = instances
        self._records = records
        self._clock = clock
        self._poke = poke

    async def succeed(self, token: str, result: Any) -> bool:
        """Take the result; False if the very same answer had come before.

        Raises NotFound for an address that is not ours, Gone if its time or its step is over, Conflict if another answer had come before,
        InvalidInput for a result that does not fit the step's `output_schema`.
        """
        awaited = self._links.read(token, self._clock.now())
        run, schema = await self._run(awaited)
        if schema is not None and awaits_callback(run) and (problems := schema.problems(result)):
            raise InvalidInput("the result does not fit the step's output_schema", problems=problems)
        return await self._answer(awaited, run, {"path": awaited.path, "kind": "result", "result": result})

    async def fail(self, token: str, failure: Failure) -> bool:
        """Take the news that the work failed; raises as `succeed`."""
        awaited = self._links.read(token, self._clock.now())
        run, _ = await self._run(awaited)
        return await self._answer(
            awaited, run, {"path": awaited.path, "kind": "failure", "failure": failure.to_json(), "attempt": run.attempt}
        )

    async def sign(self, token: str) -> None:
        """Take a sign of life. Raises NotFound, and Gone if nobody waits for one any more."""
        awaited = self._links.read(token, self._clock.now())
        run, _ = await self._run(awaited)
        if not awaits_callback(run):
            raise _over(run)
        await self._records.put_inbox(awaited.instance, awaited.tenant, "callback", {"path": awaited.path, "kind": "sign"})
        self._poke(awaited.instance)

    async def _run(self, awaited: Awaited) -> tuple[Run, Schema | None]:
        instance = await self._instances.load(Caller(awaited.tenant, BY), awaited.instance)
        run = instance.run(awaited.path)
        if run is None:
            raise NotFound("the step of this callback address is not there", code="unknown_callback")
        return run, instance.workflow.body.steps[run.step].output_schema

    async def _answer(self, awaited: Awaited, run: Run, body: dict[str, Any]) -> bool:
        # A result is one for the whole run. After a failure the next attempt is answered anew, at an address of its own.
        result, failure = f"callback/{awaited.path}", f"callback/{awaited.path}#{awaited.attempt}"
        before = await self._before(awaited, result, failure)
        if before is None:
            if not awaits_callback(run):
                raise _over(run)
            name = result if body["kind"] == "result" else failure
            posted = await self._records.put_inbox(awaited.instance, awaited.tenant, "callback", body, name)
            if posted is Posted.ACCEPTED:
                self._poke(awaited.instance)
                return True
            if posted is not Posted.DUPLICATE:
                raise Gone("the instance has ended", code="callback_over")
            before = await self._before(awaited, result, failure)
        if before is not None and _said(before) != _said(body):
            problem = Problem("answered", f"a {before.get('kind')} came before", "", found=str(body["kind"]))
            raise Conflict("this call was answered before, and otherwise", code="answered", problems=(problem,))
        return False

    async def _before(self, awaited: Awaited, *names: str) -> Mapping[str, Any] | None:
        """What was answered before under the first of these names that was."""
        for name in names:
            if (before := await self._records.posted(awaited.tenant, awaited.instance, name)) is not None:
                return before
        return None


def _said(body: Mapping[str, Any]) -> str:
    """Tells an answer from another one; which attempt was under way then is none of the other side's."""
    return digest({key: value for key, value in body.items() if key != "attempt"})


def _over(run: Run) -> Gone:
    status = str(run.status)
    how = status if run.fallback is None else f"{status} with its fallback"
    return Gone(f"nobody waits for this answer any more: `{run.path}` is {how}", code="callback_over", present_status=status)
