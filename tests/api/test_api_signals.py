"""Signals over HTTP (REQ-03): early, late, repeated, to one instance and to all of a correlation key; and interrupts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kit.api import World

ORDER = """\
workflow:
  id: order
  version: "1.0"
  steps:
    - {id: a, type: tool_call, tool: debug.echo, parameters: {value: 1}}
    - {id: w, type: wait_for_signal, event: paid, match: "payload.amount | default(0) > 0", timeout: 1h}
  output: "{{ steps.w.output }}"
"""
ROW = """\
workflow:
  id: row
  version: "1.0"
  context: {seen: ""}
  steps:
    - {id: a, type: tool_call, tool: debug.echo, parameters: {value: 1}}
    - {id: b, type: tool_call, tool: debug.echo, parameters: {value: "{{ steps.a.output }}"}}
  output: "{{ steps.b.output }}"
"""
TELL = """\
workflow:
  id: tell
  version: "1.0"
  steps:
    - id: send
      type: tool_call
      tool: events.send
      parameters: {event: paid, payload: "{{ input.payload }}", to: {correlation_key: "{{ input.key }}"}}
      retry_policy: {max_attempts: 1}
  output: "{{ steps.send.output }}"
"""


@pytest.fixture
async def world(world: World) -> World:
    for text in (ORDER, ROW, TELL):
        await world.publish(text)
    return world


async def started(world: World, workflow: str = "order", **body: Any) -> str:
    answer = await world.client.post(f"/v1/workflows/{workflow}/trigger", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()["instance_id"]


async def settled(world: World, id: str, status: str) -> dict[str, Any]:
    """The instance once it has this status."""
    while (view := (await world.client.get(f"/v1/instances/{id}")).json())["status"] != status:
        assert view["ended_at"] is None, view
        await asyncio.sleep(0.01)
    return view


async def ended(world: World, id: str) -> dict[str, Any]:
    await world.client.get(f"/v1/instances/{id}/events")
    return (await world.client.get(f"/v1/instances/{id}")).json()


async def test_a_signal_ends_the_wait_and_its_payload_is_the_output(world: World) -> None:
    id = await started(world)
    view = await settled(world, id, "WAITING")
    (wait,) = view["waiting_for"]
    assert (wait["kind"], wait["path"], wait["events"], wait["href"]) == ("signal", "w", ["paid"], f"/v1/instances/{id}/signals")
    assert wait["until"] is not None
    assert {"signal", "cancel"} == {action["name"] for action in view["actions"]}
    sent = await world.client.post(wait["href"], json={"event": "paid", "payload": {"amount": 5}, "id": "p1", "reason": "bank said so"})
    assert (sent.status_code, sent.json()["receivers"][0]["result"]) == (202, "accepted")
    view = await ended(world, id)
    assert (view["status"], view["output"]) == ("SUCCESS", {"amount": 5})
    taken = view["steps"]["w"]["signal"]
    assert (taken["id"], taken["event"], taken["by"], taken["channel"]) == ("p1", "paid", "key:ops", "api")


async def test_an_early_signal_is_stored_visible_and_found(world: World) -> None:
    """REQ-03: sent at once after the trigger, many times over; it is never lost and used once."""
    for n in range(40):
        id = await started(world)
        sent = await world.client.post(f"/v1/instances/{id}/signals", json={"event": "paid", "payload": {"amount": n + 1}})
        assert sent.status_code == 202
        view = await ended(world, id)
        assert view["output"] == {"amount": n + 1}
        history = (await world.client.get(f"/v1/instances/{id}/history")).json()["items"]
        assert sum(record["type"] == "signal.received" for record in history) == 1
        assert sum(record["type"] == "step.signal_taken" for record in history) == 1


async def test_what_nobody_takes_is_shown_as_kept(world: World) -> None:
    id = await started(world)
    await settled(world, id, "WAITING")
    await world.client.post(f"/v1/instances/{id}/signals", json={"event": "other", "payload": 1, "id": "o1"})
    for path in ("", "/trace"):
        while not (kept := (await world.client.get(f"/v1/instances/{id}{path}")).json()["signals"]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert [(signal["signal_id"], signal["event"], signal["by"]) for signal in kept] == [("o1", "other", "key:ops")]


async def test_the_same_id_counts_once_and_gets_the_same_answer_even_after_the_end(world: World) -> None:
    id = await started(world)
    body = {"event": "paid", "payload": {"amount": 5}, "id": "p1"}
    answers = await asyncio.gather(*(world.client.post(f"/v1/instances/{id}/signals", json=body) for _ in range(5)))
    view = await ended(world, id)
    answers.append(await world.client.post(f"/v1/instances/{id}/signals", json=body))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.text for answer in answers}) == 1
    assert view["output"] == {"amount": 5}
    late = await world.client.post(f"/v1/instances/{id}/signals", json={**body, "id": "p2"})
    assert (late.status_code, late.json()["code"], late.json()["present_status"]) == (409, "ended", "SUCCESS")


async def test_a_correlation_key_reaches_every_live_instance_of_the_tenant(world: World) -> None:
    ids = [await started(world, correlation_key="k1") for _ in range(3)]
    over = await started(world, workflow="row", correlation_key="k1")
    await ended(world, over)
    sent = await world.client.post("/v1/signals", json={"event": "paid", "payload": {"amount": 1}, "correlation_key": "k1"})
    assert sent.status_code == 202
    assert [(one["instance_id"], one["result"]) for one in sent.json()["receivers"]] == [(id, "accepted") for id in sorted(ids)]
    assert {(await ended(world, id))["status"] for id in ids} == {"SUCCESS"}
    for client, key in ((world.client, "k1"), (world.client, "k9"), (world.stranger, "k1")):
        nobody = await client.post("/v1/signals", json={"event": "paid", "correlation_key": key})
        assert (nobody.status_code, nobody.json()["code"]) == (404, "no_receiver")


async def test_another_tenants_instance_looks_as_if_it_were_not_there(world: World) -> None:
    id = await started(world)
    for path in ("signals", "resume"):
        answer = await world.stranger.post(f"/v1/instances/{id}/{path}", json={"event": "paid"} if path == "signals" else {})
        assert (answer.status_code, answer.json()["code"]) == (404, "instance_not_found")


@pytest.mark.parametrize(
    ("body", "status", "place"),
    [
        ({}, 422, "/event"),
        ({"event": ""}, 422, "/event"),
        ({"event": "x" * 201}, 422, "/event"),
        ({"event": "x", "id": ""}, 422, "/id"),
        ({"event": "x", "data": 1}, 422, "/data"),
        ({"event": "x", "payload": "y" * 256_001}, 413, None),
    ],
    ids=str,
)
async def test_a_signal_that_cannot_be_kept_is_refused(world: World, body: dict[str, Any], status: int, place: str | None) -> None:
    id = await started(world)
    answer = await world.client.post(f"/v1/instances/{id}/signals", json=body)
    assert answer.status_code == status
    if place is not None:
        assert [error["pointer"] for error in answer.json()["errors"]] == [place]


async def test_a_dry_run_says_what_would_happen_and_sends_nothing(world: World) -> None:
    id = await started(world, correlation_key="k1")
    await settled(world, id, "WAITING")
    body = {"event": "paid", "payload": {"amount": 1}, "id": "p1"}
    for path, more in ((f"/v1/instances/{id}/signals", {}), ("/v1/signals", {"correlation_key": "k1"})):
        answer = await world.client.post(f"{path}?dry_run=true", json=body | more)
        assert (answer.status_code, answer.json()["dry_run"]) == (200, True)
        assert answer.json()["present"]["receivers"][0]["result"] == "accepted"
    assert (await world.client.get(f"/v1/instances/{id}")).json()["status"] == "WAITING"


async def test_an_instance_that_keeps_too_many_signals_refuses_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiwo.service.signalling.MOST_KEPT", 3)
    id = await started(world, correlation_key="full")
    await settled(world, id, "WAITING")
    for n in range(3):
        assert (await world.client.post(f"/v1/instances/{id}/signals", json={"event": "other", "id": f"n{n}"})).status_code == 202
    more = await world.client.post(f"/v1/instances/{id}/signals", json={"event": "other"})
    assert (more.status_code, more.json()["code"]) == (429, "too_many_signals")
    again = await world.client.post(f"/v1/instances/{id}/signals", json={"event": "other", "id": "n1"})
    assert again.status_code == 202
    many = await world.client.post("/v1/signals", json={"event": "other", "correlation_key": "full"})
    assert [one["result"] for one in many.json()["receivers"]] == ["full"]


async def test_a_step_sends_a_signal_that_counts_once(world: World) -> None:
    ids = [await started(world, correlation_key="told") for _ in range(2)]
    view = await world.run("tell", input={"key": "told", "payload": {"amount": 9}})
    assert view["status"] == "SUCCESS", view["error"]
    event = view["output"]["event"]
    assert (event["specversion"], event["type"], event["data"]) == ("1.0", "paid", {"amount": 9})
    assert event["source"].endswith(view["instance_id"])
    assert [one["instance_id"] for one in view["output"]["receivers"]] == sorted(ids)
    for id in ids:
        got = await ended(world, id)
        assert got["output"] == {"amount": 9}
        assert got["steps"]["w"]["signal"]["id"] == event["id"]
        assert got["steps"]["w"]["signal"]["by"] == f"step:{view['instance_id']}/send"
    failed = await world.run("tell", input={"key": "nobody", "payload": 1})
    assert (failed["status"], failed["error"]["type"]) == ("FAILED", "NotFound")


# ---------------------------------------------------------------- interrupts


@pytest.mark.parametrize(("where", "name", "stands"), [("before", "b", "b"), ("after", "a", "a")])
async def test_an_instance_stops_where_the_trigger_says_and_goes_on_by_resume(world: World, where: str, name: str, stands: str) -> None:
    view = await world.run("row", **{f"interrupt_{where}": [name]})
    assert (view["status"], view["interrupted_at"]) == ("WAITING", stands)
    assert view["steps"]["b"]["status"] == ("QUEUED" if where == "before" else "PENDING")
    assert {"resume", "cancel"} == {action["name"] for action in view["actions"]}
    assert view["waiting_for"] == [
        {"kind": "interrupt", "step": stands, "path": stands, "stopped": where, "href": f"/v1/instances/{view['instance_id']}/resume"}
    ]
    assert (await world.client.get(view["links"]["trace"])).json()["interrupted_at"] == stands
    dry = await world.client.post(f"/v1/instances/{view['instance_id']}/resume?dry_run=true", json={})
    assert (dry.status_code, dry.json()["dry_run"]) == (200, True)
    resumed = await world.client.post(f"/v1/instances/{view['instance_id']}/resume", json={"reason": "looks good"})
    assert resumed.status_code == 202
    over = await ended(world, view["instance_id"])
    assert (over["status"], over["output"], over["interrupted_at"]) == ("SUCCESS", 1, None)
    again = await world.client.post(f"/v1/instances/{view['instance_id']}/resume", json={})
    assert (again.status_code, again.json()["code"]) == (409, "not_interrupted")


async def test_two_resumes_let_it_go_from_one_place_only(world: World) -> None:
    view = await world.run("row", interrupt_before=["a", "b"])
    at = f"/v1/instances/{view['instance_id']}/resume"
    answers = await asyncio.gather(*(world.client.post(at, json={}) for _ in range(4)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    while (now := (await world.client.get(view["links"]["self"])).json())["interrupted_at"] != "b":
        assert now["ended_at"] is None
        await asyncio.sleep(0.01)
    assert (await world.client.post(f"/v1/instances/{view['instance_id']}/cancel", json={})).status_code == 202
    assert (await ended(world, view["instance_id"]))["status"] == "CANCELLED"


@pytest.mark.parametrize(("name", "near"), [("bb", "b"), ("nowhere", None), ("a~1", "a"), ("a~x", "a")])
async def test_a_step_that_is_not_there_cannot_be_stopped_at(world: World, name: str, near: str | None) -> None:
    answer = await world.client.post("/v1/workflows/row/trigger", json={"interrupt_after": ["a", name]})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert (problem["pointer"], problem["code"], problem.get("nearest")) == ("/interrupt_after/1", "unknown_step", near)
