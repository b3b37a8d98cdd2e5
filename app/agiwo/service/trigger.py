"""Starting an instance: the input checked, the version chosen, the promise of the caller's key kept, acknowledged after the commit.

It runs no step and decides nothing that the machine decides; what it refuses is kept and listed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol
from uuid import UUID

from agiwo.clock import Clock
from agiwo.definition.compiled import Workflow
from agiwo.errors import AgiwoError, Conflict, Denied, InvalidInput, NotFound, Overloaded, Problem, ServiceError
from agiwo.ids import SHARDS, uuid7
from agiwo.machine.reports import Begin
from agiwo.machine.state import Instance
from agiwo.names import nearest
from agiwo.ports.records import Records, RejectedTrigger
from agiwo.ports.store import Answer, NewInstance, Verdict
from agiwo.ports.workflows import HoldKind, WorkflowStore
from agiwo.service.callers import OPERATOR, Caller
from agiwo.service.changes import PLAIN, Change
from agiwo.service.definitions import Catalog
from agiwo.service.webhooks import url_problem
from agiwo.service.workflows import paused
from agiwo.values import digest, pointer

KEY_KEPT = 24 * 3600.0
#: Tries to begin with a version that others delete meanwhile.
TRIES = 3
#: The number of a run: the first one has none.
_RUN = re.compile(r"[2-9]|[1-9][0-9]{1,6}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


#: Gets the instance when it has ended here, or None when this node lets go of it before (it waits, or is another node's).
Ended = asyncio.Future[Instance | None]


#: Is told of a trigger that started nothing: when (seconds since 1970), of which tenant.
Refused = Callable[[float, str, RejectedTrigger], None]


class Starter(Protocol):
    """The part of the engine that begins instances."""

    async def begin(
        self, id: UUID, workflow: Workflow, tenant: str, begin: Begin, new: NewInstance, *, ended: Ended | None = None
    ) -> Verdict: ...

    async def entrust(self, id: UUID, workflow: Workflow, tenant: str, begin: Begin, new: NewInstance) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class TriggerCall:
    """What a caller asks for; `key` is the idempotency key, `trace_id` that of the caller or a new one."""

    workflow: str
    trace_id: str
    input: Any = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    correlation_key: str | None = None
    key: str | None = None
    interrupt_before: Sequence[str] = ()
    interrupt_after: Sequence[str] = ()
    callback_url: str | None = None

    @property
    def digest(self) -> str:
        """Tells a repetition from another call under the same key."""
        asked = [self.workflow, self.version, self.input, dict(self.context), dict(self.labels), self.correlation_key]
        if self.interrupt_before or self.interrupt_after:
            asked.append([list(self.interrupt_before), list(self.interrupt_after)])
        if self.callback_url is not None:
            asked.append({"callback_url": self.callback_url})
        return digest(asked)


@dataclass(frozen=True, slots=True)
class Started:
    """An accepted call.

    `repeated` if its key had started this instance before, `entrusted` if any node may take it, `deprecated` if the version that was asked
    for by name is.
    """

    id: UUID
    workflow: str
    version: str
    trace_id: str
    repeated: bool = False
    entrusted: bool = False
    deprecated: bool = False


class Triggering:
    """The verb `trigger`; `refused` is told of each call that started nothing."""

    def __init__(
        self,
        catalog: Catalog,
        starter: Starter,
        records: Records,
        workflows: WorkflowStore,
        clock: Clock,
        random: Random,
        key_kept: float = KEY_KEPT,
        refused: Refused | None = None,
    ) -> None:
        self._catalog = catalog
        self._workflows = workflows
        self._starter = starter
        self._records = records
        self._clock = clock
        self._random = random
        self._key_kept = key_kept
        self._refused = refused

    async def trigger(self, caller: Caller, call: TriggerCall, ended: Ended | None = None, change: Change = PLAIN) -> Started:
        """Start an instance; it is durable when this returns. `ended` is told of its end, if it was begun here.

        Raises NotFound for an unknown workflow or version, InvalidInput for what does not fit, Conflict for a key that stands for another
        call or a workflow that is paused (`workflow_paused`), Denied for a caller who is no operator. All of these are kept as rejected
        triggers.

        The instance itself says who started it and when; a reason that was given goes into the audit.
        """
        try:
            caller.need(OPERATOR)
            started = await self._start(caller, call, ended)
        except (InvalidInput, NotFound, Conflict, Denied) as exc:
            await self.reject(caller, call.workflow, exc, version=call.version, trace_id=call.trace_id)
            raise
        if change.reason is not None and not started.repeated:
            await self._records.audit(caller.tenant, caller.principal, "trigger", f"instance/{started.id}", {"reason": change.reason})
        return started

    async def tried(self, caller: Caller, call: TriggerCall) -> str:
        """Check a call as `trigger` does, and start nothing; gives the version that it would run. Nothing is kept of what is refused.

        Raises what `trigger` raises.
        """
        caller.need(OPERATOR)
        workflow = await self._chosen(caller.tenant, call)
        check_call(workflow, call)
        if call.key is not None and (promise := await self._records.promise(caller.tenant, call.key)) is not None:
            self._same(promise.instance_id, promise.request_digest, call)
        elif (hold := await self._workflows.hold(caller.tenant, call.workflow)) is not None:
            raise paused(hold)
        return workflow.version

    async def reject(
        self, caller: Caller, workflow: str, error: AgiwoError, *, version: str | None = None, trace_id: str | None = None
    ) -> None:
        """Keep a call that started nothing, with the reason."""
        problems: list[Mapping[str, Any]] = [p.to_json() for p in error.problems[:100]] if isinstance(error, ServiceError) else []
        if not problems:
            problems = [Problem(error.code, error.message).to_json()]
        name, asked = workflow[:200], version[:100] if version is not None else None
        rejected = RejectedTrigger(name, error.code, problems, asked, caller.principal, trace_id)
        if self._refused is not None:
            self._refused(self._clock.now(), caller.tenant, rejected)
        await self._records.reject_trigger(caller.tenant, rejected)

    async def _start(self, caller: Caller, call: TriggerCall, ended: Ended | None) -> Started:
        deprecated = False
        if call.version is not None:
            deprecated = (await self._catalog.known_line(caller.tenant, call.workflow, call.version)).deprecated_at is not None
        for _ in range(TRIES):
            started = await self._begun(caller, call, ended)
            if started is not None:
                return replace(started, deprecated=True) if deprecated else started
        raise NotFound(f"the versions of {call.workflow!r} are being deleted", code="version_not_found")

    async def _begun(self, caller: Caller, call: TriggerCall, ended: Ended | None) -> Started | None:
        """None if the version that was taken was deleted in the meantime."""
        workflow = await self._chosen(caller.tenant, call)
        check_call(workflow, call)
        now = self._clock.now()
        id = uuid7(now, self._random.getrandbits(66), self._random.randrange(SHARDS))
        new = NewInstance(
            workflow=workflow.id,
            version=workflow.version,
            content_hash=workflow.content_hash,
            trace_id=call.trace_id,
            starter=caller.principal,
            labels=call.labels,
            correlation_key=call.correlation_key,
            callback_url=call.callback_url,
        )
        if call.key is not None:
            new = replace(new, idempotency_key=call.key, request_digest=call.digest, key_expires_at=now + self._key_kept)
        begin = Begin(
            now, call.input, call.context, caller.principal, call.labels, call.trace_id, call.interrupt_before, call.interrupt_after
        )
        entrusted = False
        try:
            verdict = await self._starter.begin(id, workflow, caller.tenant, begin, new, ended=ended)
        except Overloaded:
            # No room here: written down, whichever node has room takes it.
            entrusted = True
            verdict = await self._starter.entrust(id, workflow, caller.tenant, begin, new)
        if verdict.answer is Answer.DUPLICATE and verdict.existing is not None:
            self._same(verdict.existing, verdict.existing_digest, call)
            return Started(verdict.existing, workflow.id, workflow.version, call.trace_id, repeated=True)
        if verdict.answer is Answer.HELD_BACK:
            await self._held_back(caller.tenant, workflow, verdict.message)
            return None
        if verdict.answer is not Answer.APPLIED:
            raise InvalidInput(f"the instance cannot be stored: {verdict.message or verdict.answer}", code="not_storable")
        return Started(id, workflow.id, workflow.version, call.trace_id, entrusted=entrusted)

    async def _held_back(self, tenant: str, workflow: Workflow, why: str) -> None:
        """The write itself found that nothing new may start: say who wants it so. A version that was deleted is forgotten here too."""
        if why == HoldKind.DELETED:
            self._catalog.forget(tenant, workflow.id, workflow.version)
            return
        hold = await self._workflows.hold(tenant, workflow.id)
        if hold is not None:
            raise paused(hold)
        said = f"{workflow.id} was paused until a moment ago; try again"
        raise Conflict(said, code="workflow_paused", present_status="ACTIVE", actions=[])

    def _same(self, existing: UUID, digest: str | None, call: TriggerCall) -> None:
        if digest != call.digest:
            raise Conflict("this Idempotency-Key stands for another call", code="idempotency_key_reused", instance_id=str(existing))

    async def _chosen(self, tenant: str, call: TriggerCall) -> Workflow:
        if call.version is not None:
            return await self._catalog.get(tenant, call.workflow, call.version)
        return await self._catalog.newest(tenant, call.workflow)


def check_call(workflow: Workflow, call: TriggerCall) -> None:
    """Raises InvalidInput for an input, a context or names of steps that the workflow cannot take."""
    problems: list[Problem] = []
    for key in call.context:
        if _NAME.fullmatch(key) is None:
            problems.append(Problem("bad_name", f"the context key {key[:80]!r} is no name: letters, digits and _", pointer("context", key)))
        elif key in workflow.state:
            problems.append(Problem("state_key", f"`{key}` is a state key, which only steps write", pointer("context", key)))
    problems += _interrupt_problems(workflow, call)
    if call.callback_url is not None and (found := url_problem(call.callback_url, "/callback_url")) is not None:
        problems.append(found)
    schema = workflow.input_schema
    if schema is not None and not schema.fits(call.input):
        problems += [replace(p, pointer="/input" + p.pointer) for p in schema.problems(call.input)]
        raise InvalidInput("the input does not fit the workflow's input_schema", code="input_invalid", problems=problems)
    if problems:
        raise InvalidInput("the call does not fit the workflow", problems=problems)


def _interrupt_problems(workflow: Workflow, call: TriggerCall) -> Iterator[Problem]:
    """Names of steps to stop at that the workflow does not have."""
    known = workflow.body.number
    for field_name in ("interrupt_before", "interrupt_after"):
        for place, name in enumerate(getattr(call, field_name)):
            id, tilde, number = name.partition("~")
            if id not in known or (tilde and _RUN.fullmatch(number) is None):
                near = nearest(id, known)
                message = f"there is no step `{name[:80]}`" + (f"; did you mean `{near}`?" if near is not None else "")
                at = pointer(field_name, place)
                expected = "one of " + ", ".join(list(known)[:30])
                yield Problem("unknown_step", message, at, found=name[:80], expected=expected, nearest=near)
