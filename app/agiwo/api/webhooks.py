"""Routes of webhooks: made and their secret shown once, changed, rotated, tried, and what was delivered to them.

Reads requests and words answers; what is done is done by the services.
"""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import DRY, answer, body, refusals
from agiwo.api.paging import Cursor, Limit, before, by_id, page
from agiwo.api.routing import ChangeBody, DryRun, Reason, caller_of, change_of, fit, read_json, router, tried
from agiwo.definition import durations
from agiwo.errors import InvalidInput, Problem
from agiwo.ports.webhooks import Webhook
from agiwo.service.changes import Change
from agiwo.service.services import Services
from agiwo.service.view import API
from agiwo.service.webhooks import OVERLAP, Wish, delivery_view, webhook_view

WebhookId = Annotated[UUID, Path(description="id of a webhook")]
DeliveryId = Annotated[UUID, Path(description="id of a delivery")]
State = Literal["pending", "delivered", "dead"]
Events = Annotated[list[Annotated[str, Field(max_length=80)]], Field(min_length=1, max_length=50)]
Headers = Annotated[dict[str, Annotated[str, Field(max_length=4000)]], Field(max_length=20)]
Url = Annotated[str, Field(min_length=1, max_length=4000)]
Include = Annotated[list[Literal["output"]], Field(max_length=1)]


class NewWebhookBody(ChangeBody):
    """A webhook to make."""

    url: Url
    events: Events = Field(description="names of events, or `instance.*`, `step.*`, `*`")
    workflow: str | None = Field(default=None, max_length=128, description="only of this workflow")
    description: str | None = Field(default=None, max_length=500)
    headers: Headers | None = Field(default=None, description="sent along; their values are shown nowhere")
    include: Include = Field(default=[], description="`output`: what steps and instances gave is sent too")


class WebhookBody(ChangeBody):
    """What is to be another way; a field that is not there stays as it is."""

    url: Url | None = None
    events: Events | None = None
    workflow: str | None = Field(default=None, max_length=128, description="null: of all workflows")
    description: str | None = Field(default=None, max_length=500)
    headers: Headers | None = Field(default=None, description="all of them anew")
    include: Include | None = None
    active: bool | None = Field(default=None, description="false: nothing is sent; true also after a 410")


class RotateSecretBody(ChangeBody):
    """How a secret is replaced by a new one."""

    overlap: str | None = Field(default=None, max_length=40, description="how long the old one signs along: 1d unless given")


def webhook_routes(services: Services) -> APIRouter:
    """All routes of outbound webhooks."""
    routes = router("webhooks")
    _making(routes, services)
    _changing(routes, services)
    _delivering(routes, services)
    return routes


def _making(routes: APIRouter, services: Services) -> None:
    at = f"{API}/webhooks"

    @routes.post(
        at, status_code=201, responses={201: answer("NewWebhook", "Made. `secret` is shown this once."), **DRY, **refusals(409, 413, 415)},
        openapi_extra=body(NewWebhookBody, {"url": "https://hooks.example.com/agiwo", "events": ["instance.*"]}, required=True),
        summary="Make a webhook",
    )  # fmt: skip
    async def create_webhook(request: Request, dry_run: DryRun = False) -> Response:
        asked = fit(NewWebhookBody, await read_json(request))
        change = change_of(asked, dry_run)
        wish = Wish(asked.url, tuple(asked.events), asked.workflow, asked.description, asked.headers, "output" in asked.include)
        webhook, secret = await services.webhooks.create(caller_of(request), wish, change)
        return tried(change, "webhook.create", "webhook") if dry_run else _shown(services, webhook, secret, 201)

    @routes.get(at, responses={200: answer("WebhookPage", "Newest first."), **refusals()}, summary="List webhooks")
    async def list_webhooks(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
        caller = caller_of(request)
        found = await services.webhooks.listed(caller, before(services.cursors, caller.tenant, "webhooks", cursor), limit + 1)
        now = services.clock.now()
        return page(services.cursors, caller.tenant, "webhooks", found, limit, by_id, lambda one: webhook_view(one, now))

    @routes.post(
        f"{API}/admin/callback-secret", responses={200: answer("CallbackSecret", "It is shown, and that is in the audit log.", dry=True),
        **refusals(413, 415)}, openapi_extra=body(ChangeBody, {"reason": "for the receiver"}), summary="Show the secret of `callback_url`",
    )  # fmt: skip
    async def callback_secret(request: Request, dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        secret = await services.webhooks.callback_secret(caller_of(request), change)
        if dry_run:
            return tried(change, "callback_secret.show", "callback_secret")
        return JSONAnswer({"secret": secret}, headers={"cache-control": "no-store"}, kept={"secret": None})


def _shown(services: Services, webhook: Webhook, secret: str | None, status: int) -> Response:
    out = {**webhook_view(webhook, services.clock.now()), "secret": secret}
    headers = {"location": f"{API}/webhooks/{webhook.id}", "cache-control": "no-store"}
    return JSONAnswer(out, status, headers, kept={**out, "secret": None})


def _changing(routes: APIRouter, services: Services) -> None:
    at = f"{API}/webhooks/{{webhook_id}}"

    def view(webhook: Webhook) -> dict[str, object]:
        return webhook_view(webhook, services.clock.now())

    @routes.get(at, responses={200: answer("Webhook", "All but its secrets."), **refusals(404)}, summary="Look at a webhook")
    async def get_webhook(request: Request, webhook_id: WebhookId) -> Response:
        return JSONAnswer(view(await services.webhooks.find(caller_of(request), webhook_id)))

    @routes.patch(
        at, responses={200: answer("Webhook", "As it is now.", dry=True), **refusals(404, 409, 413, 415)},
        openapi_extra=body(WebhookBody, {"active": False, "reason": "moving house"}), summary="Change a webhook",
    )  # fmt: skip
    async def change_webhook(request: Request, webhook_id: WebhookId, dry_run: DryRun = False) -> Response:
        asked = fit(WebhookBody, await read_json(request))
        change = change_of(asked, dry_run)
        wish = Wish(
            asked.url,
            None if asked.events is None else tuple(asked.events),
            asked.workflow,
            asked.description,
            asked.headers,
            None if asked.include is None else "output" in asked.include,
            asked.active,
            any_workflow="workflow" in asked.model_fields_set and asked.workflow is None,
        )
        webhook = await services.webhooks.change(caller_of(request), webhook_id, wish, change)
        return tried(change, "webhook.change", f"webhook/{webhook_id}", view(webhook)) if dry_run else JSONAnswer(view(webhook))

    @routes.delete(
        at, responses={200: answer("Webhook", "As it was.", dry=True), **refusals(404)}, summary="Delete a webhook"
    )  # fmt: skip
    async def delete_webhook(request: Request, webhook_id: WebhookId, dry_run: DryRun = False, reason: Reason = None) -> Response:
        change = Change(reason, dry_run)
        webhook = await services.webhooks.remove(caller_of(request), webhook_id, change)
        return tried(change, "webhook.delete", f"webhook/{webhook_id}", view(webhook)) if dry_run else JSONAnswer(view(webhook))

    @routes.post(
        f"{at}/rotate", responses={200: answer("NewWebhook", "`secret` is shown this once.", dry=True), **refusals(404, 409, 413, 415)},
        openapi_extra=body(RotateSecretBody, {"overlap": "1h"}), summary="Give a webhook a new secret",
    )  # fmt: skip
    async def rotate_secret(request: Request, webhook_id: WebhookId, dry_run: DryRun = False) -> Response:
        asked = fit(RotateSecretBody, await read_json(request))
        change = change_of(asked, dry_run)
        webhook, secret = await services.webhooks.rotate(caller_of(request), webhook_id, _overlap(asked.overlap), change)
        if dry_run:
            return tried(change, "webhook.rotate", f"webhook/{webhook_id}", view(webhook))
        return _shown(services, webhook, secret, 200)

    @routes.post(
        f"{at}/test", status_code=202, responses={202: answer("Posted", "A `ping` is on its way."), **DRY, **refusals(404, 409, 413, 415)},
        openapi_extra=body(ChangeBody, {"reason": "a trial"}), summary="Send a ping",
    )  # fmt: skip
    async def test_webhook(request: Request, webhook_id: WebhookId, dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        webhook, delivery = await services.webhooks.ping(caller_of(request), webhook_id, change)
        if dry_run:
            return tried(change, "webhook.test", f"webhook/{webhook_id}", view(webhook))
        return JSONAnswer({"delivery_id": str(delivery), "links": {"deliveries": f"{API}/webhooks/{webhook_id}/deliveries"}}, 202)


def _delivering(routes: APIRouter, services: Services) -> None:
    @routes.get(
        f"{API}/admin/outbox", responses={200: answer("DeliveryPage", "Newest first."), **refusals()}, summary="List all deliveries"
    )
    async def list_outbox(
        request: Request,
        state: State | None = None,
        target: Annotated[str | None, Query(min_length=1, max_length=400, description="a webhook, a channel, `callback:HOST`")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response:
        caller = caller_of(request)
        below = before(services.cursors, caller.tenant, "outbox", cursor)
        found = await services.webhooks.outbox(caller, target, state, below, limit + 1)
        return page(services.cursors, caller.tenant, "outbox", found, limit, by_id, delivery_view)

    @routes.get(
        f"{API}/webhooks/{{webhook_id}}/deliveries", responses={200: answer("DeliveryPage", "Newest first."), **refusals(404)},
        summary="List what was or is to be delivered",
    )  # fmt: skip
    async def list_deliveries(
        request: Request, webhook_id: WebhookId, state: State | None = None, limit: Limit = 50, cursor: Cursor = None
    ) -> Response:
        caller = caller_of(request)
        listed = f"deliveries/{webhook_id}"
        below = before(services.cursors, caller.tenant, listed, cursor)
        found = await services.webhooks.deliveries(caller, webhook_id, state, below, limit + 1)
        return page(services.cursors, caller.tenant, listed, found, limit, by_id, delivery_view)

    @routes.post(
        f"{API}/webhooks/deliveries/{{delivery_id}}/redeliver", openapi_extra=body(ChangeBody, {"reason": "the endpoint is back"}),
        responses={200: answer("Delivery", "It is tried at once.", dry=True), **refusals(404, 409, 413, 415)}, summary="Deliver again",
    )  # fmt: skip
    async def redeliver(request: Request, delivery_id: DeliveryId, dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        view = delivery_view(await services.webhooks.redeliver(caller_of(request), delivery_id, change))
        return tried(change, "delivery.redeliver", f"delivery/{delivery_id}", view) if dry_run else JSONAnswer(view)


def _overlap(text: str | None) -> float:
    try:
        return OVERLAP if text is None else durations.seconds(text)
    except ValueError as exc:
        raise InvalidInput("the body does not fit", problems=(Problem("wrong_value", str(exc), "/overlap", found=text),)) from None
