"""Routes of drafts: stored with their mistakes, listed, read back, thrown away.

Reads requests and words answers; what is done is done by the services.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, refusals
from agiwo.api.instances import Name
from agiwo.api.paging import Cursor, Limit, page
from agiwo.api.routing import DryRun, Reason, caller_of, router, tried
from agiwo.service.changes import Change
from agiwo.service.drafts import draft_view, whole_draft_view
from agiwo.service.services import Services
from agiwo.service.view import API

Version = Annotated[str, Path(min_length=1, max_length=64, description="the version that it is to become")]


async def save_draft(services: Services, request: Request, text: bytes, change: Change) -> Response:
    """The answer to `POST /workflows?draft=true`."""
    examined, draft, new = await services.drafts.save(caller_of(request), text, change)
    shown = draft_view(draft)
    what = "draft" if new else "draft_replaced"
    here = shown["links"]["self"]
    if change.dry:
        return tried(change, "draft.save", f"workflow/{draft.workflow}/drafts/{draft.version}", published=what, **examined.to_json())
    out = examined.to_json() | {"published": what, "links": {**shown["links"], "publish": f"{API}/workflows"}}
    return JSONAnswer(out, 201 if new else 200, {"location": here})


def draft_routes(services: Services) -> APIRouter:
    """All routes of drafts."""
    routes = router("workflows")
    at = f"{API}/workflows/{{workflow_id}}/drafts"

    @routes.get(at, responses={200: answer("DraftPage", "By version as text."), **refusals(404)}, summary="List drafts")
    async def list_drafts(request: Request, workflow_id: Name, limit: Limit = 50, cursor: Cursor = None) -> Response:
        caller = caller_of(request)
        of = f"drafts/{workflow_id}"
        found = await services.drafts.listed(caller, workflow_id, services.cursors.place(caller.tenant, of, cursor), limit + 1)
        return page(services.cursors, caller.tenant, of, found, limit, lambda draft: draft.version, draft_view)

    read = answer("DraftDetail", "With its text and what was wrong with it; with `format=yaml` the bytes as they were sent.")
    read["content"]["application/yaml"] = {"schema": {}}

    @routes.get(f"{at}/{{version}}", responses={200: read, **refusals(404)}, summary="Read a draft")
    async def get_draft(
        request: Request,
        workflow_id: Name,
        version: Version,
        format: Annotated[Literal["json", "yaml"], Query(description="`yaml` gives the bytes back as they were sent")] = "json",
    ) -> Response:
        draft = await services.drafts.get(caller_of(request), workflow_id, version)
        return Response(draft.source.encode(), media_type="application/yaml") if format == "yaml" else JSONAnswer(whole_draft_view(draft))

    @routes.delete(
        f"{at}/{{version}}", summary="Throw a draft away", responses={200: answer("Deleted", "It is gone.", dry=True), **refusals(404)}
    )
    async def delete_draft(
        request: Request, workflow_id: Name, version: Version, reason: Reason = None, dry_run: DryRun = False
    ) -> Response:
        change = Change(reason, dry_run)
        await services.drafts.delete(caller_of(request), workflow_id, version, change)
        object = f"workflow/{workflow_id}/drafts/{version}"
        return tried(change, "draft.delete", object) if dry_run else JSONAnswer({"deleted": object, "versions": [version]})

    return routes
