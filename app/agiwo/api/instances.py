"""Routes of instances: starting one, looking at it from every side, following it, ending it.

Reads requests and words answers; what is done is done by the services.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import PlainTextResponse, Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import DRY, KEY_FORM, answer, body, parameter, ref, refusals
from agiwo.api.filters import Wanted
from agiwo.api.paging import Cursor, Limit, before, next_before
from agiwo.api.routing import (
    REPLAYED,
    ChangeBody,
    DryRun,
    caller_of,
    change_of,
    fit,
    idempotency_key,
    keeps_its_own_key,
    read_json,
    router,
    seconds,
    seen,
    tried,
)
from agiwo.api.streams import Streams
from agiwo.definition import Workflow, graph_json, graph_mermaid, graph_svg
from agiwo.errors import Problem, ServiceError
from agiwo.machine.state import InstanceStatus
from agiwo.service.callers import Caller
from agiwo.service.changes import Change
from agiwo.service.instances import shown_records
from agiwo.service.services import Services
from agiwo.service.trigger import Started, TriggerCall
from agiwo.service.view import API, links, row_status, row_view
from agiwo.values import encode

LONGEST_WAIT = 60.0
WAIT_FORM = {"type": "string", "pattern": r"^\d{1,6}(\.\d{1,3})?(ms|s|m)?$", "example": "5s"}

Name = Annotated[str, Path(min_length=1, max_length=128, description="id of a workflow")]
InstanceId = Annotated[UUID, Path(description="id of an instance")]
StepPath = Annotated[str, Path(min_length=1, max_length=300, description="path of a step run: `fetch`, or `fetch~2` for its second run")]
StepName = Annotated[str, Field(min_length=1, max_length=300, description="an id (every run of the step), or a path (that run alone)")]


GraphFormat = Annotated[Literal["json", "mermaid", "svg"], Query()]
_ONE = f"{API}/instances/{{instance_id}}"
#: What stands under `/v1/admin` as well.
READ_BY_ADMINS = (f"{API}/instances", _ONE, f"{_ONE}/steps", f"{_ONE}/steps/{{path}}", f"{_ONE}/trace", f"{_ONE}/history")
GRAPH = {
    "description": "What leads where, as JSON, as a Mermaid flowchart, or as a picture.",
    "content": {
        "application/json": {"schema": ref("Graph")},
        "text/plain": {"schema": {"type": "string"}},
        "image/svg+xml": {"schema": {}},
    },
}


def drawn(workflow: Workflow, format: Literal["mermaid", "svg"]) -> Response:
    """The graph of a workflow as a text or as a picture, which may fetch nothing and run nothing."""
    if format == "mermaid":
        return PlainTextResponse(graph_mermaid(workflow))
    policy = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(graph_svg(workflow), media_type="image/svg+xml", headers=policy)


class TriggerBody(ChangeBody):
    """What an instance is started with."""

    input: Any = Field(default_factory=dict, description="checked by the workflow's input_schema")
    context: dict[str, Any] = Field(default_factory=dict, max_length=1000)
    version: str | None = Field(default=None, min_length=1, max_length=64, description="the newest without a label, if none is named")
    labels: dict[str, Annotated[str, Field(max_length=256)]] = Field(default_factory=dict, max_length=64)
    correlation_key: str | None = Field(default=None, min_length=1, max_length=256)
    interrupt_before: list[StepName] = Field(default_factory=list, max_length=100, description="steps before which the instance stops")
    interrupt_after: list[StepName] = Field(default_factory=list, max_length=100, description="steps after which the instance stops")
    callback_url: str | None = Field(default=None, min_length=1, max_length=4000, description="gets the instance when it has ended, signed")


class ReconcileBody(ChangeBody):
    """What became of the call of an UNKNOWN step."""

    done: bool = Field(description="whether the call has had its effect")
    result: Any = Field(default=None, description="what the call gave, if it was done")


def instance_routes(services: Services) -> APIRouter:
    """All routes of instances."""
    routes = router("instances")
    _starting(routes, services)
    _lists(routes, services)
    _one(routes, services)
    _under_admin(routes)
    _steering(routes, services)
    return routes


def _starting(routes: APIRouter, services: Services) -> None:
    documented = body(TriggerBody, {"input": {"week": "2026-W48"}, "labels": {"team": "sales"}})
    documented["parameters"] = [
        parameter("workflow_id", "path", {"type": "string", "minLength": 1, "maxLength": 128}, "id of a workflow", required=True),
        parameter("Idempotency-Key", "header", KEY_FORM, "the same key with the same body gives the same instance, for 24 hours"),
        parameter("wait", "query", WAIT_FORM, f"wait until it ended or waits for a person, at most {LONGEST_WAIT:g}s: `30s`"),
        parameter("traceparent", "header", {"type": "string"}, "W3C trace context; the instance takes its trace id"),
    ]
    good: dict[int | str, dict[str, Any]] = {
        202: answer("Started", "Accepted and durable; the instance goes on by itself."),
        200: answer("Instance", "With `wait`: it has ended, or waits for a person. With `dry_run`: what would be started.", dry=True),
    }

    @routes.post(
        f"{API}/workflows/{{workflow_id}}/trigger", status_code=202, responses={**good, **refusals(404, 409, 413, 415, 429)},
        openapi_extra=documented, summary="Start an instance",
    )  # fmt: skip
    @keeps_its_own_key
    async def trigger(request: Request, dry_run: DryRun = False) -> Response:
        caller = caller_of(request)
        workflow = request.path_params["workflow_id"]
        trace_id = seen(request).trace_id
        try:
            wait = seconds(request.query_params.get("wait"), "wait", LONGEST_WAIT)
            asked = fit(TriggerBody, await read_json(request))
            call = TriggerCall(
                workflow, trace_id, asked.input, asked.context, asked.version, asked.labels, asked.correlation_key,
                idempotency_key(request), asked.interrupt_before, asked.interrupt_after, asked.callback_url,
            )  # fmt: skip
        except ServiceError as exc:
            if not dry_run:
                await services.triggering.reject(caller, workflow, exc, trace_id=trace_id)
            raise
        change = change_of(asked, dry_run)
        if dry_run:
            version = await services.triggering.tried(caller, call)
            return tried(change, "trigger", f"workflow/{workflow}/{version}")
        if wait:
            started, view = await services.running.until_settled(caller, call, wait, change)
            over = view["ended_at"] is not None or view["interrupted_at"] is not None
            return JSONAnswer(view, 200 if over else 202, _replayed(started))
        started = await services.triggering.trigger(caller, call, change=change)
        status, trace_id = str(InstanceStatus.RUNNING), started.trace_id
        if started.repeated:
            row = await services.instances.row(caller, started.id)
            status, trace_id = row_status(row), row.trace_id
        out: dict[str, Any] = {
            "instance_id": str(started.id),
            "workflow_id": started.workflow,
            "version": started.version,
            "status": status,
            "trace_id": trace_id,
            "links": links(started.id),
        }
        if started.deprecated:
            out["warnings"] = [_DEPRECATED.to_json()]
        return JSONAnswer(out, 202, {"location": f"{API}/instances/{started.id}", **_replayed(started)})


_DEPRECATED = Problem("version_deprecated", "this version is deprecated; it runs since it was named", "/version", severity="warning")


def _replayed(started: Started) -> dict[str, str]:
    return {REPLAYED: "true"} if started.repeated else {}


def _lists(routes: APIRouter, services: Services) -> None:
    @routes.get(f"{API}/instances", responses={200: answer("InstancePage", "Newest first."), **refusals()}, summary="List instances")
    async def list_instances(request: Request, wanted: Wanted, limit: Limit = 50, cursor: Cursor = None) -> Response:
        caller = caller_of(request)
        below = before(services.cursors, caller.tenant, "instances", cursor)
        page = await services.instances.listed(caller, wanted, below, limit)
        next_cursor = next_before(services.cursors, caller.tenant, "instances", page.next)
        return JSONAnswer({"items": [row_view(row) for row in page.rows], "next_cursor": next_cursor})


def _one(routes: APIRouter, services: Services) -> None:
    at = f"{API}/instances/{{instance_id}}"

    @routes.get(at, responses={200: answer("Instance", "All that it holds now."), **refusals(404)}, summary="Look at an instance")
    async def get_instance(request: Request, instance_id: InstanceId) -> Response:
        return JSONAnswer(await services.instances.view(caller_of(request), instance_id))

    @routes.get(
        f"{at}/steps", responses={200: answer("Steps", "Every iteration of every step."), **refusals(404)}, summary="List its steps"
    )
    async def list_steps(request: Request, instance_id: InstanceId) -> Response:
        return JSONAnswer({"items": await services.instances.steps(caller_of(request), instance_id)})

    @routes.get(
        f"{at}/steps/{{path}}", responses={200: answer("StepDetail", "Attempts, prompt and raw answer."), **refusals(404)},
        summary="Look at a step",
    )  # fmt: skip
    async def get_step(request: Request, instance_id: InstanceId, path: StepPath) -> Response:
        return JSONAnswer(await services.instances.step(caller_of(request), instance_id, path))

    traced = {200: answer("Trace", "Per step what went in and out, for how long."), **refusals(404)}

    @routes.get(f"{at}/trace", responses=traced, summary="Trace of an instance")
    async def trace(request: Request, instance_id: InstanceId) -> Response:
        return JSONAnswer(await services.instances.trace(caller_of(request), instance_id))

    @routes.get(
        f"{at}/history", responses={200: answer("History", "The records in order."), **refusals(404)}, summary="History of an instance"
    )
    async def history(
        request: Request,
        instance_id: InstanceId,
        after: Annotated[int, Query(ge=0, le=2**31 - 1, description="number of the last record that you have")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> Response:
        page = await services.instances.history(caller_of(request), instance_id, after, limit)
        return JSONAnswer({"items": page.items, "next_after": page.next_after})

    @routes.get(f"{at}/graph", responses={200: GRAPH, **refusals(404)}, summary="Graph of an instance with the state of each step")
    async def graph(request: Request, instance_id: InstanceId, format: GraphFormat = "json") -> Response:
        workflow, instance = await services.instances.workflow_of(caller_of(request), instance_id)
        if format != "json":
            return drawn(workflow, format)
        shown = dict(graph_json(workflow))
        latest = {step.id: instance.latest_run(step.index) for step in workflow.body}
        shown["states"] = {id: "PENDING" if run is None else str(run.status) for id, run in latest.items()}
        return JSONAnswer(shown)

    _events(routes, services, at)


def _under_admin(routes: APIRouter) -> None:
    """Operators find the reads on instances beside the rest of what they look at."""
    for route in [route for route in routes.routes if isinstance(route, APIRoute) and route.methods == {"GET"}]:
        if route.path in READ_BY_ADMINS:
            routes.add_api_route(
                route.path.replace(API, f"{API}/admin", 1),
                route.endpoint,
                methods=["GET"],
                responses=route.responses,
                summary=route.summary,
                operation_id=f"admin_{route.name}",
            )


def _events(routes: APIRouter, services: Services, at: str) -> None:
    stream = {
        "description": "One event a record: `id` is its number, `event` its type. Ends after the end of the instance.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }

    @routes.get(
        f"{at}/events",
        responses={200: stream, **refusals(404, 429)},
        summary="Follow an instance (server-sent events)",
        response_class=EventSourceResponse,
    )
    async def events(
        request: Request,
        instance_id: InstanceId,
        snapshot: Annotated[bool, Query(description="begin with the whole instance as one event, then what follows")] = False,
        last_event_id: Annotated[str | None, Header(pattern=r"^\d{1,9}$", description="the last number that you have")] = None,
    ) -> Response:
        caller = caller_of(request)
        await services.instances.row(caller, instance_id)
        after = 0 if last_event_id is None else int(last_event_id)
        streams: Streams = request.app.state.streams
        return streams.answer(caller.tenant, _stream(services, caller, instance_id, after, snapshot))


async def _stream(services: Services, caller: Caller, id: UUID, after: int, snapshot: bool) -> AsyncIterator[ServerSentEvent]:
    if snapshot:
        view = await services.instances.view(caller, id)
        after = max(after, view["seq"])
        yield ServerSentEvent(encode(view), event="snapshot", id=str(view["seq"]))
        if view["ended_at"] is not None:
            return
    async for batch in services.following.records(caller, id, after):
        for record in shown_records(caller, batch):
            yield ServerSentEvent(encode(record), event=record["type"], id=str(record["seq"]))


def _steering(routes: APIRouter, services: Services) -> None:
    at = f"{API}/instances/{{instance_id}}"
    accepted = {202: answer("InstanceRow", "Kept and passed on; the instance as it is now."), **DRY, **refusals(404, 409, 413, 415)}

    async def passed_on(request: Request, id: UUID, change: Change, action: str, object: str) -> Response:
        view = row_view(await services.instances.row(caller_of(request), id))
        return tried(change, action, object, view) if change.dry else JSONAnswer(view, 202)

    @routes.post(
        f"{at}/cancel", status_code=202, responses=accepted, openapi_extra=body(ChangeBody, {"reason": "not needed any more"}),
        summary="Ask an instance to end",
    )  # fmt: skip
    async def cancel(request: Request, instance_id: InstanceId, dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        await services.steering.cancel(caller_of(request), instance_id, change)
        return await passed_on(request, instance_id, change, "cancel", f"instance/{instance_id}")

    @routes.post(
        f"{at}/steps/{{path}}/reconcile", status_code=202, responses=accepted,
        openapi_extra=body(ReconcileBody, {"done": True, "result": {"message_id": "…"}}, required=True),
        summary="Say what became of the call of an UNKNOWN step",
    )  # fmt: skip
    async def reconcile(request: Request, instance_id: InstanceId, path: StepPath, dry_run: DryRun = False) -> Response:
        asked = fit(ReconcileBody, await read_json(request))
        change = change_of(asked, dry_run)
        await services.steering.decide_outcome(caller_of(request), instance_id, path, change, done=asked.done, result=asked.result)
        return await passed_on(request, instance_id, change, "reconcile", f"instance/{instance_id}/steps/{path}")
