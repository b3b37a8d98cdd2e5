"""A call of which nobody knows whether it was done: a person says so, once, and only what fits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agiwo.service.callers import Caller
from kit.api import World


async def in_doubt(world: World) -> tuple[dict[str, Any], str]:
    """An instance at an UNKNOWN step, and where its outcome is decided."""
    view = await world.run("pay", input={"amount": 3})
    assert (view["status"], view["interrupted_at"]) == ("WAITING", "pay")
    assert view["steps"]["pay"]["status"] == "UNKNOWN"
    action = next(action for action in view["actions"] if action["name"] == "reconcile")
    assert action["href"] == view["waiting_for"][0]["href"]
    return view, action["href"]


async def test_done_with_its_result_goes_on_with_that_result(world: World) -> None:
    view, at = await in_doubt(world)
    misfit = await world.client.post(at, json={"done": True, "result": "paid"})
    assert (misfit.status_code, misfit.json()["errors"][0]["pointer"]) == (422, "/result")
    assert (await world.client.post(at, json={"done": "yes"})).status_code == 422
    assert (await world.client.post(at, json={"done": True, "result": {"id": 7}, "reason": "seen in the bank"})).status_code == 202
    await world.client.get(view["links"]["events"])
    ended = (await world.client.get(view["links"]["self"])).json()
    assert (ended["status"], ended["output"], ended["steps"]["pay"]["marks"]) == ("SUCCESS", {"id": 7}, ["set_by_person"])
    again = await world.client.post(at, json={"done": False})
    assert (again.status_code, again.json()["present_status"]) == (409, "SUCCESS")


async def test_not_done_makes_the_call_again_and_each_attempt_has_an_outcome_of_its_own(world: World) -> None:
    view, at = await in_doubt(world)
    assert (await world.client.post(at, json={"done": False})).status_code == 202
    caller = Caller("default", "key:ops")
    async for batch in world.services.following.records(caller, UUID(view["instance_id"]), view["seq"]):
        if any(record["type"] == "step.unknown" for record in batch):
            break
    again = (await world.client.get(view["links"]["self"])).json()
    assert (again["steps"]["pay"]["status"], again["steps"]["pay"]["attempts"]) == ("UNKNOWN", 2)
    assert (await world.client.post(at, json={"done": True, "result": {}})).status_code == 202
    await world.client.get(view["links"]["events"])
    assert (await world.client.get(view["links"]["self"])).json()["status"] == "SUCCESS"


async def test_only_an_unknown_step_has_an_outcome_to_decide(world: World) -> None:
    view = await world.run("report", input={"week": "1"})
    at = view["links"]["steps"]
    answer = await world.client.post(f"{at}/write/reconcile", json={"done": True})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_unknown")
    assert {action["name"] for action in answer.json()["actions"]} == {"approve", "reject", "cancel"}
    assert (await world.client.post(f"{at}/nosuch/reconcile", json={"done": True})).status_code == 404
