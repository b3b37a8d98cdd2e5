"""Routes for what holds work back on this node: limits in use, and circuits, which an operator may close or hold open.

Reads requests and words answers; what is done is done by the services.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, body, refusals
from agiwo.api.paging import Cursor, Limit, page
from agiwo.api.routing import ChangeBody, DryRun, caller_of, change_of, fit, read_json, router, tried
from agiwo.service.circuits import circuit_view
from agiwo.service.services import Services
from agiwo.service.view import API

ToolName = Annotated[str, Path(min_length=1, max_length=200, description="the tool, or `llm_task`")]
Key = Annotated[str, Query(max_length=500, description="what tells its circuits apart: a host, a connection, a profile")]


class HoldBody(ChangeBody):
    """For how long no call shall be made."""

    seconds: float = Field(gt=0, le=86_400)


def control_routes(services: Services) -> APIRouter:
    """All routes of limits and circuits."""
    routes = router("control")
    at = f"{API}/admin/breakers"

    @routes.get(
        f"{API}/admin/limits",
        responses={200: answer("Limits", "Of the node that answers."), **refusals(403)},
        summary="Limits and what is taken of them",
    )
    async def limits(request: Request) -> Response:
        return JSONAnswer({"node": services.node, "items": services.overseeing.limits(caller_of(request))})

    @routes.get(
        at,
        responses={200: answer("CircuitPage", "Of the node that answers: circuits with failures, by name and key."), **refusals()},
        summary="Circuit breakers",
    )
    async def breakers(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
        caller = caller_of(request)
        place = services.cursors.place(caller.tenant, "breakers", cursor)
        found = services.circuits.listed(caller, None if place is None else (place[0], place[1]), limit + 1)
        return page(
            services.cursors, caller.tenant, "breakers", found, limit, lambda one: [one.circuit.name, one.circuit.key], circuit_view
        )

    @routes.post(
        f"{at}/{{name}}/reset",
        responses={200: answer("Circuit", "Closed; its failures are forgotten.", dry=True), **refusals(403, 404, 409, 413, 415)},
        openapi_extra=body(ChangeBody, {"reason": "the other side is back"}),
        summary="Close a circuit",
    )
    async def reset(request: Request, name: ToolName, key: Key = "", dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        await services.circuits.reset(caller_of(request), name, key, change)
        if dry_run:
            return tried(change, "circuit_reset", f"circuit/{name}/{key}")
        return JSONAnswer({"name": name, "key": key, "state": "closed"})

    @routes.post(
        f"{at}/{{name}}/open",
        responses={200: answer("Circuit", "Open for so long.", dry=True), **refusals(403, 404, 409, 413, 415)},
        openapi_extra=body(HoldBody, {"seconds": 600, "reason": "they are moving house"}, required=True),
        summary="Hold a circuit open",
    )
    async def hold_open(request: Request, name: ToolName, key: Key = "", dry_run: DryRun = False) -> Response:
        asked = fit(HoldBody, await read_json(request, optional=False))
        change = change_of(asked, dry_run)
        await services.circuits.hold_open(caller_of(request), name, key, asked.seconds, change)
        if dry_run:
            return tried(change, "circuit_open", f"circuit/{name}/{key}")
        return JSONAnswer({"name": name, "key": key, "state": "open"})

    return routes
