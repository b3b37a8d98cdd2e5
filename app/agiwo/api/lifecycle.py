"""Routes of a workflow's life: the default version, deprecation, pause and resume, deletion.

Reads requests and words answers; what is done is done by the services.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, body, refusals
from agiwo.api.instances import Name
from agiwo.api.routing import ChangeBody, DryRun, Reason, caller_of, change_of, fit, read_json, router, tried
from agiwo.service.changes import Change
from agiwo.service.services import Services
from agiwo.service.view import API

Version = Annotated[str, Path(min_length=1, max_length=64)]


class DefaultBody(ChangeBody):
    """Which version triggers take that name none."""

    version: str | None = Field(min_length=1, max_length=64, description="null takes the mark away: the highest is taken again")


class DeprecateBody(ChangeBody):
    """Which version triggers are to leave alone."""

    version: str = Field(min_length=1, max_length=64)
    deprecated: bool = Field(default=True, description="false takes it back")


def lifecycle_routes(services: Services) -> APIRouter:
    """All routes of a workflow's life."""
    routes = router("workflows")
    _marks(routes, services)
    _starts(routes, services)
    _deletion(routes, services)
    return routes


def _marks(routes: APIRouter, services: Services) -> None:
    at = f"{API}/workflows/{{workflow_id}}"
    refused = refusals(404, 409, 413, 415)

    @routes.post(
        f"{at}/default", openapi_extra=body(DefaultBody, {"version": "1.2"}, required=True), summary="Choose the default version",
        responses={200: answer("Workflow", "As it is now.", dry=True), **refused},
    )  # fmt: skip
    async def mark_default(request: Request, workflow_id: Name, dry_run: DryRun = False) -> Response:
        asked = fit(DefaultBody, await read_json(request))
        change = change_of(asked, dry_run)
        view = await services.workflows.mark_default(caller_of(request), workflow_id, asked.version, change)
        return tried(change, "default", f"workflow/{workflow_id}", view) if dry_run else JSONAnswer(view)

    @routes.post(
        f"{at}/deprecate", openapi_extra=body(DeprecateBody, {"version": "1.1"}, required=True), summary="Deprecate a version",
        responses={200: answer("Version", "As it is now.", dry=True), **refused},
    )  # fmt: skip
    async def deprecate(request: Request, workflow_id: Name, dry_run: DryRun = False) -> Response:
        asked = fit(DeprecateBody, await read_json(request))
        change = change_of(asked, dry_run)
        view = await services.workflows.deprecate(caller_of(request), workflow_id, asked.version, asked.deprecated, change)
        return tried(change, "deprecate", f"workflow/{workflow_id}/{asked.version}", view) if dry_run else JSONAnswer(view)


def _starts(routes: APIRouter, services: Services) -> None:
    at = f"{API}/workflows/{{workflow_id}}"
    good = {200: answer("Workflow", "As it is now.", dry=True), **refusals(404, 409, 413, 415)}

    @routes.post(
        f"{at}/pause", openapi_extra=body(ChangeBody, {"reason": "the bank is closed"}), responses=good,
        summary="Start nothing new of a workflow",
    )  # fmt: skip
    async def pause_workflow(request: Request, workflow_id: Name, dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        view = await services.workflows.pause(caller_of(request), workflow_id, change)
        return tried(change, "pause", f"workflow/{workflow_id}", view) if dry_run else JSONAnswer(view)

    @routes.post(f"{at}/resume", openapi_extra=body(ChangeBody), responses=good, summary="Let a paused workflow start again")
    async def resume_workflow(request: Request, workflow_id: Name, dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        view = await services.workflows.resume(caller_of(request), workflow_id, change)
        return tried(change, "resume", f"workflow/{workflow_id}", view) if dry_run else JSONAnswer(view)


def _deletion(routes: APIRouter, services: Services) -> None:
    at = f"{API}/workflows/{{workflow_id}}"
    gone = {200: answer("Deleted", "They are gone.", dry=True), **refusals(404, 409)}

    async def deleted(request: Request, workflow: str, version: str | None, change: Change) -> Response:
        versions = await services.workflows.delete(caller_of(request), workflow, version, change)
        object = f"workflow/{workflow}" if version is None else f"workflow/{workflow}/{version}"
        if change.dry:
            return tried(change, "delete", object, versions=list(versions))
        return JSONAnswer({"deleted": object, "versions": list(versions)})

    @routes.delete(at, responses=gone, summary="Delete a workflow with all its versions and drafts")
    async def delete_workflow(request: Request, workflow_id: Name, reason: Reason = None, dry_run: DryRun = False) -> Response:
        return await deleted(request, workflow_id, None, Change(reason, dry_run))

    @routes.delete(f"{at}/versions/{{version}}", responses=gone, summary="Delete a version")
    async def delete_version(
        request: Request, workflow_id: Name, version: Version, reason: Reason = None, dry_run: DryRun = False
    ) -> Response:
        return await deleted(request, workflow_id, version, Change(reason, dry_run))
