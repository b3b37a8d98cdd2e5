"""The HTTP application: guard, routes, and every error in one form.

Reads no settings and plugs nothing in; whoever calls `create_app` gives everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from agiwo.api import documents
from agiwo.api.answers import plain_problem, problem, store_away
from agiwo.api.approvals import approval_routes
from agiwo.api.callbacks import callback_routes
from agiwo.api.control import control_routes
from agiwo.api.drafts import draft_routes
from agiwo.api.guard import Guard, Seen
from agiwo.api.hooks import hook_routes
from agiwo.api.instances import instance_routes
from agiwo.api.keys import key_routes
from agiwo.api.lifecycle import lifecycle_routes
from agiwo.api.operations import Metrics, operator_routes
from agiwo.api.oversight import oversight_routes
from agiwo.api.previews import preview_routes
from agiwo.api.signals import signal_routes
from agiwo.api.streams import STREAMS, Streams
from agiwo.api.usage import usage_routes
from agiwo.api.webhooks import webhook_routes
from agiwo.api.workflows import workflow_routes
from agiwo.complaints import complaint
from agiwo.errors import AgiwoError, InvalidInput, Problem
from agiwo.ports.store import StoreUnavailable
from agiwo.service.callers import ApiKeys, Credentials
from agiwo.service.services import Services
from agiwo.values import shown

BODY_LIMIT = 10_000_000
BODY_WITHIN = 30.0
OPEN_PATHS = (
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/approve/",
    "/v1/callbacks/",
    "/v1/hooks/",
    "/v1/webhooks/approvals/",
    "/console/static/",
)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    services: Services,
    *,
    keys: Credentials | None = None,
    pages: Sequence[APIRouter] = (),
    metrics: Metrics | None = None,
    body_limit: int = BODY_LIMIT,
    body_within: float = BODY_WITHIN,
    streams: int = STREAMS,
    hosts: Collection[str] | None = None,
    lifespan: Lifespan | None = None,
    version: str = "0",
) -> FastAPI:
    """The application over these services.

    `keys` are the API keys (none: everybody is the operator), `pages` routers for people (they are not in the OpenAPI document), `metrics`
    gives the exposition and its content type, `body_limit` counts bytes and `body_within` the seconds that a body may take, `streams` is
    how many each tenant may have open, `hosts` are the names that a service without keys answers to (None: any), `lifespan` starts and
    stops what the services need.
    """
    app = FastAPI(
        title="Agiwo",
        version=version,
        description="Runs workflows whose steps call tools, models and people. Errors are problem+json with a stable `code`.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        separate_input_output_schemas=False,
        redirect_slashes=False,
    )
    app.state.routes = []
    app.state.repeats = services.repeats
    app.state.streams = Streams(streams)
    for routes in (
        instance_routes(services),
        workflow_routes(services),
        draft_routes(services),
        lifecycle_routes(services),
        preview_routes(services),
        approval_routes(services),
        callback_routes(services),
        signal_routes(services),
        operator_routes(services, metrics),
        usage_routes(services),
        oversight_routes(services),
        control_routes(services),
        key_routes(services),
        hook_routes(services),  # before the webhooks, whose ids stand where a channel's name does
        webhook_routes(services),
    ):
        app.include_router(routes)
        app.state.routes += routes.routes
    for page in pages:
        app.include_router(page, include_in_schema=False)
        app.state.routes += page.routes
    _answer_errors(app)
    app.add_middleware(Guard, keys=keys or ApiKeys(), open_paths=OPEN_PATHS, body_limit=body_limit, body_within=body_within, hosts=hosts)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _answer_errors(app: FastAPI) -> None:
    app.add_exception_handler(AgiwoError, _refused)
    app.add_exception_handler(StoreUnavailable, _store_away)
    app.add_exception_handler(RequestValidationError, _not_fitting)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    app.add_exception_handler(Exception, _failed)


async def _refused(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, AgiwoError)
    return problem(exc)


async def _store_away(request: Request, exc: Exception) -> Response:
    return store_away()


async def _hung_up(request: Request, exc: Exception) -> Response:
    """Nobody reads this; a client that goes away before its body is whole is no fault of ours and no matter for the log."""
    return plain_problem(400, "malformed", "the body is not whole")


async def _failed(request: Request, exc: Exception) -> Response:
    """A fault of ours: the log has it with its stack, the caller what it is found by."""
    found: Seen | None = request.scope.get("agiwo")
    trace_id = None if found is None else found.trace_id
    exc.add_note(f"trace_id {trace_id}")
    said = f"something went wrong here; nothing is known to have changed. The log has it under the trace id {trace_id}"
    return plain_problem(500, "internal", said)


async def _not_fitting(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    problems = []
    for error in exc.errors():
        place, *names = error["loc"]
        at = f"?{names[0]}" if place == "query" and names else "/".join(str(part) for part in error["loc"])
        given = error.get("input")
        problems.append(Problem("wrong_value", complaint(error), at, found=shown(given) if isinstance(given, str) else None))
    return problem(InvalidInput("the parameters do not fit", code="invalid_parameters", problems=problems))


_CODES = {404: "not_found", 405: "method_not_allowed", 400: "malformed"}


async def _framework(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    headers = dict(exc.headers or {})
    if exc.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return plain_problem(exc.status_code, _CODES.get(exc.status_code, "refused"), str(exc.detail), headers)


def _methods(request: Request) -> set[str]:
    """The methods that are taken at this path; the framework names those of the first route alone."""
    matching = [route for route in request.app.state.routes if route.matches(request.scope)[0] is not Match.NONE]
    # A path that is written out hides what would match it as somebody's name.
    exact = [route for route in matching if route.path == request.scope["path"]]
    return {method for route in exact or matching for method in route.methods or ()}


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, openapi_version="3.1.0", description=app.description, routes=app.routes)
        documents.add_conventions(made)
        components = made.setdefault("components", {})
        components.setdefault("schemas", {}).update(documents.SCHEMAS)
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "an API key"}}
        made["security"] = [{"key": []}, {}]
        app.openapi_schema = made
    return app.openapi_schema
