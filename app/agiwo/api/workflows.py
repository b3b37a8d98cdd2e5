"""Routes of workflows: publishing, judging, reading back, the graph; and the tools that definitions may call.

Reads requests and words answers; what is done is done by the services.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, refusals
from agiwo.api.drafts import save_draft
from agiwo.api.instances import GRAPH, GraphFormat, Name, drawn
from agiwo.api.paging import Cursor, Limit, page
from agiwo.api.routing import DryRun, Reason, caller_of, check_charset, router, tried
from agiwo.definition import graph_json
from agiwo.errors import InvalidInput, NotFound
from agiwo.service.changes import Change
from agiwo.service.services import Services
from agiwo.service.view import API, version_view
from agiwo.service.workflows import workflow_view
from agiwo.values import shown

_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain")
_JSON = ("application/json",)
_EXAMPLE = {
    "workflow": {
        "id": "hello",
        "version": "1.0",
        "steps": [{"id": "say", "type": "tool_call", "tool": "debug.echo", "parameters": {"value": "{{ input.name }}"}}],
    }
}
_SOURCE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "object"}, "example": _EXAMPLE},
        },
    }
}


async def _source(request: Request) -> bytes:
    kind, _, rest = request.headers.get("content-type", "").partition(";")
    if kind.strip().lower() not in (*_YAML, *_JSON):
        raise InvalidInput(
            f"the content type {shown(kind)} is not taken; send application/yaml or application/json", code="unsupported_media_type"
        )
    check_charset(rest)
    return await request.body()


def workflow_routes(services: Services) -> APIRouter:
    """All routes of workflows and tools."""
    routes = router("workflows")
    _publishing(routes, services)
    _reading(routes, services)
    _tools(routes, services)
    return routes


def _publishing(routes: APIRouter, services: Services) -> None:
    @routes.post(
        f"{API}/workflows", status_code=201, openapi_extra=_SOURCE, summary="Publish a version",
        responses={
            201: answer("Published", "Published; with `draft` stored for the first time."),
            200: answer("Published", "It stands there already, an earlier draft was replaced, or it was tried only.", dry=True),
            **refusals(409, 413, 415),
        },
    )  # fmt: skip
    async def publish(
        request: Request,
        draft: Annotated[bool, Query(description="store it with its mistakes, to be replaced at will; it is never started")] = False,
        reason: Reason = None,
        dry_run: DryRun = False,
    ) -> Response:
        change = Change(reason, dry_run)
        if draft:
            return await save_draft(services, request, await _source(request), change)
        done = await services.publishing.publish(caller_of(request), await _source(request), change)
        here = f"{API}/workflows/{done.workflow}"
        if dry_run:
            would = {"published": "created" if done.created else "unchanged", **done.examined.to_json()}
            return tried(change, "publish", f"workflow/{done.workflow}/{done.version}", **would)
        out = done.examined.to_json() | {
            "published": "created" if done.created else "unchanged",
            "links": {
                "self": f"{here}/versions/{done.version}",
                "trigger": f"{here}/trigger",
                "graph": f"{here}/graph?version={done.version}",
            },
        }
        return JSONAnswer(out, 201 if done.created else 200, {"location": f"{here}/versions/{done.version}"})

    @routes.post(
        f"{API}/workflows/validate", openapi_extra=_SOURCE, summary="Judge a definition without publishing it",
        responses={200: answer("Report", "It could be published; `problems` has warnings."), **refusals(413, 415)},
    )  # fmt: skip
    async def validate(request: Request) -> Response:
        tenant = caller_of(request).tenant
        examined = await services.publishing.validate(await _source(request), tenant)
        errors = examined.checked.errors
        if errors:
            out = examined.to_json()
            raise InvalidInput(
                f"the definition has {len(errors)} error{'s' if len(errors) != 1 else ''}",
                code="definition_refused",
                problems=examined.checked.problems,
                reads_as=out["reads_as"],
                order=out["order"],
            )
        return JSONAnswer(examined.to_json())


def _reading(routes: APIRouter, services: Services) -> None:
    at = f"{API}/workflows/{{workflow_id}}"

    @routes.get(f"{API}/workflows", responses={200: answer("WorkflowPage", "By name."), **refusals()}, summary="List workflows")
    async def list_workflows(
        request: Request,
        q: Annotated[str | None, Query(min_length=1, max_length=128, description="part of the name, small letters or large")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response:
        caller = caller_of(request)
        rows = await services.workflows.listed(caller, q, services.cursors.place(caller.tenant, "workflows", cursor), limit + 1)
        return page(services.cursors, caller.tenant, "workflows", rows, limit, lambda row: row.workflow, workflow_view)

    @routes.get(at, responses={200: answer("Workflow", "Its versions."), **refusals(404)}, summary="Look at a workflow")
    async def get_workflow(request: Request, workflow_id: Name) -> Response:
        return JSONAnswer(await services.workflows.view(caller_of(request), workflow_id))

    @routes.get(f"{at}/versions", responses={200: answer("VersionPage", "The highest first."), **refusals(404)}, summary="List versions")
    async def list_versions(request: Request, workflow_id: Name, limit: Limit = 50, cursor: Cursor = None) -> Response:
        tenant, listed = caller_of(request).tenant, f"versions/{workflow_id}"
        lines = await services.catalog.versions(tenant, workflow_id, services.cursors.place(tenant, listed, cursor), limit + 1)
        return page(services.cursors, tenant, listed, lines, limit, lambda line: line.version, version_view)

    read = answer("Version", "The version with its definition; with `format=yaml` the bytes as they were sent.")
    read["content"]["application/yaml"] = {"schema": {}}

    @routes.get(f"{at}/versions/{{version}}", responses={200: read, **refusals(404)}, summary="Read a version")
    async def get_version(
        request: Request,
        workflow_id: Name,
        version: Annotated[str, Path(min_length=1, max_length=64)],
        format: Annotated[Literal["json", "yaml"], Query(description="`yaml` gives the bytes back as they were sent")] = "json",
    ) -> Response:
        stored = await services.catalog.stored(caller_of(request).tenant, workflow_id, version)
        if format == "yaml":
            return Response(stored.source.encode(), media_type="application/yaml")
        line = await services.catalog.line(stored.tenant, workflow_id, version)
        return JSONAnswer(version_view(line) | {"definition": dict(stored.document)})

    @routes.get(f"{at}/graph", responses={200: GRAPH, **refusals(404)}, summary="Graph of a workflow")
    async def graph(
        request: Request,
        workflow_id: Name,
        format: GraphFormat = "json",
        version: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    ) -> Response:
        tenant = caller_of(request).tenant
        workflow = await services.catalog.standing(tenant, workflow_id, version)
        return JSONAnswer(graph_json(workflow)) if format == "json" else drawn(workflow, format)


def _tools(routes: APIRouter, services: Services) -> None:
    @routes.get(f"{API}/tools", responses={200: answer("Tools", "By name."), **refusals()}, summary="List tools", tags=["tools"])
    async def list_tools(request: Request) -> Response:
        caller_of(request)
        return JSONAnswer({"items": [contract.to_json() for _, contract in sorted(services.tools().items())]})

    @routes.get(
        f"{API}/tools/{{name}}", responses={200: answer("Tool", "Its contract."), **refusals(404)}, summary="Look at a tool", tags=["tools"]
    )
    async def get_tool(request: Request, name: Annotated[str, Path(min_length=1, max_length=200)]) -> Response:
        caller_of(request)
        contract = services.tools().get(name)
        if contract is None:
            raise NotFound(f"there is no tool {name!r}", code="tool_unknown")
        return JSONAnswer(contract.to_json())
