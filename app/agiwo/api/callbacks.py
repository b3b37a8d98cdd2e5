"""Routes at which the other side of a call answers later; the address alone is the credential.

What an answer leads to the machine decides.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, body, refusals
from agiwo.api.routing import Body, fit, read_json, router
from agiwo.errors import Failure
from agiwo.service.services import Services
from agiwo.service.view import API

Token = Annotated[str, Path(description="as it stands in the address that the call was given", max_length=4096)]


class FailureBody(Body):
    """What went wrong on the other side."""

    type: str = Field(default="ToolError", pattern="^[A-Za-z][A-Za-z0-9_.]{0,99}$", description="any but ours is a ToolError")
    message: str = Field(default="the other side says that it failed", min_length=1, max_length=2000)
    details: Any = None


def callback_routes(services: Services) -> APIRouter:
    """All routes of callbacks."""
    routes = router("callbacks")
    at = f"{API}/callbacks/{{token}}"
    responses = {200: answer("CallbackTaken", "Taken, now or before."), **refusals(404, 409, 410, 413, 415)}

    @routes.post(
        at,
        responses=responses,
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": {}}}, "description": "any JSON: it is the result"}},
        summary="Answer a call with its result",
    )
    async def succeed(request: Request, token: Token) -> Response:
        return _taken(await services.callbacks.succeed(token, await read_json(request)))

    @routes.post(
        f"{at}/fail",
        responses=responses,
        openapi_extra=body(FailureBody, {"type": "ToolError", "message": "no paper"}),
        summary="Answer a call with its failure",
    )
    async def fail(request: Request, token: Token) -> Response:
        said = fit(FailureBody, await read_json(request))
        return _taken(await services.callbacks.fail(token, Failure(said.type, said.message, details=said.details)))

    @routes.post(f"{at}/heartbeat", responses=responses, summary="Say that the work goes on")
    async def sign(request: Request, token: Token) -> Response:
        await services.callbacks.sign(token)
        return _taken(True)

    return routes


def _taken(first: bool) -> Response:
    return JSONAnswer({"taken": True, "repeated": not first})
