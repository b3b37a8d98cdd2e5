"""Lists page by page while rows arrive, and tenants that do not know of each other."""

from __future__ import annotations

import pytest

from agiwo.service.tokens import Signer
from kit.api import World


async def test_every_instance_appears_once_while_others_arrive(world: World) -> None:
    async def start() -> str:
        answer = await world.client.post("/v1/workflows/echo/trigger", json={"labels": {"list": "paged"}})
        return answer.json()["instance_id"]

    mine = [await start() for _ in range(12)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await world.client.get(f"/v1/instances?label=list:paged&limit=5{cursor}")).json()
        seen += [item["instance_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        await start()
        cursor = f"&cursor={page['next_cursor']}"
    # Ids of one millisecond stand in any order, but always in the same.
    assert seen == sorted(mine, reverse=True)


async def test_instances_are_found_by_status_workflow_and_correlation_key(world: World) -> None:
    waits = await world.run("report", input={"week": "1"}, correlation_key="order-77")
    ended = await world.run("echo")
    waiting = (await world.client.get("/v1/instances?status=WAITING&limit=200")).json()["items"]
    assert waits["instance_id"] in [item["instance_id"] for item in waiting]
    assert {item["status"] for item in waiting} == {"WAITING"}
    done = (await world.client.get("/v1/instances?status=SUCCESS&workflow=echo&limit=200")).json()["items"]
    assert ended["instance_id"] in [item["instance_id"] for item in done]
    found = (await world.client.get("/v1/instances?correlation_key=order-77")).json()["items"]
    assert [item["instance_id"] for item in found] == [waits["instance_id"]]


async def test_another_tenants_things_look_as_if_they_did_not_exist(world: World) -> None:
    view = await world.run("report", input={"week": "1"})
    at, approval = view["links"]["self"], view["waiting_for"][0]["href"]
    unknown = await world.stranger.get("/v1/instances/01a22ed9-3172-731c-bdcf-4bb99f4bea97")
    paths = [at, *(f"{at}/{part}" for part in ("steps", "steps/write", "trace", "history", "graph", "events"))]
    for path in [*paths, approval, f"/v1/admin/instances/{view['instance_id']}/trace"]:
        answer = await world.stranger.get(path)
        assert answer.status_code == 404, path
    assert (await world.stranger.get(at)).content == unknown.content
    for path in (f"{at}/cancel", f"{approval}/approve", f"{approval}/reject"):
        assert (await world.stranger.post(path, json={})).status_code == 404
    for path in (
        "/v1/workflows/report",
        "/v1/workflows/report/versions",
        "/v1/workflows/report/versions/1.0",
        "/v1/workflows/report/graph",
    ):
        assert (await world.stranger.get(path)).status_code == 404
    assert (await world.stranger.post("/v1/workflows/report/trigger", json={"input": {"week": "1"}})).status_code == 404
    for path in ("/v1/instances", "/v1/approvals", "/v1/workflows"):
        assert (await world.stranger.get(path)).json()["items"] == []
    assert (await world.client.get(approval)).json()["status"] == "pending"


async def test_a_cursor_of_another_tenant_or_list_is_refused(world: World) -> None:
    await world.run("echo")
    await world.run("echo")
    cursor = (await world.client.get("/v1/instances?limit=1")).json()["next_cursor"]
    assert cursor is not None
    assert (await world.stranger.get(f"/v1/instances?cursor={cursor}")).status_code == 400
    assert (await world.client.get(f"/v1/approvals?cursor={cursor}")).status_code == 400


async def test_the_same_key_of_another_tenant_is_another_promise(world: World) -> None:
    text = 'workflow: {id: theirs, version: "1", steps: [{id: say, type: tool_call, tool: debug.echo, parameters: {value: 1}}]}'
    for client in (world.client, world.stranger):
        assert (await client.post("/v1/workflows", content=text, headers={"content-type": "application/yaml"})).status_code == 201
    key = {"idempotency-key": "shared"}
    ids = [
        (await c.post("/v1/workflows/theirs/trigger", json={}, headers=key)).json()["instance_id"] for c in (world.client, world.stranger)
    ]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    "spoiled", [lambda t: t[:-1], lambda t: t + "A", lambda t: t + "=", lambda t: t.swapcase(), lambda t: "", lambda t: "é"]
)
def test_only_the_very_text_that_was_signed_opens(spoiled: object) -> None:
    signer = Signer([b"k" * 32])
    token = signer.sign("a", ["x", 1])
    assert signer.open("a", token) == ["x", 1]
    assert callable(spoiled)
    assert signer.open("a", spoiled(token)) is None
    assert signer.open("b", token) is None


def test_an_older_key_still_opens_after_a_rotation() -> None:
    token = Signer([b"o" * 32]).sign("a", 1)
    assert Signer([b"n" * 32, b"o" * 32]).open("a", token) == 1
    assert Signer([b"n" * 32]).open("a", token) is None
