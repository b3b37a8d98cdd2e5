"""Routes of approvals: what waits for people, and deciding it.

The page for people is the console's; both call the same verb.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, body, refusals
from agiwo.api.paging import Cursor, Limit, before, by_id, page
from agiwo.api.routing import ChangeBody, DryRun, caller_of, change_of, fit, read_json, router, tried
from agiwo.service.approvals import Verdict
from agiwo.service.redaction import approval_for
from agiwo.service.services import Services
from agiwo.service.view import API, approval_view

ApprovalId = Annotated[UUID, Path(description="id of an approval")]
State = Literal["pending", "approved", "rejected", "expired", "cancelled", "void"]


class DecisionBody(ChangeBody):
    """What goes with a decision."""

    comment: str | None = Field(default=None, max_length=10_000)
    values: dict[str, Any] | None = Field(default=None, description="the form, if the approval has `fields`")
    digest: str | None = Field(default=None, max_length=64, description="of the approval as you saw it; 412 if it has changed")


class ApproveBody(DecisionBody):
    """What goes with an approval."""

    output: Any = Field(default=None, description="the changed text, if the approval is `editable`")


class DecideBody(ApproveBody):
    """A decision by name."""

    action: Literal["approve", "reject"]


def approval_routes(services: Services) -> APIRouter:
    """All routes of approvals."""
    routes = router("approvals")
    at = f"{API}/approvals/{{approval_id}}"

    @routes.get(f"{API}/approvals", responses={200: answer("ApprovalPage", "Newest first."), **refusals()}, summary="List approvals")
    async def list_approvals(
        request: Request,
        status: State | None = None,
        assignee: Annotated[str | None, Query(min_length=1, max_length=320, description="a principal among the approvers")] = None,
        instance_id: UUID | None = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response:
        caller = caller_of(request)
        tenant = caller.tenant
        below = before(services.cursors, tenant, "approvals", cursor)
        found = await services.approvals.listed(
            tenant, state=status, assignee=assignee, instance=instance_id, before=below, limit=limit + 1
        )
        return page(services.cursors, tenant, "approvals", found, limit, by_id, lambda one: approval_for(caller, approval_view(one)))

    @routes.get(
        at, responses={200: answer("Approval", "What is asked, or who decided what."), **refusals(404)}, summary="Look at an approval"
    )
    async def get_approval(request: Request, approval_id: ApprovalId) -> Response:
        caller = caller_of(request)
        return JSONAnswer(approval_for(caller, approval_view(await services.approvals.find(caller.tenant, approval_id))))

    async def decide(request: Request, id: UUID, action: str, said: DecisionBody, dry_run: bool) -> Response:
        given = isinstance(said, ApproveBody) and "output" in said.model_fields_set
        edited = (said.output,) if isinstance(said, ApproveBody) and given else None
        verdict = Verdict(action, said.comment, said.values, edited, said.digest)
        change = change_of(said, dry_run)
        view = approval_view(await services.approvals.decide(caller_of(request), id, verdict, "api", change))
        return tried(change, action, f"approval/{id}", view) if dry_run else JSONAnswer(view)

    def documented(model: type[BaseModel], example: dict[str, Any], required: bool = False) -> dict[str, Any]:
        return {
            "responses": {
                200: answer("Approval", "Decided; the same decision again gives the first result.", dry=True),
                **refusals(403, 404, 409, 410, 412, 413, 415),
            },
            "openapi_extra": body(model, example, required=required),
        }

    @routes.post(f"{at}/approve", summary="Approve", **documented(ApproveBody, {"comment": "fine"}))
    async def approve(request: Request, approval_id: ApprovalId, dry_run: DryRun = False) -> Response:
        return await decide(request, approval_id, "approve", fit(ApproveBody, await read_json(request)), dry_run)

    @routes.post(f"{at}/reject", summary="Reject", **documented(DecisionBody, {"comment": "the total is wrong"}))
    async def reject(request: Request, approval_id: ApprovalId, dry_run: DryRun = False) -> Response:
        return await decide(request, approval_id, "reject", fit(DecisionBody, await read_json(request)), dry_run)

    @routes.post(f"{at}/decide", summary="Decide", **documented(DecideBody, {"action": "approve"}, required=True))
    async def decide_by_name(request: Request, approval_id: ApprovalId, dry_run: DryRun = False) -> Response:
        said = fit(DecideBody, await read_json(request))
        return await decide(request, approval_id, said.action, said, dry_run)

    return routes
