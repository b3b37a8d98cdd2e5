"""Approvals: listing what waits for people, and taking one decision for each.

Who may decide and whether the form fits is settled here; that exactly one decision counts is settled by the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from agiwo.clock import Clock
from agiwo.definition.compiled import Kind, Step
from agiwo.definition.contract import Effect
from agiwo.errors import Changed, Conflict, Denied, Gone, InvalidInput, NotFound, Problem, ValueRefused
from agiwo.ports.definitions import Definitions
from agiwo.ports.queries import Approval, Queries
from agiwo.ports.records import DecisionAnswer, Records, StoredApproval
from agiwo.schema import Schema
from agiwo.service.callers import Caller
from agiwo.service.changes import PLAIN, Change
from agiwo.service.view import DECIDED, time_text
from agiwo.values import check


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person says: `action` is approve or reject, `edited` the changed output in a one-element tuple, `digest` what they saw."""

    action: str
    comment: str | None = None
    values: Mapping[str, Any] | None = None
    edited: tuple[Any] | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Consequence:
    """What an approval lets happen: the step's kind, and the tool that is called with its effect."""

    kind: Kind
    tool: str | None = None
    effect: Effect | None = None


class Approvals:
    """The verbs on approvals; `poke` tells the engine of this process that an inbox has something."""

    def __init__(self, queries: Queries, records: Records, definitions: Definitions, clock: Clock, poke: Callable[[UUID], None]) -> None:
        self._queries = queries
        self._records = records
        self._definitions = definitions
        self._clock = clock
        self._poke = poke

    async def find(self, tenant: str, id: UUID) -> Approval:
        """Raises NotFound."""
        approval = await self._queries.approval(tenant, id)
        if approval is None:
            raise NotFound("there is no such approval", code="approval_not_found")
        return approval

    async def listed(
        self, tenant: str, *, state: str | None, assignee: str | None, instance: UUID | None, before: UUID | None, limit: int
    ) -> list[Approval]:
        """Newest first."""
        return await self._queries.approvals(tenant, state, assignee, instance, before, limit)

    async def consequence(self, tenant: str, approval: Approval) -> Consequence:
        """What would be done, by the definition that the instance runs on."""
        step = await self._step(tenant, approval)
        if approval.body.get("at") == "before" and step.kind is not Kind.APPROVAL:
            return Consequence(step.kind, step.tool or step.id, step.effect)
        return Consequence(step.kind)

    async def decide(self, caller: Caller, id: UUID, verdict: Verdict, channel: str, change: Change = PLAIN) -> Approval:
        """Take a decision; the same one by the same person again gives the first result. A dry one gives the approval as it stands.

        Raises NotFound; Denied for somebody who is no approver; Conflict naming who decided otherwise; Gone once it is over; Changed if the
        digest is another one; InvalidInput for a form or an edited output that does not fit, which decides nothing.
        """
        approval = await self.find(caller.tenant, id)
        if not caller.may_decide(approval.approvers):
            raise Denied("only its approvers may decide this", code="not_an_approver", approvers=list(approval.approvers))
        if approval.state == "pending":
            if self._clock.now() >= approval.expires_at:
                raise Gone("nobody decided in time", code="approval_expired")
            if verdict.digest is not None and verdict.digest != approval.digest:
                raise _changed(approval)
            verdict = await self._checked(caller.tenant, approval, verdict)
        given = {"values": verdict.values, "edited": None if verdict.edited is None else [verdict.edited[0]]}
        answer = {key: value for key, value in given.items() if value is not None} or None
        if change.dry:
            return _tried(approval, caller, verdict, answer)
        result = await self._records.decide_approval(
            caller.tenant,
            id,
            action=verdict.action,
            by=caller.principal,
            channel=channel,
            digest=verdict.digest or approval.digest,
            comment=verdict.comment,
            answer=answer,
        )
        if result.answer is DecisionAnswer.DECIDED:
            self._poke(approval.instance)
            data = {"reason": change.reason, "comment": verdict.comment, "channel": channel}
            await self._records.audit(caller.tenant, caller.principal, verdict.action, f"approval/{id}", data)
        elif result.answer is not DecisionAnswer.REPEATED:
            raise _refusal(result.answer, result.approval, approval)
        return approval if result.approval is None else _as_stored(approval, result.approval)

    async def _checked(self, tenant: str, approval: Approval, verdict: Verdict) -> Verdict:
        problems: list[Problem] = []
        if verdict.action == "approve":
            problems += _form_problems(approval.body.get("fields"), verdict.values)
        if verdict.edited is not None:
            if not approval.body.get("editable"):
                problems.append(Problem("not_editable", "this matter cannot be changed, only approved or rejected", "/output"))
            elif verdict.action != "approve":
                problems.append(Problem("not_editable", "a rejection changes nothing", "/output"))
            else:
                problems += await self._output_problems(tenant, approval, verdict.edited[0])
        try:
            check([verdict.comment, verdict.values])
        except ValueRefused as exc:
            problems.append(Problem(exc.code, exc.message, {"/0": "/comment"}.get(exc.pointer, "/values")))
        if problems:
            raise InvalidInput("nothing was decided: the form does not fit", code="form_invalid", problems=problems)
        return replace(verdict, values=verdict.values if verdict.values or approval.body.get("fields") else None)

    async def _output_problems(self, tenant: str, approval: Approval, output: Any) -> list[Problem]:
        try:
            check(output)
        except ValueRefused as exc:
            return [Problem(exc.code, exc.message, "/output" + exc.pointer)]
        schema = (await self._step(tenant, approval)).output_schema
        found = [] if schema is None else schema.problems(output)
        if schema is None and isinstance(approval.body.get("matter"), str) and not isinstance(output, str):
            found = [Problem("wrong_type", "expected text")]
        return [replace(p, pointer="/output" + p.pointer) for p in found]

    async def _step(self, tenant: str, approval: Approval) -> Step:
        row = await self._queries.instance(tenant, approval.instance)
        if row is None:
            raise NotFound("there is no such approval", code="approval_not_found")
        return (await self._definitions.get(tenant, row.workflow, row.version)).body[approval.step]


def _form_problems(fields: Any, values: Mapping[str, Any] | None) -> list[Problem]:
    if fields is None:
        if values:
            return [Problem("no_form", "this approval has no form", "/values")]
        return []
    return [replace(p, pointer="/values" + p.pointer) for p in Schema.compile(fields).problems(dict(values or {}))]


def _changed(approval: Approval | StoredApproval) -> Changed:
    return Changed("the matter has changed since it was shown; look at it again", code="approval_changed", digest=approval.digest)


def _refusal(answer: DecisionAnswer, stored: Approval | StoredApproval | None, approval: Approval) -> Exception:
    if answer is DecisionAnswer.CONFLICT and stored is not None:
        said = DECIDED.get(stored.state, stored.state)
        return Conflict(
            f"{stored.decided_by} has decided already: {said}",
            code="already_decided",
            decided_by=stored.decided_by,
            decided_at=time_text(stored.decided_at),
            action=said,
            present_status=stored.state,
            actions=[],
        )
    if answer is DecisionAnswer.CHANGED:
        return _changed(stored or approval)
    if answer is DecisionAnswer.EXPIRED:
        return Gone("nobody decided in time", code="approval_expired")
    if answer is DecisionAnswer.GONE:
        return Gone("nobody waits for this decision any more", code="approval_over", present_status=stored.state if stored else None)
    return NotFound("there is no such approval", code="approval_not_found")


def _tried(approval: Approval, caller: Caller, verdict: Verdict, answer: Any) -> Approval:
    if approval.state == "pending":
        return approval
    if approval.state in DECIDED:
        first = (DECIDED[approval.state], approval.decided_by, approval.answer)
        if first == (verdict.action, caller.principal, answer):
            return approval
        raise _refusal(DecisionAnswer.CONFLICT, approval, approval)
    raise _refusal(DecisionAnswer.EXPIRED if approval.state == "expired" else DecisionAnswer.GONE, approval, approval)


def _as_stored(approval: Approval, stored: StoredApproval) -> Approval:
    return replace(
        approval,
        state=stored.state,
        decided_by=stored.decided_by,
        decided_at=stored.decided_at,
        channel=stored.channel,
        comment=stored.comment,
        answer=stored.answer,
    )
