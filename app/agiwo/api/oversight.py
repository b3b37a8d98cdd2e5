"""Routes for whoever looks after the service: traces and their sums, nodes, queues, the audit trail, invariants.

They only read.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, refusals
from agiwo.api.filters import Wanted
from agiwo.api.paging import Cursor, Limit, before, next_before
from agiwo.api.routing import caller_of, router
from agiwo.ports.oversight import AuditFilter
from agiwo.service.services import Services
from agiwo.service.view import API, trace_row


def oversight_routes(services: Services) -> APIRouter:
    """All routes of oversight."""
    routes = router("oversight")

    @routes.get(
        f"{API}/admin/traces",
        responses={200: answer("TracePage", "Newest first; a page may be short and still have a next one."), **refusals()},
        summary="Traces of instances",
    )
    async def traces(request: Request, wanted: Wanted, limit: Limit = 50, cursor: Cursor = None) -> Response:
        caller = caller_of(request)
        page = await services.instances.listed(caller, wanted, before(services.cursors, caller.tenant, "traces", cursor), limit)
        now = services.clock.now()
        next_cursor = next_before(services.cursors, caller.tenant, "traces", page.next)
        return JSONAnswer({"items": [trace_row(row, now) for row in page.rows], "next_cursor": next_cursor})

    @routes.get(
        f"{API}/admin/traces/summary",
        responses={200: answer("TraceSummary", "Counts and durations over the newest instances that fit."), **refusals()},
        summary="Sums over traces",
    )
    async def summary(request: Request, wanted: Wanted) -> Response:
        return JSONAnswer(await services.overseeing.summary(caller_of(request), wanted))

    @routes.get(
        f"{API}/admin/nodes", responses={200: answer("Nodes", "The living first."), **refusals(403)}, summary="Nodes and what they hold"
    )
    async def nodes(request: Request) -> Response:
        return JSONAnswer({"items": await services.overseeing.nodes(caller_of(request))})

    @routes.get(
        f"{API}/admin/queues",
        responses={200: answer("Queues", "Of the caller's tenant; numbers are capped."), **refusals(403)},
        summary="What waits for a node, a time, a person",
    )
    async def queues(request: Request) -> Response:
        return JSONAnswer(await services.overseeing.queues(caller_of(request)))

    @routes.get(
        f"{API}/admin/audit",
        responses={200: answer("AuditPage", "Newest first; a page may be short and still have a next one."), **refusals(403)},
        summary="Who changed what, and why",
    )
    async def audit(
        request: Request,
        actor: Annotated[str | None, Query(min_length=1, max_length=320, description="a principal")] = None,
        action: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
        object: Annotated[str | None, Query(min_length=1, max_length=400, description="as `instance/…` or `workflow/…`")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response:
        caller = caller_of(request)
        below = before(services.cursors, caller.tenant, "audit", cursor)
        wanted = AuditFilter(actor, action, object)
        items, next = await services.overseeing.audit(caller, wanted, below, limit)
        next_cursor = next_before(services.cursors, caller.tenant, "audit", next)
        return JSONAnswer({"items": items, "next_cursor": next_cursor})

    @routes.get(
        f"{API}/admin/invariants",
        responses={200: answer("Invariants", "Each promise, and what breaks it."), **refusals(403)},
        summary="Whether what must always hold does hold",
    )
    async def invariants(request: Request) -> Response:
        return JSONAnswer(await services.overseeing.invariants(caller_of(request)))

    return routes
