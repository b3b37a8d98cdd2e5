"""Routes that show what a definition is and would do, without doing it: dry runs, differences, and the schema for editors.

Reads requests and words answers; what is shown is made by the services and by the definition's own functions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import PlainTextResponse, Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, body, refusals
from agiwo.api.instances import Name
from agiwo.api.routing import Body, caller_of, fit, read_json, router
from agiwo.definition import json_schema
from agiwo.service.preview import PreviewCall
from agiwo.service.services import Services
from agiwo.service.view import API


class PreviewBody(Body):
    """What a dry run is given."""

    input: Any = Field(default_factory=dict, description="checked by the workflow's input_schema")
    context: dict[str, Any] = Field(default_factory=dict, max_length=1000)
    version: str | None = Field(default=None, min_length=1, max_length=64, description="the one that a trigger takes, if none is named")
    results: dict[str, Any] = Field(default_factory=dict, max_length=2000, description="outputs by step id or path; else they are made up")
    decisions: dict[str, Any] = Field(
        default_factory=dict, max_length=2000, description="by step: approve, reject, or {action, values, output, comment}"
    )

    def call(self) -> PreviewCall:
        return PreviewCall(self.input, self.context, self.results, self.decisions)


class DocumentBody(Body):
    """A definition, and what its dry run is given."""

    definition: dict[str, Any] | str = Field(description="YAML text, or the definition as JSON")
    input: Any = Field(default_factory=dict, description="checked by the definition's input_schema")
    context: dict[str, Any] = Field(default_factory=dict, max_length=1000)
    results: dict[str, Any] = Field(default_factory=dict, max_length=2000)
    decisions: dict[str, Any] = Field(default_factory=dict, max_length=2000)


def preview_routes(services: Services) -> APIRouter:
    """All of these routes."""
    routes = router("workflows")
    _previews(routes, services)
    _forms(routes, services)
    return routes


def _previews(routes: APIRouter, services: Services) -> None:
    good: dict[int | str, dict[str, Any]] = {200: answer("Preview", "The steps in their order; nothing was called or stored.")}
    example = {"input": {"week": "2026-W48"}, "results": {"fetch": {"rows": []}}, "decisions": {"generate_report": "approve"}}

    @routes.post(
        f"{API}/workflows/{{workflow_id}}/preview", openapi_extra=body(PreviewBody, example), responses={**good, **refusals(404, 413, 415)},
        summary="Dry run of a published definition",
    )  # fmt: skip
    async def preview_workflow(request: Request, workflow_id: Name) -> Response:
        caller = caller_of(request)
        asked = fit(PreviewBody, await read_json(request))
        return JSONAnswer(await services.previewing.published(caller, workflow_id, asked.version, asked.call()))

    @routes.post(
        f"{API}/workflows/preview", openapi_extra=body(DocumentBody, {"definition": _HELLO}, required=True),
        responses={**good, **refusals(413, 415)}, summary="Dry run of a definition that need not be published",
    )  # fmt: skip
    async def preview_document(request: Request) -> Response:
        caller = caller_of(request)
        asked = fit(DocumentBody, await read_json(request, optional=False))
        call = PreviewCall(asked.input, asked.context, asked.results, asked.decisions)
        return JSONAnswer(await services.previewing.document(caller, asked.definition, call))


_HELLO = "id: hello\nversion: '1.0'\nsteps:\n  - {id: say, type: tool_call, tool: debug.echo, parameters: {value: hello}}\n"


def _forms(routes: APIRouter, services: Services) -> None:
    @routes.get(
        f"{API}/schema", responses={200: answer("AnySchema", "A JSON Schema (2020-12)."), **refusals()}, summary="Form of a definition"
    )
    async def schema(request: Request) -> Response:
        caller_of(request)
        return JSONAnswer(json_schema())

    drawn = answer("Diff", "By step; `format=text` for people.")
    drawn["content"]["text/plain"] = {"schema": {"type": "string"}}

    @routes.get(f"{API}/workflows/{{workflow_id}}/diff", responses={200: drawn, **refusals(404)}, summary="What two versions differ in")
    async def diff(
        request: Request,
        workflow_id: Name,
        old: Annotated[str, Query(alias="from", min_length=1, max_length=64)],
        new: Annotated[str, Query(alias="to", min_length=1, max_length=64)],
        format: Literal["json", "text"] = "json",
    ) -> Response:
        found = await services.comparing.versions(caller_of(request), workflow_id, old, new)
        return PlainTextResponse(found.to_text()) if format == "text" else JSONAnswer(found.to_json())
