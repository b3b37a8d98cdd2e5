"""Who sees what went in and came out: viewers see that and how, payload viewers see what; for every route that there is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import pytest

from agiwo.api import create_app
from agiwo.service.callers import ApiKey, ApiKeys, Caller
from agiwo.service.redaction import instance_for, step_for, veiled
from kit.api import World

SECRET = "marzipan"
BLIND, SEEING = ("viewer", "author", "approver", "finance"), ("payload_viewer", "operator", "admin")

DEAL = """\
workflow:
  id: deal
  version: "1.0"
  input_schema: {type: object, required: [what], properties: {what: {type: string}}}
  context: {kept: "{{ input.what }}"}
  state: {note: {reducer: replace, schema: {type: string}}}
  steps:
    - id: write
      type: llm_task
      task_prompt: "Write about {{ input.what }}"
      writes: {note: "{{ result }}"}
    - {id: maybe, type: tool_call, tool: debug.echo, when: "{{ input.what == 'no' }}", parameters: {value: 1}}
    - id: ask
      type: tool_call
      tool: debug.echo
      parameters: {value: "{{ input.what }} again"}
      approval: {title: "Take {{ input.what }}?", show: "{{ input.what }}", approvers: ["role:finance", "role:approver"]}
  output: {said: "{{ steps.ask.output }}"}
"""


@pytest.fixture(scope="module")
async def clients(world: World) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    keys = ApiKeys([ApiKey.of(role, f"key-of-{role}", roles=(role,)) for role in (*BLIND, *SEEING)])
    transport = httpx.ASGITransport(create_app(world.services, keys=keys))
    made = {
        role: httpx.AsyncClient(
            transport=transport, base_url="http://agiwo.test", headers={"authorization": f"Bearer key-of-{role}"}, timeout=30
        )
        for role in (*BLIND, *SEEING)
    }
    yield made
    for client in made.values():
        await client.aclose()


@pytest.fixture(scope="module")
async def deals(world: World) -> list[dict[str, Any]]:
    """One that waits for a person and one that has ended, both full of what nobody else shall see."""
    await world.publish(DEAL)
    world.model.answer = f"All about {SECRET}."
    made = []
    for decided in (False, True):
        view = await world.run("deal", input={"what": SECRET}, context={"more": SECRET})
        approval = view["waiting_for"][0]["approval_id"]
        if decided:
            body = {"comment": SECRET}
            assert (await world.client.post(f"/v1/approvals/{approval}/approve", json=body)).status_code == 200
            await world.services.following.settled(Caller("default", "key:ops"), UUID(view["instance_id"]), 20)
        made.append({"instance_id": view["instance_id"], "approval_id": approval, "workflow_id": "deal", "version": "1.0", "path": "write"})
    refused = await world.client.post("/v1/workflows/deal/trigger", json={"input": {"what": [SECRET]}})
    assert refused.status_code == 422
    return made


def reads(document: dict[str, Any]) -> list[str]:
    return [path for path, operations in document["paths"].items() if "get" in operations and path.startswith("/v1/")]


def addresses(path: str, deals: list[dict[str, Any]]) -> list[str]:
    out = []
    for deal in deals:
        try:
            out.append(path.format(**deal))
        except KeyError:
            return []
    return list(dict.fromkeys(out))


async def test_no_answer_shows_a_viewer_what_went_in_or_came_out(
    world: World, clients: dict[str, httpx.AsyncClient], deals: list[dict[str, Any]]
) -> None:
    document = (await world.anonymous.get("/openapi.json")).json()
    seen = set()
    for path in reads(document):
        for address in addresses(path, deals):
            if address.endswith("/events") and address.split("/")[3] != deals[1]["instance_id"]:
                continue  # it would go on
            for role in ("viewer", "author"):
                answer = await clients[role].get(address)
                assert SECRET not in answer.text, (role, address)
            if SECRET in (await clients["payload_viewer"].get(address)).text:
                seen.add(path)
    at = "/v1/instances/{instance_id}"
    assert {at, f"{at}/steps", f"{at}/steps/{{path}}", f"{at}/trace", f"{at}/history", f"{at}/events", "/v1/approvals",
            "/v1/approvals/{approval_id}", "/v1/admin/triggers"} <= seen  # fmt: skip


async def test_a_snapshot_event_is_veiled_too(clients: dict[str, httpx.AsyncClient], deals: list[dict[str, Any]]) -> None:
    at = f"/v1/instances/{deals[1]['instance_id']}/events?snapshot=true"
    assert SECRET not in (await clients["viewer"].get(at)).text
    assert SECRET in (await clients["operator"].get(at)).text


@pytest.mark.parametrize("role", SEEING)
async def test_operators_and_admins_see_payloads(clients: dict[str, httpx.AsyncClient], deals: list[dict[str, Any]], role: str) -> None:
    view = (await clients[role].get(f"/v1/instances/{deals[1]['instance_id']}")).json()
    assert (view["input"], view["output"]) == ({"what": SECRET}, {"said": f"{SECRET} again"})


@pytest.mark.parametrize("role", BLIND)
async def test_a_viewer_sees_states_sizes_and_digests(
    clients: dict[str, httpx.AsyncClient], deals: list[dict[str, Any]], role: str
) -> None:
    view = (await clients[role].get(f"/v1/instances/{deals[1]['instance_id']}")).json()
    assert (view["status"], view["steps"]["write"]["status"], view["error"]) == ("SUCCESS", "SUCCESS", None)
    assert view["input"] == veiled({"what": SECRET})
    assert view["input"]["size"] == len(json.dumps({"what": SECRET}, separators=(",", ":")))


@pytest.mark.parametrize(("role", "sees"), [("approver", True), ("finance", True), ("viewer", False), ("author", False)])
async def test_whoever_may_decide_sees_what_is_decided(
    clients: dict[str, httpx.AsyncClient], deals: list[dict[str, Any]], role: str, sees: bool
) -> None:
    for found in (
        (await clients[role].get(f"/v1/approvals/{deals[0]['approval_id']}")).json(),
        next(
            item
            for item in (await clients[role].get("/v1/approvals?status=pending")).json()["items"]
            if item["approval_id"] == deals[0]["approval_id"]
        ),
    ):
        assert (SECRET in json.dumps(found)) is sees
        assert found["title"] == (f"Take {SECRET}?" if sees else "ask")


def test_a_field_that_nobody_knows_is_veiled_and_errors_are_not() -> None:
    viewer = Caller("t", "key:v", frozenset({"viewer"}))
    view = {"status": "FAILED", "new": {"a": 1}, "error": {"type": "ToolError", "message": "why", "details": {"a": 1}}, "steps": {}}
    shown = instance_for(viewer, view)
    assert shown["new"] == veiled({"a": 1})
    assert shown["error"] == {"type": "ToolError", "message": "why", "details": veiled({"a": 1})}
    assert step_for(viewer, {"input": None, "output": False}) == {"input": None, "output": veiled(False)}
