"""Routes of the ledger: what an instance used call by call, and what a tenant used by day.

Reads parameters and words answers; what is counted is told by the service.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, refusals
from agiwo.api.instances import InstanceId
from agiwo.api.paging import Cursor, Limit
from agiwo.api.routing import caller_of, router
from agiwo.ports.usage import UsageGroup, UsagePlace
from agiwo.service.services import Services
from agiwo.service.view import API

Day = Annotated[date | None, Query(description="a day in UTC, as 2026-11-30")]


def usage_routes(services: Services) -> APIRouter:
    """All routes of the ledger."""
    routes = router("usage")

    @routes.get(
        f"{API}/instances/{{instance_id}}/usage",
        responses={200: answer("InstanceUsage", "As the calls were made, with the totals of all."), **refusals(404)},
        summary="Calls of models that an instance made",
    )
    async def instance_usage(request: Request, instance_id: InstanceId, limit: Limit = 50, cursor: Cursor = None) -> Response:
        caller, what = caller_of(request), f"usage/{instance_id}"
        place = services.cursors.place(caller.tenant, what, cursor)
        after = None if place is None else UsagePlace(*place)
        page = await services.usage.of_instance(caller, instance_id, after, limit)
        next_cursor = None if page.next is None else services.cursors.at(caller.tenant, what, list(page.next))
        return JSONAnswer({"items": page.items, "totals": page.totals, "next_cursor": next_cursor})

    @routes.get(
        f"{API}/admin/usage",
        responses={200: answer("UsageReport", "By day, workflow and profile, the oldest day first."), **refusals()},
        summary="What models were used for, by day",
    )
    async def usage_by_day(
        request: Request,
        since: Day = None,
        until: Day = None,
        workflow: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
        profile: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response:
        caller = caller_of(request)
        place = services.cursors.place(caller.tenant, "usage", cursor)
        after = None if place is None else UsageGroup(*place)
        found = await services.usage.by_day(caller, since, until, workflow=workflow, profile=profile, after=after, limit=limit)
        next_cursor = None if found.next is None else services.cursors.at(caller.tenant, "usage", list(found.next))
        return JSONAnswer({"since": found.since, "until": found.until, "items": found.items, "next_cursor": next_cursor})

    return routes
