"""Calls that are answered later, over HTTP: by nobody's key, once, and never with the address in what is stored."""

from __future__ import annotations

import asyncio
from typing import Any

from kit.api import TAKEN_ON, World


async def taken_on(world: World) -> tuple[dict[str, Any], str]:
    """An instance that waits for its printer, and the address that the printer was given."""
    started = (await world.client.post("/v1/workflows/print/trigger", json={})).json()
    while True:
        view: dict[str, Any] = (await world.client.get(started["links"]["self"])).json()
        if view["status"] == "WAITING":
            break
    assert view["waiting_for"][0]["kind"] == "callback"
    return view, TAKEN_ON[view["instance_id"]].removeprefix("http://agiwo.test")


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
