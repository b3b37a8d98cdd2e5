"""Routes of signals, to one instance or to all of a correlation key, and of going on after an interrupt.

Reads requests and words answers; what is done is done by the services.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import DRY, answer, body, refusals
from agiwo.api.instances import InstanceId
from agiwo.api.routing import ChangeBody, DryRun, caller_of, change_of, fit, read_json, router, tried
from agiwo.service.services import Services
from agiwo.service.signalling import LONGEST_EVENT, LONGEST_ID, Sent
from agiwo.service.view import API, links, row_view


class SignalBody(ChangeBody):
    """What happened."""

    event: str = Field(min_length=1, max_length=LONGEST_EVENT, description="the name of the event, as steps wait for it")
    payload: Any = Field(default=None, description="what it carries; the output of the step that takes it")
    id: str | None = Field(
        default=None, min_length=1, max_length=LONGEST_ID, description="the same id counts once; one is made if none is given"
    )


class BroadcastBody(SignalBody):
    """What happened, and whom it concerns."""

    correlation_key: str = Field(min_length=1, max_length=256, description="all live instances that were started with this key get it")


def sent_view(sent: Sent) -> dict[str, Any]:
    """What became of a signal, by instance."""
    receivers = [{"instance_id": str(one.instance), "result": one.result, "links": links(one.instance)} for one in sent.receipts]
    return {"signal_id": sent.id, "event": sent.event, "receivers": receivers}


def signal_routes(services: Services) -> APIRouter:
    """All routes of signals and interrupts."""
    routes = router("signals")
    at = f"{API}/instances/{{instance_id}}"
    example = {"event": "paid", "payload": {"amount": 5}, "id": "payment-4711"}

    @routes.post(
        f"{at}/signals", status_code=202, summary="Send a signal to an instance",
        responses={202: answer("SignalSent", "Kept until a step wants it."), **DRY, **refusals(404, 409, 413, 415, 429)},
        openapi_extra=body(SignalBody, example, required=True),
    )  # fmt: skip
    async def send_signal(request: Request, instance_id: InstanceId, dry_run: DryRun = False) -> Response:
        asked = fit(SignalBody, await read_json(request))
        change = change_of(asked, dry_run)
        sent = await services.signalling.send(
            caller_of(request), instance=instance_id, event=asked.event, payload=asked.payload, id=asked.id, change=change
        )
        return tried(change, "signal", f"instance/{instance_id}", sent_view(sent)) if dry_run else JSONAnswer(sent_view(sent), 202)

    @routes.post(
        f"{API}/signals", status_code=202, summary="Send a signal to all live instances of a correlation key",
        responses={202: answer("SignalSent", "What became of it at each of them."), **DRY, **refusals(404, 413, 415)},
        openapi_extra=body(BroadcastBody, {**example, "correlation_key": "order-4711"}, required=True),
    )  # fmt: skip
    async def broadcast_signal(request: Request, dry_run: DryRun = False) -> Response:
        asked = fit(BroadcastBody, await read_json(request))
        change = change_of(asked, dry_run)
        sent = await services.signalling.send(
            caller_of(request), correlation_key=asked.correlation_key, event=asked.event, payload=asked.payload, id=asked.id, change=change
        )
        object = f"correlation_key/{asked.correlation_key}"
        return tried(change, "signal", object, sent_view(sent)) if dry_run else JSONAnswer(sent_view(sent), 202)

    @routes.post(
        f"{at}/resume", status_code=202, summary="Let an interrupted instance go on",
        responses={202: answer("InstanceRow", "Kept and passed on; the instance as it is now."), **DRY, **refusals(404, 409, 413, 415)},
        openapi_extra=body(ChangeBody, {"reason": "looked at it"}),
    )  # fmt: skip
    async def resume(request: Request, instance_id: InstanceId, dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        await services.steering.resume(caller_of(request), instance_id, change)
        view = row_view(await services.instances.row(caller_of(request), instance_id))
        return tried(change, "resume", f"instance/{instance_id}", view) if dry_run else JSONAnswer(view, 202)

    return routes
