"""Approvals over the API: who may decide, what counts, what is said to whoever comes second."""

from __future__ import annotations

import asyncio
from typing import Any

from kit.api import World


async def waiting(world: World, workflow: str = "report", **body: Any) -> tuple[dict[str, Any], str]:
    """An instance that waits, and where its approval is."""
    view = await world.run(workflow, **(body or {"input": {"week": "48"}}))
    return view, view["waiting_for"][0]["href"]


async def until_ended(world: World, view: dict[str, Any]) -> dict[str, Any]:
    await world.client.get(view["links"]["events"])
    return (await world.client.get(view["links"]["self"])).json()


async def test_what_waits_is_listed_and_shown(world: World) -> None:
    view, at = await waiting(world)
    page = (await world.client.get(f"/v1/approvals?status=pending&instance_id={view['instance_id']}")).json()
    assert [item["links"]["self"] for item in page["items"]] == [at]
    shown = (await world.client.get(at)).json()
    assert (shown["status"], shown["at"], shown["matter"], shown["editable"]) == ("pending", "after", "All went well.", True)
    assert shown["workflow_id"] == "report"


async def test_the_to_do_list_of_one_person_holds_only_theirs(world: World) -> None:
    _, at = await waiting(world, "gate", input={"to": "Bob", "amount": 1})
    hers = (await world.client.get("/v1/approvals?status=pending&assignee=user:ann@example.com")).json()["items"]
    assert at in [item["links"]["self"] for item in hers]
    assert (await world.client.get("/v1/approvals?assignee=user:eve@example.com")).json()["items"] == []


async def test_an_edited_text_goes_on_instead_of_the_written_one(world: World) -> None:
    view, at = await waiting(world)
    decided = await world.client.post(f"{at}/approve", json={"output": "Better.", "comment": "shorter"})
    assert decided.status_code == 200, decided.text
    assert decided.json()["decision"] | {"at": None} == {
        "action": "approve", "by": "key:ops", "at": None, "channel": "api", "comment": "shorter", "values": None, "output": "Better.",
    }  # fmt: skip
    ended = await until_ended(world, view)
    assert (ended["status"], ended["output"]) == ("SUCCESS", "Better.")
    assert ended["steps"]["write"]["approval"]["by"] == "key:ops"


async def test_a_rejection_takes_the_other_way(world: World) -> None:
    view, at = await waiting(world)
    assert (await world.client.post(f"{at}/reject", json={"comment": "no"})).status_code == 200
    ended = await until_ended(world, view)
    assert (ended["status"], ended["error"]["type"], ended["steps"]["say"]["status"]) == ("FAILED", "ApprovalRejected", "SKIPPED")


async def test_five_clicks_count_once_and_a_contrary_one_learns_who_was_first(world: World) -> None:
    view, at = await waiting(world)
    clicks = await asyncio.gather(*(world.client.post(f"{at}/approve", json={}) for _ in range(5)))
    assert {answer.status_code for answer in clicks} == {200}
    assert len({answer.json()["decision"]["at"] for answer in clicks}) == 1
    contrary = await world.client.post(f"{at}/reject")
    assert (contrary.status_code, contrary.json()["decided_by"], contrary.json()["action"]) == (409, "key:ops", "approve")
    ended = await until_ended(world, view)
    assert ended["steps"]["say"]["attempts"] == 1


async def test_a_form_that_does_not_fit_decides_nothing(world: World) -> None:
    view, at = await waiting(world, "gate", input={"to": "Bob", "amount": 10})
    for values in ({}, {"cost_centre": "x"}, None):
        answer = await world.client.post(f"{at}/approve", json={"values": values})
        assert (answer.status_code, answer.json()["code"]) == (422, "form_invalid")
        assert answer.json()["errors"][0]["pointer"] == "/values/cost_centre"
    assert (await world.client.get(at)).json()["status"] == "pending"
    assert (await world.client.post(f"{at}/decide", json={"action": "approve", "values": {"cost_centre": 7}})).status_code == 200
    ended = await until_ended(world, view)
    assert ended["steps"]["pay"]["approval"]["values"] == {"cost_centre": 7}


async def test_frozen_arguments_cannot_be_edited(world: World) -> None:
    _, at = await waiting(world, "gate", input={"to": "Bob", "amount": 10})
    answer = await world.client.post(f"{at}/approve", json={"values": {"cost_centre": 7}, "output": {"value": 1}})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "not_editable")


async def test_another_digest_is_412(world: World) -> None:
    _, at = await waiting(world)
    answer = await world.client.post(f"{at}/approve", json={"digest": "0" * 64})
    assert (answer.status_code, answer.json()["code"]) == (412, "approval_changed")
    digest = (await world.client.get(at)).json()["digest"]
    assert (await world.client.post(f"{at}/approve", json={"digest": digest})).status_code == 200


async def test_after_a_cancel_nobody_can_decide_any_more(world: World) -> None:
    view, at = await waiting(world)
    await world.client.post(f"{view['links']['self']}/cancel")
    await until_ended(world, view)
    answer = await world.client.post(f"{at}/approve")
    assert (answer.status_code, answer.json()["code"]) == (410, "approval_over")
