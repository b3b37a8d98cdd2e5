"""Webhooks of a tenant and what was delivered to them: made, listed, changed, rotated, tried, sent again; for admins.

A secret leaves once, when it is made. What is sent when is the engine's matter; whether an address may be reached is asked whenever
something is delivered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from uuid import UUID

from agiwo.clock import Clock, rfc3339
from agiwo.engine.telling import EVENTS, PING, WEBHOOK
from agiwo.errors import Conflict, InvalidInput, NotFound, Problem, StepError
from agiwo.ids import SHARDS, uuid7
from agiwo.outbound.guard import Guard
from agiwo.outbound.sealing import Sealer
from agiwo.outbound.service import HEADER, HEADER_VALUE, OWN_HEADERS
from agiwo.outbound.signatures import new_secret
from agiwo.ports.deliveries import Deliveries, Delivery
from agiwo.ports.records import Records
from agiwo.ports.store import OutboxRow
from agiwo.ports.webhooks import SealedSecret, Webhook, WebhookStore
from agiwo.service.callers import ADMIN, Caller
from agiwo.service.changes import Change
from agiwo.service.view import API, time_text
from agiwo.values import encode, pointer, shown

#: Seconds for which a rotated secret still signs along unless told otherwise.
OVERLAP = 24 * 3600.0
MOST_WEBHOOKS = 50
_MOST_SECRETS = 5
_NEVER_SENT = OWN_HEADERS | {"content-type", "webhook-id", "webhook-timestamp", "webhook-signature"}
_FAMILIES = ("*", "instance.*", "step.*")
_WORKFLOW = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
_GUARD = Guard()


@dataclass(frozen=True, slots=True)
class Wish:
    """What a webhook is to be; None leaves it as it is, or at its default."""

    url: str | None = None
    events: tuple[str, ...] | None = None
    workflow: str | None = None
    description: str | None = None
    headers: Mapping[str, str] | None = None
    include_output: bool | None = None
    active: bool | None = None
    any_workflow: bool = False  # the workflow is to be taken out


class Webhooks:
    """The verbs on webhooks. `changed` tells the engine of this process that a webhook changed, `posted` that something is to be sent."""

    def __init__(
        self,
        store: WebhookStore,
        deliveries: Deliveries,
        records: Records,
        sealer: Sealer,
        clock: Clock,
        random: Random,
        *,
        changed: Callable[[], None],
        posted: Callable[[], None],
        callback_secret: Callable[[str], str],
    ) -> None:
        self._store = store
        self._deliveries = deliveries
        self._records = records
        self._sealer = sealer
        self._clock = clock
        self._random = random
        self._changed = changed
        self._posted = posted
        self._callback_secret = callback_secret

    async def create(self, caller: Caller, wish: Wish, change: Change) -> tuple[Webhook, str | None]:
        """A new webhook and its secret; no secret if the change is dry.

        Raises Denied for a caller who is no admin, InvalidInput for what cannot be one, Conflict (`too_many_webhooks`).
        """
        caller.need(ADMIN)
        _check(replace(wish, url=wish.url or "", events=wish.events or ()))
        if len(await self._store.listed(caller.tenant, None, MOST_WEBHOOKS)) >= MOST_WEBHOOKS:
            raise Conflict(f"a tenant has at most {MOST_WEBHOOKS} webhooks", code="too_many_webhooks", present_status="full", actions=[])
        now = self._clock.now()
        id = uuid7(now, self._random.getrandbits(66), self._random.randrange(SHARDS))
        text = new_secret()
        blank = Webhook(id, caller.tenant, "", (), (self._sealed(caller.tenant, id, text, now),), now, now, caller.principal)
        webhook = self._with(blank, wish)
        if change.dry:
            return webhook, None
        webhook = await self._store.add(webhook)
        await self._note(caller, "webhook.create", webhook, change)
        return webhook, text

    async def find(self, caller: Caller, id: UUID) -> Webhook:
        """Raises NotFound, Denied for a caller who is no admin."""
        caller.need(ADMIN)
        webhook = await self._store.get(caller.tenant, id)
        if webhook is None:
            raise _not_found()
        return webhook

    async def listed(self, caller: Caller, before: UUID | None, limit: int) -> list[Webhook]:
        """Newest first. Raises Denied for a caller who is no admin."""
        caller.need(ADMIN)
        return await self._store.listed(caller.tenant, before, limit)

    async def change(self, caller: Caller, id: UUID, wish: Wish, change: Change) -> Webhook:
        """Make it what is wished. Raises what `find` raises, InvalidInput, Conflict if somebody else changes it at the same time."""
        webhook = await self.find(caller, id)
        _check(wish)
        wanted = replace(self._with(webhook, wish), updated_at=self._clock.now())
        return webhook if change.dry else await self._changed_to(caller, wanted, "webhook.change", change)

    async def remove(self, caller: Caller, id: UUID, change: Change) -> Webhook:
        """Take it away; what is still to be delivered there is given up. Raises what `find` raises."""
        webhook = await self.find(caller, id)
        if not change.dry:
            if not await self._store.remove(caller.tenant, id):
                raise _not_found()  # somebody else was quicker
            await self._note(caller, "webhook.delete", webhook, change)
        return webhook

    async def rotate(self, caller: Caller, id: UUID, overlap: float, change: Change) -> tuple[Webhook, str | None]:
        """A new secret; the old ones sign along for `overlap` seconds more. Raises what `change` raises."""
        webhook, now = await self.find(caller, id), self._clock.now()
        if change.dry:
            return webhook, None
        text = new_secret()
        until = now + overlap
        old = [replace(s, until=until if s.until is None else min(s.until, until)) for s in webhook.secrets if s.live(now)]
        kept = [s for s in old if s.live(now)][-(_MOST_SECRETS - 1) :]
        wanted = replace(webhook, secrets=(*kept, self._sealed(caller.tenant, id, text, now)), updated_at=now)
        return await self._changed_to(caller, wanted, "webhook.rotate", change), text

    async def ping(self, caller: Caller, id: UUID, change: Change) -> tuple[Webhook, UUID | None]:
        """Send a `ping` there; gives the id of its delivery. Raises what `find` raises, Conflict if the webhook is off."""
        webhook, now = await self.find(caller, id), self._clock.now()
        if not webhook.active:
            raise Conflict("the webhook is off", code="webhook_off", present_status="disabled", actions=actions(webhook))
        if change.dry:
            return webhook, None
        delivery = uuid7(now, self._random.getrandbits(66), self._random.randrange(SHARDS))
        event = {"type": PING, "timestamp": rfc3339(now), "data": {"webhook_id": str(id), "sent_by": caller.principal}}
        body = {"id": str(delivery), "tenant": caller.tenant, "event": event}
        await self._deliveries.post(caller.tenant, OutboxRow(delivery, WEBHOOK, str(id), body))
        await self._note(caller, "webhook.test", webhook, change)
        self._posted()
        return webhook, delivery

    async def deliveries(self, caller: Caller, id: UUID, state: str | None, before: UUID | None, limit: int) -> list[Delivery]:
        """What was or is to be delivered there, newest first. Raises what `find` raises."""
        await self.find(caller, id)
        return await self._deliveries.listed(caller.tenant, str(id), state, before, limit)

    async def outbox(self, caller: Caller, target: str | None, state: str | None, before: UUID | None, limit: int) -> list[Delivery]:
        """All deliveries of the tenant, notices and callbacks too, newest first. Raises Denied for a caller who is no admin."""
        caller.need(ADMIN)
        return await self._deliveries.listed(caller.tenant, target, state, before, limit)

    async def redeliver(self, caller: Caller, id: UUID, change: Change) -> Delivery:
        """Have a delivery made again, or at once. Raises NotFound, Denied, Conflict while a node is at it."""
        caller.need(ADMIN)
        delivery = await self._deliveries.get(caller.tenant, id)
        if delivery is None:
            raise NotFound("there is no such delivery", code="delivery_not_found")
        again = delivery if change.dry and not delivery.under_way else None
        if not change.dry:
            again = await self._deliveries.again(caller.tenant, id)
        if again is None:
            raise Conflict("it is being delivered at this moment", code="delivery_under_way", present_status="under_way", actions=[])
        if not change.dry:
            data = {"reason": change.reason, "state": delivery.state, "tries": delivery.tries, "target": delivery.target}
            await self._records.audit(caller.tenant, caller.principal, "delivery.redeliver", f"delivery/{id}", data)
            self._posted()
        return again

    async def callback_secret(self, caller: Caller, change: Change) -> str | None:
        """The secret that signs what is sent to a `callback_url`; None if it is only tried. Raises Denied for a caller who is no admin."""
        caller.need(ADMIN)
        if change.dry:
            return None
        await self._records.audit(caller.tenant, caller.principal, "callback_secret.show", "callback_secret", {"reason": change.reason})
        return self._callback_secret(caller.tenant)

    def _sealed(self, tenant: str, id: UUID, text: str, now: float) -> SealedSecret:
        return SealedSecret(self._sealer.seal(text, about(tenant, id)), now)

    def _with(self, webhook: Webhook, wish: Wish) -> Webhook:
        given: dict[str, Any] = {
            name: value
            for name in ("url", "events", "workflow", "description", "include_output")
            if (value := getattr(wish, name)) is not None
        }
        if wish.any_workflow:
            given["workflow"] = None
        if wish.headers is not None:
            sealed = self._sealer.seal(encode(dict(wish.headers)), about(webhook.tenant, webhook.id)) if wish.headers else None
            given |= {"header_names": tuple(sorted(wish.headers)), "headers": sealed}
        if wish.active is not None:
            given |= {"active": wish.active, "disabled_reason": None if wish.active else webhook.disabled_reason or "switched off"}
        return replace(webhook, **given)

    async def _changed_to(self, caller: Caller, wanted: Webhook, action: str, change: Change) -> Webhook:
        done = await self._store.change(wanted)
        if done is None:
            raise Conflict("somebody else changed it at the same time; look at it again", code="changed_meanwhile", actions=[])
        await self._note(caller, action, done, change)
        return done

    async def _note(self, caller: Caller, action: str, webhook: Webhook, change: Change) -> None:
        data = {"reason": change.reason, "events": list(webhook.events), "workflow": webhook.workflow, "active": webhook.active}
        await self._records.audit(caller.tenant, caller.principal, action, f"webhook/{webhook.id}", data)
        self._changed()


def _not_found() -> NotFound:
    return NotFound("there is no such webhook", code="webhook_not_found")


def about(tenant: str, id: UUID) -> str:
    """What a webhook's secrets are sealed together with."""
    return f"webhook/{tenant}/{id}"


def url_problem(url: str, place: str) -> Problem | None:
    """What is wrong with the form of an address that is called later; None for nothing."""
    try:
        _GUARD.check_url(url)
    except StepError as exc:
        return Problem("bad_url", exc.message, place)
    return Problem("bad_url", "a fragment is not sent", place) if "#" in url else None


def _check(wish: Wish) -> None:
    problems: list[Problem] = []
    if wish.url is not None and (found := url_problem(wish.url, "/url")) is not None:
        problems.append(found)
    if wish.events is not None and not wish.events:
        problems.append(Problem("missing", "a webhook needs at least one event", "/events"))
    for number, event in enumerate(wish.events or ()):
        if event not in EVENTS and event not in _FAMILIES:
            expected = ", ".join((*_FAMILIES, *EVENTS))
            problems.append(Problem("unknown_event", "there is no such event", f"/events/{number}", found=event[:80], expected=expected))
    if wish.workflow is not None and _WORKFLOW.fullmatch(wish.workflow) is None:
        problems.append(Problem("bad_name", "expected the id of a workflow", "/workflow", found=wish.workflow[:80]))
    problems += _header_problems(wish.headers or {})
    if wish.description is not None and "\x00" in wish.description:
        problems.append(Problem("not_storable", "the text holds NUL", "/description"))
    if problems:
        raise InvalidInput("this cannot be a webhook", problems=problems)


def _header_problems(headers: Mapping[str, str]) -> list[Problem]:
    problems = []
    for name, value in headers.items():
        if HEADER.fullmatch(name) is None or name.lower() in _NEVER_SENT:
            problems.append(Problem("bad_header", f"{shown(name[:80])} is no header that can be given", pointer("headers", name)))
        elif HEADER_VALUE.fullmatch(value) is None or value != value.strip():
            problems.append(Problem("bad_header", "a value of visible ASCII is expected", pointer("headers", name)))
    return problems


def actions(webhook: Webhook) -> list[dict[str, Any]]:
    """What may be done with it now."""
    here = f"{API}/webhooks/{webhook.id}"
    return [{"name": verb, "method": "POST", "href": f"{here}/{verb}"} for verb in (("rotate", "test") if webhook.active else ("rotate",))]


def webhook_view(webhook: Webhook, now: float) -> dict[str, Any]:
    """A webhook as it is shown: all but its secrets and the values of its headers."""
    here = f"{API}/webhooks/{webhook.id}"
    return {
        "webhook_id": str(webhook.id),
        "url": webhook.url,
        "events": list(webhook.events),
        "workflow": webhook.workflow,
        "description": webhook.description,
        "header_names": list(webhook.header_names),
        "include": ["output"] if webhook.include_output else [],
        "active": webhook.active,
        "disabled_reason": webhook.disabled_reason,
        "secrets": [{"since": time_text(s.since), "until": time_text(s.until)} for s in webhook.secrets if s.live(now)],
        "created_at": time_text(webhook.created_at),
        "created_by": webhook.created_by,
        "updated_at": time_text(webhook.updated_at),
        "actions": actions(webhook),
        "links": {"self": here, "deliveries": f"{here}/deliveries"},
    }


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    """A delivery as it is shown, with what is or was sent."""
    event = delivery.body.get("event")
    again = {"name": "redeliver", "method": "POST", "href": f"{API}/webhooks/deliveries/{delivery.id}/redeliver"}
    return {
        "delivery_id": str(delivery.id),
        "kind": delivery.kind,
        "target": delivery.target,
        "type": event["type"] if isinstance(event, dict) else delivery.kind,
        "instance_id": None if delivery.instance is None else str(delivery.instance),
        "seq": delivery.seq,
        "state": delivery.state,
        "tries": delivery.tries,
        "last_status": delivery.last_status,
        "last_error": delivery.last_error,
        "created_at": time_text(delivery.created_at),
        "next_try_at": time_text(delivery.due_at) if delivery.state == "pending" and not delivery.under_way else None,
        "settled_at": time_text(delivery.settled_at),
        "event": event,
        "actions": [] if delivery.under_way else [again],
    }
