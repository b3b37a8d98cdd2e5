"""Webhooks over the API: made and shown once, what is sent to a real receiver, redelivered, rotated, and nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from standardwebhooks import Webhook

from kit.api import World
from kit.web import Asked, Web, answer


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web() as made:
        made.says["/hook"] = answer(204)
        yield made


async def got(web: Web, holds: Callable[[list[Asked]], Any]) -> list[Asked]:
    """What came in, as soon as it is enough."""
    async with asyncio.timeout(30):
        while not holds(web.asked):  # noqa: ASYNC110 - the moment is another process's
            await asyncio.sleep(0.02)
    return web.asked


def opened(asked: Asked, secret: str) -> dict[str, Any]:
    """The event of a message whose signature is good, as any receiver checks it."""
    event: dict[str, Any] = Webhook(secret).verify(asked.body, asked.headers)
    return event


async def made(world: World, web: Web, *events: str, path: str = "/hook", **more: Any) -> dict[str, Any]:
    """A webhook that the engine knows of."""
    given = await world.client.post("/v1/webhooks", json={"url": web.url(path), "events": list(events), **more})
    assert given.status_code == 201, given.text
    await world.engine.subscriptions.round()
    out: dict[str, Any] = given.json()
    return out


async def unmade(world: World, webhook: dict[str, Any]) -> None:
    assert (await world.client.delete(f"/v1/webhooks/{webhook['webhook_id']}")).status_code == 200
    await world.engine.subscriptions.round()


async def deliveries(world: World, webhook: dict[str, Any], holds: Callable[[list[Any]], Any], query: str = "") -> list[dict[str, Any]]:
    async with asyncio.timeout(30):
        while True:
            page = (await world.client.get(f"/v1/webhooks/{webhook['webhook_id']}/deliveries{query}")).json()
            if holds(page["items"]):
                return list(page["items"])
            await asyncio.sleep(0.02)


async def test_a_secret_is_shown_once_and_stored_sealed(world: World, web: Web) -> None:
    webhook = await made(world, web, "instance.*", headers={"Authorization": "Bearer very-secret"}, description="for the shop")
    assert webhook["secret"].startswith("whsec_") and webhook["header_names"] == ["Authorization"]
    seen = await world.client.get(f"/v1/webhooks/{webhook['webhook_id']}")
    assert "secret" not in seen.json() and "very-secret" not in seen.text and webhook["secret"] not in seen.text
    stored = await world.services.webhooks._store.get("default", seen.json()["webhook_id"])
    assert stored is not None and webhook["secret"] not in repr(stored) and "very-secret" not in repr(stored)
    listed = (await world.client.get("/v1/webhooks")).json()
    assert webhook["webhook_id"] in [one["webhook_id"] for one in listed["items"]]
    await unmade(world, webhook)
    assert (await world.client.get(f"/v1/webhooks/{webhook['webhook_id']}")).status_code == 404


async def test_the_events_of_an_instance_arrive_signed_and_in_order(world: World, web: Web) -> None:
    webhook = await made(world, web, "*", headers={"X-Shop": "seven"})
    view = await world.run("echo", input={"word": "sesame"}, labels={"team": "ops"}, correlation_key="order-7")
    asked = await got(web, lambda asked: len(asked) == 4)
    events = [opened(one, webhook["secret"]) for one in asked]
    assert [event["type"] for event in events] == ["instance.started", "step.started", "step.succeeded", "instance.succeeded"]
    assert [event["data"]["seq"] for event in events] == sorted(event["data"]["seq"] for event in events)
    assert [event["data"]["status"] for event in events] == ["RUNNING", "RUNNING", "RUNNING", "SUCCESS"]
    for event in events:
        data = event["data"]
        assert (data["instance_id"], data["workflow"], data["version"]) == (view["instance_id"], "echo", "1.0")
        assert (data["correlation_key"], data["labels"], data["trace_id"]) == ("order-7", {"team": "ops"}, view["trace_id"])
    assert events[2]["data"]["step"] == {"id": "say", "path": "say", "iteration": 1, "attempt": 1, "status": "SUCCESS"}
    assert len({one.headers["webhook-id"] for one in asked}) == 4
    assert {one.headers["x-shop"] for one in asked} == {"seven"}
    assert not any(b"sesame" in one.body for one in asked), "what steps take and give is not told"
    items = await deliveries(world, webhook, lambda items: all(one["state"] == "delivered" for one in items))
    assert {one["last_status"] for one in items} == {204} and {one["tries"] for one in items} == {1}
    assert {one["delivery_id"] for one in items} == {one.headers["webhook-id"] for one in asked}
    await unmade(world, webhook)


async def test_only_what_was_asked_for_is_sent_and_outputs_on_request(world: World, web: Web) -> None:
    webhook = await made(world, web, "instance.succeeded", workflow="echo", include=["output"])
    await world.run("report", input={"week": "W1"})
    await world.run("echo", input={"word": "sesame"})
    asked = await got(web, lambda asked: asked)
    event = opened(asked[0], webhook["secret"])
    assert (event["type"], event["data"]["workflow"], event["data"]["output"]) == ("instance.succeeded", "echo", {"said": "sesame"})
    assert len(web.asked) == 1
    await unmade(world, webhook)


async def test_a_failed_delivery_keeps_its_id_and_a_later_one_waits_for_it(world: World, web: Web) -> None:
    tries = 0

    async def second_time(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.write(answer(503 if tries == 1 else 200))

    web.says["/hook"] = second_time
    webhook = await made(world, web, "instance.*")
    await world.run("echo")
    asked = await got(web, lambda asked: len(asked) == 3)
    assert [opened(one, webhook["secret"])["type"] for one in asked] == ["instance.started", "instance.started", "instance.succeeded"]
    assert asked[0].headers["webhook-id"] == asked[1].headers["webhook-id"]
    assert asked[0].body == asked[1].body
    await unmade(world, webhook)


async def test_req_47_a_redirect_is_not_followed_and_an_address_inside_is_refused_at_delivery(world: World, web: Web) -> None:
    web.says["/hook"] = answer(302, location=web.url("/inside"))
    webhook = await made(world, web, "instance.started")
    inside = (await world.client.post("/v1/webhooks", json={"url": "http://169.254.169.254/latest", "events": ["instance.started"]})).json()
    await world.engine.subscriptions.round()
    await world.run("echo")
    (item,) = await deliveries(world, webhook, lambda items: items and items[0]["last_status"] == 302)
    assert (item["state"], item["tries"]) == ("pending", 1) and "redirects are not followed" in item["last_error"]
    assert item["next_try_at"] is not None
    assert [one.target for one in web.asked] == ["/hook"]
    (item,) = await deliveries(world, inside, lambda items: items and items[0]["state"] == "dead")
    assert "PermissionDenied" in item["last_error"] and "169.254" in item["last_error"]
    await unmade(world, webhook)
    await unmade(world, inside)


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "http://user:pw@example.com/", "example.com", "http://a b/", "https://x.example/#part"]
)
async def test_an_address_whose_form_is_wrong_is_refused_when_it_is_given(world: World, url: str) -> None:
    refused = await world.client.post("/v1/webhooks", json={"url": url, "events": ["*"]})
    assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"] == "/url"
    refused = await world.client.post("/v1/workflows/echo/trigger", json={"callback_url": url})
    assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"] == "/callback_url"


async def test_what_is_no_event_or_no_header_is_named(world: World) -> None:
    body = {"url": "https://x.example", "events": ["instance.*", "step.sung"], "headers": {"Host": "y", "X-A": "a\r\nb"}, "workflow": "a b"}
    refused = await world.client.post("/v1/webhooks", json=body)
    assert refused.status_code == 422
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/events/1", "/workflow", "/headers/Host", "/headers/X-A"]


async def test_an_endpoint_that_is_gone_gets_nothing_more_until_it_is_switched_on(world: World, web: Web) -> None:
    web.says["/hook"] = answer(410)
    webhook = await made(world, web, "instance.*")
    await world.run("echo")
    items = await deliveries(world, webhook, lambda items: len(items) == 2 and all(one["state"] == "dead" for one in items))
    assert [one["last_status"] for one in items] == [None, 410]
    assert len(web.asked) == 1
    seen = (await world.client.get(f"/v1/webhooks/{webhook['webhook_id']}")).json()
    assert not seen["active"] and "410" in seen["disabled_reason"]
    refused = await world.client.post(f"/v1/webhooks/{webhook['webhook_id']}/test")
    assert refused.status_code == 409 and refused.json()["code"] == "webhook_off"

    web.says["/hook"] = answer(200)
    on = await world.client.patch(f"/v1/webhooks/{webhook['webhook_id']}", json={"active": True, "reason": "it is back"})
    assert on.json()["active"] and on.json()["disabled_reason"] is None
    first = items[-1]["delivery_id"]
    tried = await world.client.post(f"/v1/webhooks/deliveries/{first}/redeliver?dry_run=true")
    assert tried.json()["dry_run"] and tried.json()["present"]["state"] == "dead"
    again = await world.client.post(f"/v1/webhooks/deliveries/{first}/redeliver", json={"reason": "it is back"})
    assert again.status_code == 200 and again.json()["state"] == "pending"
    made_now = await deliveries(world, webhook, lambda items: items, "?state=delivered")
    assert [one["delivery_id"] for one in made_now] == [first]
    assert web.asked[1].headers["webhook-id"] == first
    await unmade(world, webhook)


async def test_an_old_secret_signs_along_for_a_while(world: World, web: Web) -> None:
    webhook = await made(world, web, "instance.started")
    rotated = (await world.client.post(f"/v1/webhooks/{webhook['webhook_id']}/rotate", json={"overlap": "1h"})).json()
    assert rotated["secret"] != webhook["secret"] and [one["until"] is None for one in rotated["secrets"]] == [False, True]
    sent = await world.client.post(f"/v1/webhooks/{webhook['webhook_id']}/test", json={"reason": "after the rotation"})
    assert sent.status_code == 202
    (asked,) = await got(web, lambda asked: asked)
    assert opened(asked, webhook["secret"])["type"] == opened(asked, rotated["secret"])["type"] == "ping"
    assert asked.headers["webhook-id"] == sent.json()["delivery_id"]
    last = (await world.client.post(f"/v1/webhooks/{webhook['webhook_id']}/rotate", json={"overlap": "0s"})).json()
    assert len(last["secrets"]) == 1
    await unmade(world, webhook)


async def test_another_tenants_webhooks_and_deliveries_look_unknown(world: World, web: Web) -> None:
    webhook = await made(world, web, "instance.started")
    await world.run("echo")
    (item,) = await deliveries(world, webhook, lambda items: items)
    here = f"/v1/webhooks/{webhook['webhook_id']}"
    answers = [
        await world.stranger.get(here),
        await world.stranger.patch(here, json={"active": False}),
        await world.stranger.delete(here),
        await world.stranger.post(f"{here}/rotate"),
        await world.stranger.post(f"{here}/test"),
        await world.stranger.get(f"{here}/deliveries"),
        await world.stranger.post(f"/v1/webhooks/deliveries/{item['delivery_id']}/redeliver"),
    ]
    assert [one.status_code for one in answers] == [404] * 7
    assert (await world.stranger.get("/v1/webhooks")).json()["items"] == []
    assert (await world.anonymous.get("/v1/webhooks")).status_code == 401
    await unmade(world, webhook)


async def test_deliveries_are_pages_in_one_order(world: World, web: Web) -> None:
    webhook = await made(world, web, "instance.*")
    for _ in range(3):
        await world.run("echo")
    await deliveries(world, webhook, lambda items: len(items) == 6)
    ids, cursor = [], ""
    while True:
        page = (await world.client.get(f"/v1/webhooks/{webhook['webhook_id']}/deliveries?limit=4{cursor}")).json()
        ids += [one["delivery_id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(ids) == len(set(ids)) == 6 and ids == sorted(ids, reverse=True)
    await unmade(world, webhook)


async def test_the_outbox_shows_everything_that_goes_out_of_a_tenant_to_its_admins(world: World, web: Web) -> None:
    done = await world.run("echo", callback_url="http://10.0.0.1/inside")
    target = "callback:10.0.0.1"
    async with asyncio.timeout(30):
        while not (items := (await world.client.get(f"/v1/admin/outbox?state=dead&target={target}")).json()["items"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (item,) = items
    assert (item["kind"], item["instance_id"], item["tries"]) == ("callback", done["instance_id"], 1)
    assert "PermissionDenied" in item["last_error"]
    first = (await world.client.get("/v1/admin/outbox?limit=1")).json()
    second = (await world.client.get(f"/v1/admin/outbox?limit=1&cursor={first['next_cursor']}")).json()
    assert first["items"][0]["delivery_id"] > second["items"][0]["delivery_id"]
    assert (await world.stranger.get("/v1/admin/outbox")).json()["items"] == []
    assert (await world.anonymous.get("/v1/admin/outbox")).status_code == 401


async def test_a_dry_run_makes_and_sends_nothing(world: World, web: Web) -> None:
    webhook = await made(world, web, "instance.started")
    here = f"/v1/webhooks/{webhook['webhook_id']}"
    before = (await world.client.get(here)).json()
    for tried in (
        await world.client.post("/v1/webhooks?dry_run=true", json={"url": "https://x.example", "events": ["*"]}),
        await world.client.patch(f"{here}?dry_run=true", json={"active": False}),
        await world.client.post(f"{here}/rotate?dry_run=true"),
        await world.client.post(f"{here}/test?dry_run=true"),
        await world.client.delete(f"{here}?dry_run=true&reason=x"),
        await world.client.post("/v1/admin/callback-secret?dry_run=true"),
    ):
        assert tried.status_code == 200 and tried.json()["dry_run"] is True, tried.text
    assert (await world.client.get(here)).json() == before
    assert len((await world.client.get("/v1/webhooks")).json()["items"]) == 1 and web.asked == []
    await unmade(world, webhook)


async def test_the_end_of_an_instance_is_sent_to_the_callback_url_of_its_trigger(world: World, web: Web) -> None:
    web.says["/done"] = answer(200, b"x" * 200_000)
    secret = (await world.client.post("/v1/admin/callback-secret", json={"reason": "a receiver"})).json()["secret"]
    view = await world.run("report", input={"week": "W1"}, callback_url=web.url("/done"))
    assert view["callback_url"] == web.url("/done") and web.asked == []
    approval = view["waiting_for"][0]["approval_id"]
    await world.client.post(f"/v1/approvals/{approval}/approve")
    (asked,) = await got(web, lambda asked: asked)
    event = opened(asked, secret)
    assert (event["type"], event["data"]["instance_id"], event["data"]["status"]) == ("instance.ended", view["instance_id"], "SUCCESS")
    assert event["data"]["output"] == "All went well."


async def test_a_callback_url_is_part_of_what_a_key_stands_for(world: World) -> None:
    def trigger(url: str) -> Any:
        return world.client.post(
            "/v1/workflows/echo/trigger", json={"callback_url": f"https://x.example/{url}"}, headers={"Idempotency-Key": "with-callback"}
        )

    first, again, other = await trigger("a"), await trigger("a"), await trigger("b")
    assert first.json()["instance_id"] == again.json()["instance_id"]
    assert other.status_code == 409 and json.loads(other.text)["code"] == "idempotency_key_reused"
