"""Routes for operators: rejected triggers, health, metrics.

Health says whether the process answers, readiness whether it can work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import PlainTextResponse, Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, refusals
from agiwo.api.paging import Cursor, Limit, before, by_id, page
from agiwo.api.routing import caller_of, router
from agiwo.ports.queries import RejectedRow
from agiwo.service.redaction import problems_for
from agiwo.service.services import Services
from agiwo.service.view import API, rejected_view

Metrics = Callable[[], tuple[bytes, str]]


def operator_routes(services: Services, metrics: Metrics | None) -> APIRouter:
    """All routes for operators; `metrics` gives the exposition and its content type."""
    routes = router("operations")

    @routes.get(
        f"{API}/admin/triggers", responses={200: answer("RejectedPage", "Newest first."), **refusals()}, summary="Rejected triggers"
    )
    async def rejected_triggers(
        request: Request,
        workflow: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response:
        caller = caller_of(request)
        tenant = caller.tenant
        below = before(services.cursors, tenant, "triggers", cursor)
        rows = await services.queries.rejected(tenant, workflow, below, limit + 1)

        def view(row: RejectedRow) -> dict[str, Any]:
            return rejected_view(row) | {"errors": problems_for(caller, row.problems)}

        return page(services.cursors, tenant, "triggers", rows, limit, by_id, view)

    @routes.get("/healthz", responses={200: answer("Health", "The process answers.")}, summary="Alive")
    async def healthz() -> Response:
        return JSONAnswer({"status": "ok"})

    @routes.get(
        "/readyz",
        responses={200: answer("Health", "It can work."), 503: answer("Health", "A part is away; `parts` says which.")},
        summary="Ready",
    )
    async def readyz() -> Response:
        good, parts = await services.ready()
        return JSONAnswer({"status": "ok" if good else "unavailable", "parts": dict(parts)}, 200 if good else 503)

    if metrics is not None:
        shown = {"description": "Prometheus exposition.", "content": {"text/plain": {"schema": {"type": "string"}}}}

        @routes.get("/metrics", responses={200: shown, **refusals()}, summary="Metrics", response_class=PlainTextResponse)
        async def exposition() -> Response:
            content, media_type = metrics()
            return Response(content, media_type=media_type)

    return routes
