"""Routes of API keys: made once and shown once, listed, revoked, rotated.

Reads requests and words answers; what is done is done by the services.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.documents import DRY, answer, body, refusals
from agiwo.api.paging import Cursor, Limit, before, by_id, page
from agiwo.api.routing import ChangeBody, DryRun, caller_of, change_of, fit, read_json, router, tried
from agiwo.definition import durations
from agiwo.errors import InvalidInput, Problem
from agiwo.ports.keys import StoredKey
from agiwo.service.keys import OVERLAP, key_view
from agiwo.service.services import Services
from agiwo.service.view import API

KeyId = Annotated[UUID, Path(description="id of an API key")]
Duration = Annotated[str | None, Field(max_length=40)]
LASTS = "how long it works, like 90d; without it until it is revoked"


class NewKeyBody(ChangeBody):
    """A key to make."""

    name: str = Field(min_length=1, max_length=100, description="its principal is `key:NAME`")
    roles: list[Annotated[str, Field(max_length=100)]] = Field(min_length=1, max_length=50, description="what it may do")
    expires_in: Duration = Field(default=None, description=LASTS)


class RotateBody(ChangeBody):
    """How a key is replaced by a new one."""

    overlap: Duration = Field(default=None, description="how long the old key still works: 1d unless given, 0s for not at all")
    expires_in: Duration = Field(default=None, description="how long the new key works; without it as long as the old one was to work")


def key_routes(services: Services) -> APIRouter:
    """All routes of API keys."""
    routes = router("keys")
    at = f"{API}/admin/keys"
    made = {201: answer("NewKey", "Made. `key` is shown this once."), **DRY, **refusals(404, 409, 413, 415)}

    def shown(key: StoredKey, text: str | None) -> Response:
        out = {**key_view(key, services.clock.now()), "key": text}
        return JSONAnswer(out, 201, {"location": f"{at}/{key.id}", "cache-control": "no-store"}, kept={**out, "key": None})

    @routes.post(
        at, status_code=201, responses=made, openapi_extra=body(NewKeyBody, {"name": "ci", "roles": ["author"]}, required=True),
        summary="Make an API key",
    )  # fmt: skip
    async def create_key(request: Request, dry_run: DryRun = False) -> Response:
        asked = fit(NewKeyBody, await read_json(request))
        change = change_of(asked, dry_run)
        key, text = await services.keys.create(caller_of(request), asked.name, asked.roles, _span(asked.expires_in, "expires_in"), change)
        return tried(change, "key.create", f"key/{key.name}") if dry_run else shown(key, text)

    @routes.get(at, responses={200: answer("KeyPage", "Newest first."), **refusals()}, summary="List API keys")
    async def list_keys(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
        caller = caller_of(request)
        found = await services.keys.listed(caller, before(services.cursors, caller.tenant, "keys", cursor), limit + 1)
        now = services.clock.now()
        return page(services.cursors, caller.tenant, "keys", found, limit, by_id, lambda key: key_view(key, now))

    @routes.get(f"{at}/{{key_id}}", responses={200: answer("Key", "All but its text."), **refusals(404)}, summary="Look at an API key")
    async def get_key(request: Request, key_id: KeyId) -> Response:
        return JSONAnswer(key_view(await services.keys.find(caller_of(request), key_id), services.clock.now()))

    @routes.post(
        f"{at}/{{key_id}}/revoke", openapi_extra=body(ChangeBody, {"reason": "it leaked"}), summary="Revoke an API key",
        responses={200: answer("Key", "No node takes it any more after a few seconds.", dry=True), **refusals(404, 409, 413, 415)},
    )  # fmt: skip
    async def revoke_key(request: Request, key_id: KeyId, dry_run: DryRun = False) -> Response:
        change = change_of(fit(ChangeBody, await read_json(request)), dry_run)
        view = key_view(await services.keys.revoke(caller_of(request), key_id, change), services.clock.now())
        return tried(change, "key.revoke", f"key/{key_id}", view) if dry_run else JSONAnswer(view)

    @routes.post(
        f"{at}/{{key_id}}/rotate", status_code=201, responses=made, openapi_extra=body(RotateBody, {"overlap": "1h"}),
        summary="Replace an API key by a new one",
    )  # fmt: skip
    async def rotate_key(request: Request, key_id: KeyId, dry_run: DryRun = False) -> Response:
        asked = fit(RotateBody, await read_json(request))
        change, caller = change_of(asked, dry_run), caller_of(request)
        overlap = _span(asked.overlap, "overlap")
        lasts = _span(asked.expires_in, "expires_in")
        key, text = await services.keys.rotate(caller, key_id, OVERLAP if overlap is None else overlap, lasts, change)
        if dry_run:
            return tried(change, "key.rotate", f"key/{key_id}", key_view(await services.keys.find(caller, key_id), services.clock.now()))
        return shown(key, text)

    return routes


def _span(text: str | None, name: str) -> float | None:
    try:
        return None if text is None else durations.seconds(text)
    except ValueError as exc:
        problem = Problem("wrong_value", str(exc), f"/{name}", found=text)
        raise InvalidInput("the body does not fit", problems=(problem,)) from None
