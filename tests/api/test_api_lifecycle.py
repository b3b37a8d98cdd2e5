"""The life of definitions: drafts, default and deprecated versions, pause and resume, deletion, the list."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from agiwo.clock import SystemClock
from agiwo.errors import Conflict, NotFound
from agiwo.service.callers import Caller
from agiwo.service.definitions import Catalog
from agiwo.service.trigger import TriggerCall, Triggering
from agiwo.store.pool import service_engine
from agiwo.store.records import PostgresRecords
from agiwo.store.workflows import PostgresWorkflows
from kit.api import ECHO, World

YAML = {"content-type": "application/yaml"}


def text(id: str, version: str = "1.0", word: str = "hello") -> str:
    return ECHO.replace("id: echo", f"id: {id}").replace('"1.0"', f'"{version}"').replace("hello", word)


async def published(world: World, id: str, *versions: str) -> str:
    for version in versions:
        await world.publish(text(id, version))
    return f"/v1/workflows/{id}"


async def status_of(world: World, method: str, path: str, **more: Any) -> tuple[int, str]:
    answer = await world.client.request(method, path, **more)
    return answer.status_code, answer.json().get("code", "")


# --- marks -----------------------------------------------------------------------------------------------------------


async def test_a_trigger_takes_the_default_version_else_the_highest_that_is_not_deprecated(world: World) -> None:
    at = await published(world, "chosen", "1.0", "1.1", "2.0-rc")
    assert (await world.client.get(at)).json()["version"] == "1.1"
    marked = await world.client.post(f"{at}/default", json={"version": "1.0", "reason": "1.1 is slow"})
    assert (marked.status_code, marked.json()["version"], marked.json()["default"]) == (200, "1.0", "1.0")
    assert (await world.run("chosen"))["version"] == "1.0"
    unmarked = await world.client.post(f"{at}/default", json={"version": None})
    assert (unmarked.json()["version"], unmarked.json()["default"]) == ("1.1", None)
    assert (await world.client.post(f"{at}/deprecate", json={"version": "1.1"})).json()["deprecated"] is True
    assert (await world.run("chosen"))["version"] == "1.0"
    assert (await world.client.post(f"{at}/deprecate", json={"version": "1.1", "deprecated": False})).json()["deprecated"] is False
    assert (await world.run("chosen"))["version"] == "1.1"
    versions = (await world.client.get(f"{at}/versions")).json()["items"]
    assert [(v["version"], v["default"], v["deprecated"]) for v in versions] == [
        ("2.0-rc", False, False), ("1.1", False, False), ("1.0", False, False),
    ]  # fmt: skip


async def test_pages_of_versions_hold_each_once_though_the_last_of_a_page_is_deleted(world: World) -> None:
    """REQ-45: no list is without an end, and its pages neither repeat nor miss a row."""
    at = await published(world, "many", *(f"1.{number}" for number in range(7)))
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await world.client.get(f"{at}/versions?limit=3{cursor}")).json()
        seen += [line["version"] for line in page["items"]]
        if page["next_cursor"] is None:
            break
        assert (await world.client.delete(f"{at}/versions/{seen[-1]}")).status_code == 200
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == ["1.6", "1.5", "1.4", "1.3", "1.2", "1.1", "1.0"]
    assert (await world.client.get("/v1/workflows/many2/versions?limit=3")).status_code == 404
    assert (await world.client.get(f"/v1/workflows/echo/versions?limit=3{cursor}")).status_code in (400, 422)


async def test_a_deprecated_version_that_is_named_starts_with_a_warning(world: World) -> None:
    at = await published(world, "old", "1.0")
    await world.client.post(f"{at}/deprecate", json={"version": "1.0"})
    assert await status_of(world, "POST", f"{at}/trigger", json={}) == (404, "no_default_version")
    started = await world.client.post(f"{at}/trigger", json={"version": "1.0"})
    assert (started.status_code, [w["code"] for w in started.json()["warnings"]]) == (202, ["version_deprecated"])
    await world.client.post(f"{at}/deprecate", json={"version": "1.0", "deprecated": False})
    assert "warnings" not in (await world.client.post(f"{at}/trigger", json={"version": "1.0"})).json()


async def test_marks_on_what_is_not_there_are_refused(world: World) -> None:
    at = await published(world, "marked", "1.0")
    assert await status_of(world, "POST", f"{at}/default", json={"version": "9"}) == (404, "version_not_found")
    assert await status_of(world, "POST", f"{at}/deprecate", json={"version": "9"}) == (404, "version_not_found")
    assert await status_of(world, "POST", f"{at}/default", json={}) == (422, "invalid_input")
    assert await status_of(world, "POST", "/v1/workflows/nosuch/default", json={"version": None}) == (404, "workflow_not_found")


# --- pause -----------------------------------------------------------------------------------------------------------


async def test_a_paused_workflow_starts_nothing_and_says_who_paused_it_why_and_how_it_goes_on(world: World) -> None:
    at = await published(world, "halted", "1.0")
    paused = await world.client.post(f"{at}/pause", json={"reason": "the bank is closed"})
    assert paused.status_code == 200
    assert (paused.json()["paused"]["by"], paused.json()["paused"]["reason"]) == ("key:ops", "the bank is closed")
    again = await world.client.post(f"{at}/pause", json={"reason": "another"})
    assert again.json()["paused"] == paused.json()["paused"]
    refused = await world.client.post(f"{at}/trigger", json={}, headers={"idempotency-key": "while-paused"})
    body = refused.json()
    assert (refused.status_code, body["code"], body["present_status"]) == (409, "workflow_paused", "PAUSED")
    assert (body["paused_by"], body["reason"], body["paused_since"]) == ("key:ops", "the bank is closed", paused.json()["paused"]["since"])
    assert [action["href"] for action in body["actions"]] == [f"{at}/resume"]
    assert await status_of(world, "POST", f"{at}/trigger?dry_run=true", json={}) == (409, "workflow_paused")
    kept = (await world.client.get("/v1/admin/triggers?workflow=halted")).json()["items"]
    assert [row["code"] for row in kept] == ["workflow_paused"]
    assert (await world.client.post(f"{at}/resume", json={"reason": "open"})).json()["paused"] is None
    started = await world.client.post(f"{at}/trigger", json={}, headers={"idempotency-key": "while-paused"})
    assert started.status_code == 202
    assert (await world.client.post(f"{at}/resume")).status_code == 200


async def test_instances_that_run_go_on_while_their_workflow_is_paused(world: World) -> None:
    running = await world.run("report", input={"week": "1"})
    await world.client.post("/v1/workflows/report/pause")
    try:
        approval = running["waiting_for"][0]["approval_id"]
        assert (await world.client.post(f"/v1/approvals/{approval}/approve")).status_code == 200
        events = await world.client.get(f"{running['links']['self']}/events")
        assert "event: instance.ended" in events.text
        assert (await world.client.get(running["links"]["self"])).json()["status"] == "SUCCESS"
    finally:
        await world.client.post("/v1/workflows/report/resume")


async def test_once_a_pause_is_answered_no_node_starts_anything_more(world: World) -> None:
    at = await published(world, "stormy", "1.0")
    answered = asyncio.Event()
    after: list[int] = []

    async def storm() -> None:
        while len(after) < 5 or not answered.is_set():
            late = answered.is_set()
            status = (await world.client.post(f"{at}/trigger", json={})).status_code
            if late:
                after.append(status)

    storms = [asyncio.create_task(storm()) for _ in range(4)]
    assert (await world.client.post(f"{at}/pause")).status_code == 200
    answered.set()
    await asyncio.gather(*storms)
    assert set(after) == {409}


# --- other nodes -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def elsewhere(world: World, module_database: str) -> Any:
    """The verb `trigger` as another process has it, whose caches know nothing of what is done here."""
    pool = service_engine(module_database)
    records = PostgresRecords(pool)
    catalog = Catalog(records, world.services.tools, SystemClock(), fresh=3600.0)
    yield Triggering(catalog, world.engine, records, PostgresWorkflows(pool), SystemClock(), Random(3))
    await pool.dispose()


CALLER = Caller("default", "key:elsewhere", frozenset({"operator"}))


def call(workflow: str, version: str | None = None) -> TriggerCall:
    return TriggerCall(workflow, "0" * 32, version=version)


async def test_a_node_with_old_caches_starts_no_paused_workflow_and_no_deleted_version(world: World, elsewhere: Triggering) -> None:
    """REQ-22: a deleted version is never started, whatever a process remembers."""
    at = await published(world, "remembered", "1.0", "1.1")
    # Only what has no instance can be deleted: these are known to the other node by dry runs.
    assert await elsewhere.tried(CALLER, call("remembered")) == "1.1"
    assert await elsewhere.tried(CALLER, call("remembered", "1.0")) == "1.0"
    await world.client.post(f"{at}/pause")
    with pytest.raises(Conflict, match="is paused by key:ops"):
        await elsewhere.trigger(CALLER, call("remembered"))
    await world.client.post(f"{at}/resume")
    assert (await world.client.delete(f"{at}/versions/1.1")).status_code == 200
    assert (await elsewhere.trigger(CALLER, call("remembered"))).version == "1.0"
    with pytest.raises(NotFound):
        await elsewhere.trigger(CALLER, call("remembered", "1.1"))


# --- deletion --------------------------------------------------------------------------------------------------------


async def test_what_is_used_is_not_deleted_and_the_refusal_names_what_hangs_on_it(world: World) -> None:
    """REQ-22: deleting a version while an instance waits is refused, and the instance goes on."""
    await world.publish("workflow: {id: waits, version: '1', steps: [{id: w, type: wait, duration: 1h}]}")
    running = await world.client.post("/v1/workflows/waits/trigger", json={})
    id = running.json()["instance_id"]
    for path in ("/v1/workflows/waits/versions/1", "/v1/workflows/waits"):
        for dry in ("", "?dry_run=true"):
            answer = await world.client.delete(path + dry)
            body = answer.json()
            assert (answer.status_code, body["code"], body["live"], body["instances"]) == (409, "in_use", 1, [id])
            assert {action["name"] for action in body["actions"]} == {"deprecate", "pause"}
    assert (await world.client.get(f"/v1/instances/{id}")).status_code == 200
    await world.client.post(f"/v1/instances/{id}/cancel")
    await world.client.get(f"/v1/instances/{id}/events")
    ended = (await world.client.delete("/v1/workflows/waits/versions/1")).json()
    assert (ended["code"], ended["live"], ended["ended"]) == ("in_use", 0, True)
    assert (await world.client.get(f"/v1/instances/{id}")).json()["status"] == "CANCELLED"


async def test_a_version_is_deleted_and_its_name_stands_for_its_content(world: World) -> None:
    at = await published(world, "removed", "1.0", "1.1")
    await world.client.post(f"{at}/default", json={"version": "1.1"})
    assert await status_of(world, "DELETE", f"{at}/versions/1.1") == (409, "is_default")
    await world.client.post(f"{at}/default", json={"version": None})
    tried = await world.client.delete(f"{at}/versions/1.1?dry_run=true&reason=r")
    assert (tried.json()["dry_run"], tried.json()["versions"], tried.json()["reason"]) == (True, ["1.1"], "r")
    assert (await world.client.delete(f"{at}/versions/1.1?reason=broken")).json()["versions"] == ["1.1"]
    for path in (f"{at}/versions/1.1", f"{at}/graph?version=1.1"):
        assert await status_of(world, "GET", path) == (404, "version_not_found")
    assert await status_of(world, "DELETE", f"{at}/versions/1.1") == (404, "version_not_found")
    assert await status_of(world, "POST", f"{at}/trigger", json={"version": "1.1"}) == (404, "version_not_found")
    for dry in ("", "?dry_run=true"):
        other = text("removed", "1.1", "other")
        assert await status_of(world, "POST", f"/v1/workflows{dry}", content=other, headers=YAML) == (409, "version_deleted")
    assert (await world.publish(text("removed", "1.1")))["published"] == "created"
    assert (await world.run("removed"))["version"] == "1.1"
    assert (await world.client.delete(f"{at}/versions/1.0")).status_code == 200


async def test_a_whole_workflow_is_deleted(world: World) -> None:
    at = await published(world, "vanishing", "1.0", "1.1")
    await world.client.post(f"{at}/default", json={"version": "1.1"})
    gone = await world.client.delete(at)
    assert (gone.status_code, sorted(gone.json()["versions"])) == (200, ["1.0", "1.1"])
    assert await status_of(world, "GET", at) == (404, "workflow_not_found")
    assert await status_of(world, "DELETE", at) == (404, "workflow_not_found")
    assert await status_of(world, "POST", f"{at}/trigger", json={}) == (404, "workflow_not_found")


# --- drafts ----------------------------------------------------------------------------------------------------------

BROKEN = "workflow:\n  id: sketch\n  version: '0.1'\n  steps:\n    - {id: a, type: tool_call, tool: nosuch.tool}\n"


async def test_a_draft_keeps_its_mistakes_is_replaced_at_will_and_cannot_be_started(world: World) -> None:
    path = "/v1/workflows?draft=true"
    saved = await world.client.post(path, content=BROKEN, headers=YAML)
    assert (saved.status_code, saved.json()["published"]) == (201, "draft")
    assert [p["code"] for p in saved.json()["problems"] if p["severity"] == "error"] == ["unknown_tool"]
    assert saved.headers["location"] == "/v1/workflows/sketch/drafts/0.1"
    assert (await world.client.post(path, content=BROKEN + "# more\n", headers=YAML)).json()["published"] == "draft_replaced"
    listed = (await world.client.get("/v1/workflows/sketch/drafts")).json()["items"]
    assert [(d["version"], d["errors"], d["saved_by"]) for d in listed] == [("0.1", 1, "key:ops")]
    assert (await world.client.get("/v1/workflows/sketch/drafts/0.1?format=yaml")).text == BROKEN + "# more\n"
    assert [p["line"] for p in (await world.client.get("/v1/workflows/sketch/drafts/0.1")).json()["problems"]] == [5]
    assert await status_of(world, "POST", "/v1/workflows/sketch/trigger", json={"version": "0.1"}) == (404, "version_not_found")
    assert await status_of(world, "GET", "/v1/workflows/sketch") == (404, "workflow_not_found")
    await world.publish(BROKEN.replace("nosuch.tool", "time.now"))
    assert (await world.client.get("/v1/workflows/sketch/drafts")).json() == {"items": [], "next_cursor": None}
    assert await status_of(world, "POST", path, content=BROKEN, headers=YAML) == (409, "version_exists")


async def test_a_draft_is_thrown_away_and_one_without_a_name_is_refused(world: World) -> None:
    path = "/v1/workflows?draft=true"
    tried = await world.client.post(f"{path}&dry_run=true", content=BROKEN.replace("0.1", "0.2"), headers=YAML)
    assert (tried.status_code, tried.json()["published"]) == (200, "draft")
    at = "/v1/workflows/sketch/drafts/0.2"
    assert await status_of(world, "GET", at) == (404, "draft_not_found")
    await world.client.post(path, content=BROKEN.replace("0.1", "0.2"), headers=YAML)
    assert (await world.client.delete(f"{at}?dry_run=true")).json()["dry_run"] is True
    assert (await world.client.delete(at)).status_code == 200
    assert await status_of(world, "DELETE", at) == (404, "draft_not_found")
    for nameless in ("steps: []", "workflow: {id: a b, version: '1'}", "workflow: {id: ab, version: x}", "[", "workflow: {id: [1]}"):
        answer = await world.client.post(path, content=nameless, headers=YAML)
        assert (answer.status_code, answer.json()["code"]) == (422, "draft_unnamed"), nameless


# --- the list, tenants, roles ----------------------------------------------------------------------------------------


async def test_workflows_are_paged_by_name_with_what_a_trigger_takes(world: World) -> None:
    """REQ-37: every workflow once, however small the pages."""
    for n in range(7):
        await published(world, f"paged_{n}", "1.0", "2.0-x")
    await world.client.post("/v1/workflows/paged_3/pause", json={"reason": "r"})
    found: list[Any] = []
    cursor = ""
    while True:
        page = (await world.client.get(f"/v1/workflows?q=PAGED_&limit=3{cursor}")).json()
        found += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert [(w["workflow_id"], w["version"], w["newest"], w["version_count"]) for w in found] == [
        (f"paged_{n}", "1.0", "2.0-x", 2) for n in range(7)
    ]
    assert [w["workflow_id"] for w in found if w["paused"]] == ["paged_3"]
    assert [action["name"] for action in found[3]["actions"]] == ["resume"]


async def test_another_tenants_workflows_look_like_none(world: World) -> None:
    """REQ-46 on every verb of a definition's life."""
    at = await published(world, "private", "1.0")
    await world.client.post("/v1/workflows?draft=true", content=text("private", "2.0"), headers=YAML)
    calls: list[tuple[str, str, Any]] = [
        ("POST", "default", {"version": "1.0"}), ("POST", "deprecate", {"version": "1.0"}), ("POST", "pause", {}), ("POST", "resume", {}),
        ("DELETE", "versions/1.0", None), ("DELETE", "", None), ("GET", "drafts/2.0", None), ("DELETE", "drafts/2.0", None),
    ]  # fmt: skip
    for method, what, body in calls:
        theirs = await world.stranger.request(method, f"{at}/{what}".rstrip("/"), json=body)
        unknown = await world.stranger.request(method, f"/v1/workflows/nobodys/{what}".rstrip("/"), json=body)
        assert theirs.status_code == unknown.status_code == 404, (method, what)
        assert theirs.json()["code"] == unknown.json()["code"]
    assert (await world.stranger.get(f"{at}/drafts")).status_code == 404
    assert (await world.stranger.get("/v1/workflows?q=private")).json()["items"] == []
    view = (await world.client.get(at)).json()
    assert (view["version"], view["default"], view["paused"], view["draft_count"]) == ("1.0", None, None, 1)


async def test_bad_parameters_of_the_lists_are_refused(world: World) -> None:
    """REQ-36."""
    for path in ("/v1/workflows", "/v1/workflows/echo/drafts"):
        for query in ("limit=0", "limit=201", "limit=x", "limit=1e3", "cursor=x", "sort=id", f"limit={2**63}"):
            assert (await world.client.get(f"{path}?{query}")).status_code in (400, 422), (path, query)
    for query in ("q=", f"q={'x' * 129}"):
        assert (await world.client.get(f"/v1/workflows?{query}")).status_code == 422
    assert (await world.client.get("/v1/workflows?q=%00")).status_code in (200, 400, 422)


async def test_authors_mark_and_delete_and_operators_pause(world: World) -> None:
    at = await published(world, "ranked", "1.0", "1.1")
    keys = {}
    for role in ("author", "operator", "viewer"):
        made = await world.client.post("/v1/admin/keys", json={"name": f"life-{role}", "roles": [role]})
        keys[role] = {"authorization": f"Bearer {made.json()['key']}"}
    calls: list[tuple[str, str, Any, str]] = [
        ("POST", f"{at}/default", {"version": "1.0"}, "author"), ("POST", f"{at}/default", {"version": None}, "author"),
        ("POST", f"{at}/deprecate", {"version": "1.0"}, "author"), ("DELETE", f"{at}/versions/1.0", None, "author"),
        ("POST", f"{at}/pause", {}, "operator"), ("POST", f"{at}/resume", {}, "operator"),
        ("GET", f"{at}/drafts", None, "viewer"), ("POST", f"{at}/preview", {}, "viewer"), ("GET", "/v1/schema", None, "viewer"),
        ("DELETE", at, None, "author"),
    ]  # fmt: skip
    for method, path, body, role in calls:
        for other in ("viewer", "author", "operator"):
            if role not in ("viewer", other):
                refused = await world.anonymous.request(method, path, json=body, headers=keys[other])
                assert (refused.status_code, refused.json()["needs"]) == (403, role), (path, other)
        allowed = await world.anonymous.request(method, path, json=body, headers=keys[role])
        assert allowed.status_code == 200, (path, allowed.text)


async def test_what_runs_keeps_its_definition_whatever_becomes_of_the_workflow(world: World) -> None:
    """REQ-21."""
    text_of = "workflow: {{id: kept, version: '{}', output: {{v: '{}'}}, steps: [{{id: ask, type: approval, approval: {{title: t}}}}, {}]}}"
    await world.publish(text_of.format("1", "one", "{id: b, type: tool_call, tool: time.now}"))
    running = await world.run("kept")
    await world.publish(text_of.format("2", "two", "{id: c, type: tool_call, tool: time.now}"))
    await world.client.post("/v1/workflows/kept/default", json={"version": "2"})
    await world.client.post("/v1/workflows/kept/deprecate", json={"version": "1"})
    assert (await world.run("kept"))["version"] == "2"
    await world.client.post("/v1/workflows/kept/pause")
    await world.client.post(f"/v1/approvals/{running['waiting_for'][0]['approval_id']}/approve")
    await world.client.get(f"{running['links']['self']}/events")
    ended = (await world.client.get(running["links"]["self"])).json()
    assert (ended["version"], ended["output"], set(ended["steps"])) == ("1", {"v": "one"}, {"ask", "b"})
    assert {node["id"] for node in (await world.client.get(running["links"]["graph"])).json()["nodes"]} == {"ask", "b"}
