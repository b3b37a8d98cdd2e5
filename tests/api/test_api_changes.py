"""The conventions of every change: made once under its key, tried with `dry_run`, and noted with its reason."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from kit.api import World

#: Without `dry_run` and `reason`: what stores nothing, or is a dry run itself, and what other systems report.
WITHOUT = (
    "/v1/workflows/validate",
    "/v1/workflows/preview",
    "/v1/workflows/{workflow_id}/preview",
    "/v1/callbacks/",
    "/v1/webhooks/",
    "/v1/hooks/",
)


async def journal(database: str) -> list[tuple[str, str, str | None]]:
    connection = await asyncpg.connect(database)
    try:
        rows = await connection.fetch("SELECT action, object, data->>'reason' AS reason FROM agiwo.audit ORDER BY id")
        return [(row["action"], row["object"], row["reason"]) for row in rows]
    finally:
        await connection.close()


async def waiting_gate(world: World) -> dict[str, Any]:
    return await world.run("gate", input={"to": "Ann", "amount": 1})


async def test_every_change_in_the_document_takes_a_key_a_dry_run_and_a_reason(world: World) -> None:
    document = (await world.anonymous.get("/openapi.json")).json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method == "get":
                continue
            names = {parameter["name"] for parameter in operation["parameters"]}
            assert "Idempotency-Key" in names and "409" in operation["responses"], path
            if path.startswith(WITHOUT):
                continue
            assert "dry_run" in names, path
            if "reason" not in names:
                body = operation["requestBody"]["content"]["application/json"]["schema"]
                assert "reason" in body.get("properties", {}), path


async def test_the_same_call_under_a_key_is_made_once_and_answered_again(world: World, module_database: str) -> None:
    """REQ-07, REQ-38 for a change that is no trigger."""
    id = (await waiting_gate(world))["instance_id"]
    key = {"idempotency-key": f"cancel-{id}"}
    answers = await asyncio.gather(
        *(world.client.post(f"/v1/instances/{id}/cancel", json={"reason": "once"}, headers=key) for _ in range(10))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(answer.headers.get("idempotency-replayed", "false") for answer in answers) == ["false"] + ["true"] * 9
    assert [entry for entry in await journal(module_database) if entry[1] == f"instance/{id}"] == [("cancel", f"instance/{id}", "once")]
    other = await world.client.post(f"/v1/instances/{id}/cancel", json={"reason": "twice"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    stranger = await world.stranger.post(f"/v1/instances/{id}/cancel", json={"reason": "once"}, headers=key)
    assert stranger.status_code == 404


async def test_a_refused_call_uses_no_key_up(world: World) -> None:
    key = {"idempotency-key": "refused-first"}
    for body in ({"nothing": 1}, {}):
        answer = await world.client.post("/v1/instances/018f0000-0000-7000-8000-000000000000/cancel", json=body, headers=key)
        assert answer.status_code in (404, 422)
    published = await world.client.post(
        "/v1/workflows", content="workflow: {id: keyed, version: '1', steps: [{id: a, type: end}]}",
        headers={**key, "content-type": "application/yaml"},
    )  # fmt: skip
    assert published.status_code == 201, published.text


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "é"])
async def test_a_key_that_is_none_is_refused(world: World, key: str) -> None:
    answer = await world.client.post("/v1/workflows", content=b"", headers={"idempotency-key": key.encode()})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_idempotency_key")


async def test_two_keys_in_one_call_are_refused_since_nobody_knows_which_counts(world: World) -> None:
    for path in ("/v1/workflows/echo/trigger", f"/v1/instances/{(await waiting_gate(world))['instance_id']}/cancel"):
        answer = await world.client.post(path, json={}, headers=[("idempotency-key", "one"), ("idempotency-key", "two")])
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_idempotency_key")


async def test_a_trigger_answered_again_says_so(world: World) -> None:
    key = {"idempotency-key": "said-again"}
    first, second = [await world.client.post("/v1/workflows/echo/trigger", json={}, headers=key) for _ in range(2)]
    assert first.json()["instance_id"] == second.json()["instance_id"]
    assert ("idempotency-replayed" in first.headers, second.headers["idempotency-replayed"]) == (False, "true")


async def test_a_dry_run_checks_everything_and_changes_nothing(world: World, module_database: str) -> None:
    before = await journal(module_database)
    running = await waiting_gate(world)
    id, approval = running["instance_id"], running["waiting_for"][0]["approval_id"]
    tried = {
        f"/v1/instances/{id}/cancel": ({"reason": "r"}, "cancel"),
        f"/v1/approvals/{approval}/approve": ({"reason": "r", "values": {"cost_centre": 1}}, "approve"),
        f"/v1/approvals/{approval}/reject": ({"reason": "r"}, "reject"),
        "/v1/workflows/report/trigger": ({"reason": "r", "input": {"week": "1"}}, "trigger"),
    }
    count = (await world.client.get("/v1/instances?workflow=report")).json()["items"]
    for path, (body, action) in tried.items():
        answer = await world.client.post(f"{path}?dry_run=true", json=body, headers={"idempotency-key": "dry"})
        assert answer.status_code == 200, answer.text
        assert (answer.json()["dry_run"], answer.json()["action"], answer.json()["reason"]) == (True, action, "r")
    refused = {
        f"/v1/instances/{id}/cancel": {"reason": "x" * 501},
        f"/v1/approvals/{approval}/approve": {"values": {}},
        f"/v1/instances/{id}/steps/pay/reconcile": {"done": True},
        "/v1/workflows/report/trigger": {"input": {}},
    }
    for path, body in refused.items():
        assert (await world.client.post(f"{path}?dry_run=true", json=body)).status_code in (409, 422)
    assert (await world.client.get(f"/v1/instances/{id}")).json()["status"] == "WAITING"
    assert (await world.client.get("/v1/instances?workflow=report")).json()["items"] == count
    assert (await world.client.get("/v1/admin/triggers?workflow=report")).json()["items"] == []
    assert await journal(module_database) == before


async def test_a_dry_publication_says_what_would_become_of_it(world: World) -> None:
    async def tried(text: str) -> Any:
        return await world.client.post("/v1/workflows?dry_run=true", content=text, headers={"content-type": "application/yaml"})

    text = "workflow: {id: tried, version: '1.0', steps: [{id: a, type: end}]}"
    assert (await tried(text)).json()["published"] == "created"
    assert (await world.client.get("/v1/workflows/tried")).status_code == 404
    await world.publish(text)
    assert (await tried(text)).json()["published"] == "unchanged"
    assert (await tried(text.replace("id: a", "id: b"))).json()["code"] == "version_exists"
    assert (await tried(text.replace("1.0", "1.00"))).json()["code"] == "equal_version"


async def test_a_dry_decision_of_what_is_decided_answers_as_the_decision_would(world: World) -> None:
    running = await waiting_gate(world)
    here = f"/v1/approvals/{running['waiting_for'][0]['approval_id']}"
    form = {"values": {"cost_centre": 1}}
    assert (await world.client.post(f"{here}/approve", json=form)).status_code == 200
    assert (await world.client.post(f"{here}/approve?dry_run=true", json=form)).status_code == 200
    other = await world.client.post(f"{here}/reject?dry_run=true", json={})
    assert (other.status_code, other.json()["code"]) == (409, "already_decided")


async def test_every_change_is_noted_with_who_why_and_what(world: World, module_database: str) -> None:
    running = await waiting_gate(world)
    approval = running["waiting_for"][0]["approval_id"]
    await world.client.post(f"/v1/approvals/{approval}/approve", json={"reason": "checked", "values": {"cost_centre": 1}})
    started = await world.client.post("/v1/workflows/echo/trigger", json={"reason": "by hand"})
    await world.client.post(
        "/v1/workflows?reason=first", content="workflow: {id: noted, version: '1', steps: [{id: a, type: end}]}",
        headers={"content-type": "application/yaml"},
    )  # fmt: skip
    noted = await journal(module_database)
    assert ("approve", f"approval/{approval}", "checked") in noted
    assert ("trigger", f"instance/{started.json()['instance_id']}", "by hand") in noted
    assert ("publish", "workflow/noted/1", "first") in noted
