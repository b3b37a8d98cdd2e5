"""Signed messages that come in: who signed, what counts once, and what people decide over a channel."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from standardwebhooks import Webhook

from agiwo.service.tokens import Link
from kit.api import SECRET, World


async def send(
    world: World, path: str, body: Any, *, id: str | None = None, secret: str = SECRET, late: float = 0.0, **headers: str
) -> httpx.Response:
    """A message as another system sends it."""
    text = body if isinstance(body, str) else json.dumps(body)
    message, at = id or f"msg_{uuid4().hex}", datetime.now(UTC) - timedelta(seconds=late)
    signed = {
        "webhook-id": message,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(message, at, text),
        "content-type": "application/json",
        **headers,
    }
    return await world.anonymous.post(path, content=text, headers=signed)


ORDER = {"order": {"word": "sesame", "id": "order-9"}}


async def test_a_signed_event_starts_the_workflow_with_its_mapped_input(world: World) -> None:
    taken = await send(world, "/v1/hooks/shop", ORDER)
    assert taken.status_code == 202, taken.text
    view = (await world.client.get(f"/v1/instances/{taken.json()['instance_id']}")).json()
    assert (view["input"], view["correlation_key"], view["started_by"]) == ({"word": "sesame"}, "order-9", "key:hook.shop")


async def test_a_message_counts_once_and_its_replay_gets_the_same_answer(world: World) -> None:
    answers = await asyncio.gather(*(send(world, "/v1/hooks/shop", ORDER, id="msg_once") for _ in range(5)))
    assert {one.status_code for one in answers} == {202}
    assert len({one.json()["instance_id"] for one in answers}) == 1
    other = await send(world, "/v1/hooks/shop", {"order": {"word": "other", "id": "x"}}, id="msg_once")
    assert other.status_code == 409


WRONG: list[dict[str, str]] = [
    {"webhook-signature": ""},
    {"webhook-signature": "v1,AAAA"},
    {"webhook-signature": "v1"},
    {"webhook-signature": "v1,a,b"},
    {"webhook-signature": "v1,%%%"},
    {"webhook-signature": "v2,AAAA"},
    {"webhook-id": ""},
    {"webhook-id": "x" * 300},
    {"webhook-timestamp": ""},
    {"webhook-timestamp": "soon"},
    {"webhook-timestamp": "nan"},
    {"webhook-timestamp": "1e400"},
    {"webhook-timestamp": "99999999999999999999"},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: next(f"{name}={value[:12]}" for name, value in wrong.items()))
@pytest.mark.parametrize("path", ["/v1/hooks/shop", "/v1/webhooks/approvals/chat"])
async def test_a_bad_signature_is_401_whatever_is_bad_about_it(world: World, path: str, wrong: dict[str, str]) -> None:
    refused = await send(world, path, ORDER, **wrong)
    assert (refused.status_code, refused.json()["code"]) == (401, "bad_signature")


async def test_another_secret_an_old_message_and_a_changed_body_are_401(world: World) -> None:
    other = "whsec_" + base64.b64encode(b"y" * 32).decode()
    answers = [
        await send(world, "/v1/hooks/shop", ORDER, secret=other),
        await send(world, "/v1/hooks/shop", ORDER, late=301),
        await send(world, "/v1/hooks/shop", ORDER, late=-310),
    ]
    at = datetime.now(UTC)
    headers = {"webhook-id": "m", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": Webhook(SECRET).sign("m", at, "{}")}
    for body in (b"{ }", b"\xff\xfe", b""):
        answers.append(await world.anonymous.post("/v1/hooks/shop", content=body, headers=headers))
    assert [one.status_code for one in answers] == [401] * 6
    assert (await world.anonymous.post("/v1/hooks/shop", json=ORDER)).status_code == 401
    assert (await send(world, "/v1/hooks/nobody", ORDER)).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{", 400),
        ('{"a":1,"a":2}', 422),
        ("[]", 422),
        ('{"order": {"id": 7, "word": "x"}}', 422),
        ('{"order": {"word": "x"}}', 422),
        ("1" * 1_000_001, 413),
    ],
    ids=["no JSON", "a key twice", "a list", "a key that is no text", "nothing to map", "too long"],
)
async def test_a_payload_that_does_not_fit_is_refused_and_uses_no_id_up(world: World, body: str, status: int) -> None:
    id = f"msg_{uuid4().hex}"
    refused = await send(world, "/v1/hooks/shop", body, id=id)
    assert refused.status_code == status, refused.text
    assert (await send(world, "/v1/hooks/shop", ORDER, id=id)).status_code == 202
    if refused.json()["code"] == "payload_invalid":
        rejected = (await world.client.get("/v1/admin/triggers?workflow=echo&limit=1")).json()["items"][0]
        assert (rejected["code"], rejected["principal"]) == ("payload_invalid", "key:hook.shop")


async def test_what_a_payload_says_is_no_template(world: World) -> None:
    taken = await send(world, "/v1/hooks/shop", {"order": {"word": "{{ secrets.KEY }}{{ 7 * 7 }}", "id": "t"}})
    view = (await world.client.get(f"/v1/instances/{taken.json()['instance_id']}")).json()
    assert view["input"] == {"word": "{{ secrets.KEY }}{{ 7 * 7 }}"}


async def asked_of_ann(world: World) -> dict[str, Any]:
    view = await world.run("gate", input={"to": "Bob", "amount": 3})
    approval = await world.client.get(f"/v1/approvals/{view['waiting_for'][0]['approval_id']}")
    out: dict[str, Any] = approval.json()
    return out


async def decide(world: World, approval: str, action: str = "approve", *, channel: str = "chat", **more: Any) -> httpx.Response:
    id = more.pop("id", None)
    values = {"values": {"cost_centre": 7}} if action == "approve" else {}
    body = {"approval_id": approval, "action": action, "by": "user:ann@example.com", **values, **more}
    return await send(world, f"/v1/webhooks/approvals/{channel}", body, id=id)


async def test_req_19_of_repeated_and_contrary_decisions_over_a_channel_one_counts(world: World) -> None:
    approval = (await asked_of_ann(world))["approval_id"]
    answers = await asyncio.gather(*(decide(world, approval) for _ in range(5)))
    assert {one.status_code for one in answers} == {200}, answers[0].text
    assert {one.json()["decision"]["by"] for one in answers} == {"user:ann@example.com"}
    assert {one.json()["decision"]["channel"] for one in answers} == {"webhook:chat"}
    contrary = await decide(world, approval, "reject")
    assert (contrary.status_code, contrary.json()["code"]) == (409, "already_decided")


async def test_req_18_nothing_but_a_signed_post_decides(world: World) -> None:
    approval = (await asked_of_ann(world))["approval_id"]
    for method in ("GET", "HEAD", "PUT"):
        assert (await world.anonymous.request(method, "/v1/webhooks/approvals/chat")).status_code == 405
    assert (await world.client.get(f"/v1/approvals/{approval}")).json()["status"] == "pending"


async def test_a_replayed_decision_gets_its_first_answer(world: World) -> None:
    approval = (await asked_of_ann(world))["approval_id"]
    first = await decide(world, approval, id="msg_decision")
    again = await decide(world, approval, id="msg_decision")
    assert first.json() == again.json() and again.headers["idempotency-replayed"] == "true"
    assert (await decide(world, approval, "reject", id="msg_decision")).status_code == 409


async def test_a_channel_decides_only_for_those_whom_it_speaks_for_and_who_are_asked(world: World) -> None:
    approval = (await asked_of_ann(world))["approval_id"]
    for by in ("user:ann@evil.example", "user:ann@example.com@evil.example", "key:ops", "role:admin", "user:@example.com", None):
        refused = await decide(world, approval, by=by)
        assert refused.status_code == 403, (by, refused.text)
    stranger = await decide(world, approval, by="user:bob@example.com")
    assert (stranger.status_code, stranger.json()["code"]) == (403, "not_an_approver")
    assert (await decide(world, approval, channel="strangers")).status_code == 404, "another tenant's is unknown"
    assert (await decide(world, approval, channel="nobody")).status_code == 404


async def test_a_changed_matter_is_412_a_bad_form_422_and_an_end_410(world: World) -> None:
    asked = await asked_of_ann(world)
    approval = asked["approval_id"]
    assert (await decide(world, approval, digest="0" * 64)).status_code == 412
    assert (await decide(world, approval, values={"cost_centre": "none"})).status_code == 422
    assert (await decide(world, approval, approval_id="no id")).status_code == 422
    assert (await decide(world, approval, token="x")).status_code == 422
    assert (await decide(world, str(uuid4()))).status_code == 404
    assert (await world.client.post(f"/v1/instances/{asked['instance_id']}/cancel")).status_code in (200, 202)
    async with asyncio.timeout(20):
        while (await world.client.get(f"/v1/approvals/{approval}")).json()["status"] == "pending":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert (await decide(world, approval)).status_code == 410


async def test_the_link_that_a_person_was_given_decides_as_that_person(world: World) -> None:
    asked = await asked_of_ann(world)
    far = world.services.clock.now() + 3600
    token = world.services.links.mint(Link("default", UUID(asked["approval_id"]), "user:ann@example.com", far))
    elsewhere = world.services.links.mint(Link("other", UUID(asked["approval_id"]), "user:ann@example.com", far))
    over = world.services.links.mint(Link("default", UUID(asked["approval_id"]), "user:ann@example.com", 1.0))
    path, body = "/v1/webhooks/approvals/chat", {"action": "approve", "values": {"cost_centre": 7}}
    assert (await send(world, path, {**body, "token": token, "by": "user:bob@example.com"})).status_code == 403
    assert (await send(world, path, {**body, "token": elsewhere})).status_code == 404
    assert (await send(world, path, {**body, "token": over})).status_code == 410
    assert (await send(world, path, {**body, "token": "nonsense"})).status_code == 404
    decided = await send(world, path, {**body, "token": token})
    assert (decided.status_code, decided.json()["decision"]["by"]) == (200, "user:ann@example.com")


WAITING = """\
workflow:
  id: order
  version: "1.0"
  steps:
    - {id: paid, type: wait_for_signal, event: payment.received, timeout: 1h}
  output: "{{ steps.paid.output }}"
"""


async def test_a_message_is_a_signal_to_whoever_has_its_correlation_key_and_counts_once(world: World) -> None:
    await world.publish(WAITING)
    key = f"order-{uuid4().hex}"
    waiting = [await world.client.post("/v1/workflows/order/trigger", json={"correlation_key": key}) for _ in range(2)]
    body = {"kind": "received", "order": key, "data": {"amount": 3}}
    first = await send(world, "/v1/hooks/paid", body, id=f"msg_{key}")
    again = await send(world, "/v1/hooks/paid", body, id=f"msg_{key}")
    assert first.status_code == 202, first.text
    assert first.json() == again.json() and again.headers["idempotency-replayed"] == "true"
    ids = [one.json()["instance_id"] for one in waiting]
    assert first.json()["instances"] == [{"instance_id": id, "result": "accepted"} for id in ids]
    for id in ids:
        async with asyncio.timeout(20):
            while (view := (await world.client.get(f"/v1/instances/{id}")).json())["status"] != "SUCCESS":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert view["output"] == {"amount": 3}
    ended = await send(world, "/v1/hooks/paid_one", {"instance": ids[0]})
    assert (ended.status_code, ended.json()["present_status"]) == (409, "SUCCESS")
    assert (await send(world, "/v1/hooks/paid", {**body, "order": "nobody"})).status_code == 404
    assert (await send(world, "/v1/hooks/paid_one", {"instance": "no id"})).status_code == 422
    assert (await send(world, "/v1/hooks/paid_one", {"instance": str(uuid4())})).status_code == 404
    assert (await send(world, "/v1/hooks/paid", {**body, "order": None})).status_code == 422
