"""Routes of signed messages: a decision over a channel, an event that starts a workflow. The signature is the credential.

The raw bytes are checked before they are read as anything.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import answer, body, parameter, refusals
from agiwo.api.routing import Body, fit, keeps_its_own_key, made_once, read_value, router, seen
from agiwo.errors import InvalidInput, Problem, TooLarge
from agiwo.service.approvals import Verdict
from agiwo.service.hooks import LARGEST, Said
from agiwo.service.services import Services
from agiwo.service.signalling import Sent
from agiwo.service.view import API, approval_view, links

Name = Annotated[str, Path(min_length=1, max_length=100)]
_SIGNED = [
    parameter("webhook-id", "header", {"type": "string", "minLength": 1, "maxLength": 255}, "once counts", required=True),
    parameter("webhook-timestamp", "header", {"type": "string"}, "seconds since 1970, at most five minutes off", required=True),
    parameter("webhook-signature", "header", {"type": "string"}, "`v1,…` as Standard Webhooks has it", required=True),
]


class ChannelDecisionBody(Body):
    """A decision as a channel brings it."""

    action: Literal["approve", "reject"]
    approval_id: str | None = Field(default=None, max_length=36, description="this or `token`")
    token: str | None = Field(default=None, min_length=1, max_length=4096, description="of the link that the person was given")
    by: str | None = Field(default=None, max_length=320, description="who decides: a principal that the channel speaks for")
    comment: str | None = Field(default=None, max_length=10_000)
    values: dict[str, Any] | None = Field(default=None, description="the form, if the approval has `fields`")
    output: Any = Field(default=None, description="the changed text, if the approval is `editable`")
    digest: str | None = Field(default=None, max_length=64, description="of the approval as it was shown; 412 if it has changed")


def hook_routes(services: Services) -> APIRouter:
    """All routes of signed messages."""
    routes = router("hooks")

    decision = body(ChannelDecisionBody, {"approval_id": "…", "action": "approve", "by": "user:ann@example.com"}, required=True)

    @routes.post(
        f"{API}/webhooks/approvals/{{channel}}", summary="Decide over a channel",
        responses={200: answer("Approval", "Decided; the same decision again gives the first result."),
                   **refusals(401, 403, 404, 409, 410, 412, 413)},
        openapi_extra={**decision, "parameters": _SIGNED},
    )  # fmt: skip
    @keeps_its_own_key
    async def decide(request: Request, channel: Name) -> Response:
        raw = await _bounded(request)
        key = services.hooks.channel_message(channel, request.headers, raw)

        async def decided() -> Response:
            said = fit(ChannelDecisionBody, await read_value(raw))
            edited = (said.output,) if "output" in said.model_fields_set else None
            verdict = Verdict(said.action, said.comment, said.values, edited, said.digest)
            approval = _one_of(said)
            return JSONAnswer(approval_view(await services.hooks.decide(channel, Said(verdict, approval, said.token, said.by))))

        return await made_once(request, key, decided)

    @routes.post(
        f"{API}/hooks/{{name}}", status_code=202, summary="Take an event of another system",
        responses={202: answer("HookTaken", "What it started or whom it was sent to, now or before."), **refusals(401, 404, 409, 413, 429)},
        openapi_extra={
            "requestBody": {"content": {"application/json": {"schema": {}}}, "required": True, "description": "any JSON: the payload"},
            "parameters": _SIGNED,
        },
    )  # fmt: skip
    @keeps_its_own_key
    async def take(request: Request, name: Name) -> Response:
        raw = await _bounded(request)
        key = services.hooks.hook_message(name, request.headers, raw)

        async def started() -> Response:
            done = await services.hooks.take(name, key.key, await read_value(raw), seen(request).trace_id)
            if isinstance(done, Sent):
                told = [{"instance_id": str(one.instance), "result": one.result} for one in done.receipts]
                return JSONAnswer({"signal_id": done.id, "event": done.event, "instances": told}, 202)
            out = {"instance_id": str(done.id), "workflow_id": done.workflow, "version": done.version, "links": links(done.id)}
            return JSONAnswer(out, 202)

        return await made_once(request, key, started)

    return routes


def _one_of(said: ChannelDecisionBody) -> UUID | None:
    if (said.approval_id is None) == (said.token is None):
        problem = Problem("missing", "exactly one of `approval_id` and `token` is needed", "/approval_id")
        raise InvalidInput("the body does not fit", problems=(problem,))
    try:
        return None if said.approval_id is None else UUID(said.approval_id)
    except ValueError:
        problem = Problem("wrong_value", "this is no id", "/approval_id", found=said.approval_id)
        raise InvalidInput("the body does not fit", problems=(problem,)) from None


async def _bounded(request: Request) -> bytes:
    raw = await request.body()
    if len(raw) > LARGEST:
        raise TooLarge(f"a message has at most {LARGEST} bytes", code="too_large")
    return raw
