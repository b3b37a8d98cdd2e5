"""Calls that are answered later, over HTTP: by nobody's key, once, and never with the address in what is stored."""

from __future__ import annotations

import asyncio
from typing import Any

from kit.api import PRINT, TAKEN_ON, World

AGAIN = PRINT.replace("id: print", "id: reprint").replace("test.print", "test.reprint")


async def taken_on(world: World, workflow: str = "print") -> tuple[dict[str, Any], str]:
    """An instance that waits for its printer, and the address that the printer was given."""
    started = (await world.client.post(f"/v1/workflows/{workflow}/trigger", json={})).json()
    return await waits(world, started["links"]["self"])


async def waits(world: World, at: str, before: str = "") -> tuple[dict[str, Any], str]:
    """The instance once it waits for its printer, by another address than `before`."""
    while True:
        view: dict[str, Any] = (await world.client.get(at)).json()
        address = TAKEN_ON.get(view["instance_id"], "").removeprefix("http://agiwo.test")
        if view["status"] == "WAITING" and address != before and view["waiting_for"][0]["kind"] == "callback":
            return view, address


async def ended(world: World, view: dict[str, Any]) -> dict[str, Any]:
    await world.client.get(view["links"]["events"])
    return (await world.client.get(view["links"]["self"])).json()


async def test_the_other_side_answers_without_a_key_and_the_flow_goes_on(world: World) -> None:
    view, at = await taken_on(world)
    said = await world.anonymous.post(at, json={"pages": 3})
    assert (said.status_code, said.json()) == (200, {"taken": True, "repeated": False})
    assert (await ended(world, view))["output"] == {"pages": 3}
    late = await world.anonymous.post(at, json={"pages": 3})
    assert (late.status_code, late.json()["code"]) == (410, "callback_over")


async def test_five_answers_at_once_count_once_and_another_one_is_a_conflict(world: World) -> None:
    """REQ-19."""
    view, at = await taken_on(world)
    said = await asyncio.gather(*(world.anonymous.post(at, json={"pages": 1}) for _ in range(5)))
    assert {answer.status_code for answer in said} <= {200, 410}
    assert sum(answer.status_code == 200 and not answer.json()["repeated"] for answer in said) == 1
    other = await world.anonymous.post(at, json={"pages": 2})
    assert other.status_code in (409, 410)
    assert (await ended(world, view))["output"] == {"pages": 1}


async def test_a_result_that_does_not_fit_is_refused_and_may_be_mended(world: World) -> None:
    view, at = await taken_on(world)
    wrong = await world.anonymous.post(at, json={"sheets": 3})
    assert (wrong.status_code, wrong.json()["errors"][0]["code"]) == (422, "missing")
    assert (await world.anonymous.post(at, json={"pages": 4})).status_code == 200
    assert (await ended(world, view))["output"] == {"pages": 4}


async def test_a_failure_is_a_failure_of_the_step(world: World) -> None:
    view, at = await taken_on(world)
    assert (await world.anonymous.post(f"{at}/heartbeat")).status_code == 200
    said = await world.anonymous.post(f"{at}/fail", json={"type": "ToolError", "message": "no paper", "details": {"tray": 2}})
    assert said.status_code == 200, said.text
    error = (await ended(world, view))["error"]
    assert (error["type"], error["message"], error["details"]) == ("ToolError", "no paper", {"tray": 2})


async def test_after_a_failure_the_next_attempt_is_answered_anew(world: World) -> None:
    """The same failure told twice fails one attempt; the address of an attempt takes one answer, that of the next another one."""
    await world.publish(AGAIN.replace("output_schema:", "retry_policy: {max_attempts: 3, delay: 0.01}\n      output_schema:"))
    view, first = await taken_on(world, "reprint")
    jam = {"type": "ToolError", "message": "paper jam"}
    assert (await world.anonymous.post(f"{first}/fail", json=jam)).json() == {"taken": True, "repeated": False}
    view, second = await waits(world, view["links"]["self"], first)
    assert (await world.anonymous.post(f"{first}/fail", json=jam)).json() == {"taken": True, "repeated": True}
    assert (await world.anonymous.post(first, json={"pages": 1})).status_code == 409
    assert (await world.anonymous.post(f"{second}/fail", json=jam)).json() == {"taken": True, "repeated": False}
    view, third = await waits(world, view["links"]["self"], second)
    assert (await world.anonymous.post(third, json={"pages": 3})).json() == {"taken": True, "repeated": False}
    assert (await ended(world, view))["output"] == {"pages": 3}


async def test_nobody_is_told_that_an_answer_was_taken_which_changes_nothing(world: World) -> None:
    """Once the fallback is taken, an answer to the call before it is too late."""
    fallback = "retry_policy: {max_attempts: 1}\n      fallback: {tool: test.pay, parameters: {amount: 1}}"
    text = AGAIN.replace("id: reprint", "id: insist").replace("output_schema:", f"{fallback}\n      output_schema:")
    await world.publish(text)
    view, at = await taken_on(world, "insist")
    assert (await world.anonymous.post(f"{at}/fail", json={})).status_code == 200
    while (await world.client.get(view["links"]["self"])).json()["status"] == "WAITING":
        pass
    late = await world.anonymous.post(f"{at}/heartbeat")
    assert (late.status_code, late.json()["code"]) == (410, "callback_over")


async def test_an_address_that_is_not_ours_is_not_found(world: World) -> None:
    view, at = await taken_on(world)
    for wrong in (at[:-4] + "AAAA", "/v1/callbacks/x", at.replace("/v1/callbacks/", "/v1/callbacks/AA")):
        assert (await world.anonymous.post(wrong, json={})).status_code == 404
    assert (await world.anonymous.post(at, content="{", headers={"content-type": "application/json"})).status_code == 400
    assert (await world.client.get(view["links"]["self"])).json()["status"] == "WAITING"


async def test_the_address_stands_in_nothing_that_is_stored_or_shown(world: World) -> None:
    """REQ-28: whoever has the address may answer, so it is kept as a secret is."""
    view, at = await taken_on(world)
    token = at.rpartition("/")[2]
    for page in ("self", "steps", "history"):
        if page in view["links"]:
            assert token not in (await world.client.get(view["links"][page])).text
    assert token not in str(view)
