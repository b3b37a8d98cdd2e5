"""What operators look at: traces by every filter, their sums, nodes, queues, the audit trail, and whether the promises hold."""

from __future__ import annotations

from typing import Any, cast

import asyncpg
import pytest

from agiwo.ports.oversight import Oversight, Violation
from agiwo.service.callers import ADMIN, Caller
from agiwo.service.oversight import Overseeing
from agiwo.store.oversight import CHECKS
from agiwo.store.statements import STATEMENTS
from kit.api import World


async def found(world: World, query: str = "") -> list[dict[str, Any]]:
    said = await world.client.get(f"/v1/admin/traces?limit=200{query}")
    assert said.status_code == 200, said.text
    items: list[dict[str, Any]] = said.json()["items"]
    return items


async def test_a_trace_is_found_by_each_filter_and_by_all_of_them(world: World) -> None:
    trace = "5e" * 16
    said = await world.client.post(
        "/v1/workflows/echo/trigger?wait=20s",
        json={"input": {}, "labels": {"team": "blue"}, "correlation_key": "order-7"},
        headers={"traceparent": f"00-{trace}-{'1' * 16}-01"},
    )
    id, started = said.json()["instance_id"], said.json()["started_at"]
    await world.run("echo")
    for query in (
        f"&trace_id={trace}", "&correlation_key=order-7", "&label=team:blue", "&workflow=echo", "&version=1.0&label=team:blue",
        "&started_by=key:ops", "&status=SUCCESS", f"&since={started.replace('+', '%2B')}",
        f"&status=SUCCESS&workflow=echo&version=1.0&trace_id={trace}&correlation_key=order-7&label=team:blue&started_by=key:ops",
    ):  # fmt: skip
        assert id in [item["instance_id"] for item in await found(world, query)], query
    for query in (
        f"&trace_id={'0' * 31}1", "&correlation_key=order-8", "&label=team:red", "&workflow=report", "&version=2", "&status=FAILED",
        "&started_by=key:nobody", f"&until={started.replace('+', '%2B')}", "&error=Timeout",
    ):  # fmt: skip
        assert id not in [item["instance_id"] for item in await found(world, query)], query
    (item,) = await found(world, f"&trace_id={trace}")
    assert item["seconds"] >= 0
    listed = (await world.client.get(f"/v1/instances?trace_id={trace}")).json()["items"]
    assert [row["instance_id"] for row in listed] == [id]


async def test_a_failure_is_found_by_its_type_and_counted(world: World) -> None:
    view = await world.run("report", input={"week": "1"})
    at = view["waiting_for"][0]["href"]
    await world.client.post(f"{at}/reject", json={})
    await world.client.get(view["links"]["events"])
    assert view["instance_id"] in [item["instance_id"] for item in await found(world, "&error=ApprovalRejected")]
    sums = (await world.client.get("/v1/admin/traces/summary?workflow=report")).json()
    assert sums["by_error"]["ApprovalRejected"] >= 1
    assert sums["by_status"]["FAILED"] >= 1
    assert set(sums["by_workflow"]) == {"report"}
    assert sums["counted"] == sum(sums["by_status"].values())
    assert 0 <= sums["seconds"]["p50"] <= sums["seconds"]["max"]
    assert sums["more"] is False


async def test_pages_of_a_filter_without_an_index_hold_every_match_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REQ-37, REQ-45: a page looks at a bounded window; short pages lead on to the next."""
    monkeypatch.setattr("agiwo.store.queries.WINDOW", 3)
    wanted = [(await world.run("echo", labels={"page": "yes"}))["instance_id"]]
    for _ in range(5):
        await world.run("echo")
    wanted.append((await world.run("echo", labels={"page": "yes"}))["instance_id"])
    seen: list[str] = []
    cursor, pages = "", 0
    while True:
        page = (await world.client.get(f"/v1/admin/traces?label=page:yes&limit=2{cursor}")).json()
        seen += [item["instance_id"] for item in page["items"]]
        pages += 1
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == wanted[::-1]
    assert pages >= 3


@pytest.mark.parametrize("query", [
    "since=2024-13-01T00:00:00Z", "since=2024-01-01T00:00:00", "until=x", "trace_id=abc", "status=GONE", "label=x", "label=a:1&label=a:2",
    "error=", "sort=id", "limit=0",
])  # fmt: skip
async def test_bad_filters_are_refused_by_name(world: World, query: str) -> None:
    """REQ-36."""
    for path in ("/v1/admin/traces", "/v1/instances"):
        said = await world.client.get(f"{path}?{query}")
        assert said.status_code == 422, (path, said.status_code, said.text)


async def test_a_node_shows_what_it_holds_and_queues_what_lies_about(world: World) -> None:
    await world.run("report", input={"week": "2"})
    nodes = (await world.client.get("/v1/admin/nodes")).json()["items"]
    assert [(node["name"], node["state"]) for node in nodes if node["name"] == "api-tests"] == [("api-tests", "alive")]
    queues = (await world.client.get("/v1/admin/queues")).json()
    assert queues["approvals"] >= 1
    assert (await world.stranger.get("/v1/admin/queues")).json()["approvals"] == 0


async def test_the_audit_trail_tells_who_what_and_why_to_admins_of_that_tenant(world: World) -> None:
    view = await world.run("report", input={"week": "3"})
    await world.client.post(f"/v1/instances/{view['instance_id']}/cancel", json={"reason": "not needed"})
    (entry,) = (await world.client.get(f"/v1/admin/audit?object=instance/{view['instance_id']}&action=cancel")).json()["items"]
    assert (entry["actor"], entry["action"], entry["reason"]) == ("key:ops", "cancel", "not needed")
    assert (await world.stranger.get(f"/v1/admin/audit?object=instance/{view['instance_id']}")).json()["items"] == []


async def test_invariants_hold_and_a_broken_one_is_named(world: World, module_database: str) -> None:
    view = await world.run("report", input={"week": "4"})
    good = (await world.client.get("/v1/admin/invariants")).json()
    assert good["hold"], good
    connection = await asyncpg.connect(module_database)
    try:
        await connection.execute("DELETE FROM agiwo.run WHERE id = $1", view["instance_id"])
        bad = (await world.client.get("/v1/admin/invariants")).json()
        broken = {check["name"]: check for check in bad["checks"] if not check["holds"]}
        assert not bad["hold"]
        assert list(broken) == ["no_approval_outlives_its_instance"]
        assert "people may still answer" in broken["no_approval_outlives_its_instance"]["meaning"]
        other = await world.run("report", input={"week": "4b"})
        await connection.execute("UPDATE agiwo.run SET due_at = 'infinity' WHERE id = $1", other["instance_id"])
        await connection.execute("UPDATE agiwo.instance SET waiting_for = NULL WHERE id = $1", other["instance_id"])
        checks = {check["name"]: check for check in (await world.client.get("/v1/admin/invariants")).json()["checks"]}
        assert checks["nobody_waits_for_nothing"]["broken_by"] == [other["instance_id"]]
        await world.client.post(f"/v1/instances/{other['instance_id']}/cancel", json={})
    finally:
        await connection.execute("DELETE FROM agiwo.approval WHERE instance_id = $1", view["instance_id"])
        await connection.close()


@pytest.mark.parametrize(("promise", "change"), [
    ("no_owner_is_gone", "owner = -1"),
    ("nothing_due_is_left_lying", "owner = NULL, due_at = now() - interval '2 minutes'"),
    ("no_live_row_of_an_ended_instance", "owner = -1"),
])  # fmt: skip
async def test_a_tenant_learns_that_a_promise_is_broken_and_not_by_whose_instances(
    world: World, module_database: str, promise: str, change: str
) -> None:
    """Tenants are apart in every query, in those over the whole service too."""
    id = (await world.run("report", input={"week": "6"}))["instance_id"]
    connection = await asyncpg.connect(module_database)
    undone = connection.transaction()
    await undone.start()
    try:
        await connection.execute(f"UPDATE agiwo.run SET {change} WHERE id = $1", id)
        await connection.execute("UPDATE agiwo.instance SET ended_at = now(), status = 'FAILED', waiting_for = NULL WHERE id = $1", id)
        found = {tenant: await connection.fetch(STATEMENTS[CHECKS[promise]].text, 20, tenant) for tenant in ("default", "other")}
    finally:
        await undone.rollback()
        await connection.close()
    assert [str(row["id"]) for row in found["default"]] == [id]
    assert [row["id"] for row in found["other"]] == [None]


async def test_what_breaks_a_promise_elsewhere_is_told_without_a_name() -> None:
    class Broken:
        async def violations(self, tenant: str, limit: int) -> list[Violation]:
            return [Violation("no_owner_is_gone", True, ()), Violation("no_gap_in_a_history", False, ())]

    said = await Overseeing(cast("Oversight", Broken()), list).invariants(Caller("other", "key:other", frozenset({ADMIN})))
    assert not said["hold"]
    assert [(check["holds"], check["broken_by"]) for check in said["checks"]] == [(False, []), (True, [])]


async def test_limits_say_what_is_taken_of_them(world: World) -> None:
    view = await world.run("report", input={"week": "5"})
    said = (await world.client.get("/v1/admin/limits")).json()
    assert said["node"] == "api-tests"
    items = {item["name"]: item for item in said["items"]}
    assert set(items) == {"instances", "uncommitted_steps", "tool_threads", "tool_processes"}
    assert all(0 <= item["in_use"] <= item["limit"] for item in items.values())
    assert view["status"] == "WAITING"


async def test_an_operator_holds_a_circuit_open_sees_it_and_closes_it(world: World) -> None:
    at = "/v1/admin/breakers/http.request"
    assert (await world.client.post(f"{at}/reset?key=shop.example.com", json={})).status_code == 404
    tried = await world.client.post(f"{at}/open?key=shop.example.com&dry_run=true", json={"seconds": 60})
    assert (tried.status_code, tried.json()["dry_run"]) == (200, True)
    assert (await world.client.get("/v1/admin/breakers")).json()["items"] == []
    assert (await world.client.post(f"{at}/open?key=shop.example.com", json={"seconds": 60, "reason": "moving"})).status_code == 200
    (circuit,) = (await world.client.get("/v1/admin/breakers")).json()["items"]
    assert (circuit["name"], circuit["key"], circuit["state"]) == ("http.request", "shop.example.com", "open")
    assert (await world.stranger.get("/v1/admin/breakers")).json()["items"] == []
    assert (await world.stranger.post(f"{at}/reset?key=shop.example.com", json={})).status_code == 404
    assert (await world.client.post(f"{at}/open", json={"seconds": 0})).status_code == 422
    assert (await world.client.post(f"{at}/reset?key=shop.example.com", json={"reason": "back"})).json()["state"] == "closed"
    assert (await world.client.get("/v1/admin/breakers")).json()["items"] == []
