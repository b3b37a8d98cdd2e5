"""Publishing, judging, reading back, triggering, looking."""

from __future__ import annotations

import json

import pytest

from kit.api import ECHO, World

YAML = {"content-type": "application/yaml"}


async def test_a_published_text_comes_back_byte_by_byte(world: World) -> None:
    answer = await world.client.get("/v1/workflows/echo/versions/1.0?format=yaml")
    assert answer.content == ECHO.encode()
    assert answer.headers["content-type"].startswith("application/yaml")


async def test_the_same_content_again_changes_nothing_and_other_content_is_refused_with_the_difference(world: World) -> None:
    again = await world.client.post("/v1/workflows", content=ECHO + "# a comment\n", headers=YAML)
    assert (again.status_code, again.json()["published"]) == (200, "unchanged")
    other = await world.client.post("/v1/workflows", content=ECHO.replace("hello", "hi"), headers=YAML)
    assert (other.status_code, other.json()["code"]) == (409, "version_exists")
    assert [p["pointer"] for p in other.json()["errors"]] == ["/steps/0/parameters/value"]
    equal = await world.client.post("/v1/workflows", content=ECHO.replace('"1.0"', '"1.00"'), headers=YAML)
    assert (equal.status_code, equal.json()["code"]) == (409, "equal_version")


async def test_twelve_mistakes_get_twelve_errors_in_one_answer(world: World) -> None:
    steps = "".join(f"    - {{id: s{n}, type: tool_call, tool: nosuch.tool{n}, parameters: {{}}}}\n" for n in range(12))
    text = f'workflow:\n  id: bad\n  version: "1.0"\n  steps:\n{steps}'
    for path in ("/v1/workflows", "/v1/workflows/validate"):
        answer = await world.client.post(path, content=text, headers=YAML)
        assert (answer.status_code, answer.json()["code"]) == (422, "definition_refused")
        errors = [p for p in answer.json()["errors"] if p["severity"] == "error"]
        assert len(errors) == 12
        assert all(p["line"] and p["column"] and p["pointer"] for p in errors)
        assert answer.json()["order"] == [f"s{n}" for n in range(12)]


async def test_a_definition_may_be_json(world: World) -> None:
    document = {"workflow": {"id": "from_json", "version": "1", "steps": [{"id": "a", "type": "set", "values": {}}]}}
    answer = await world.client.post("/v1/workflows/validate", json=document)
    assert answer.status_code in (200, 422)
    assert answer.json()["reads_as"] == "in_order"


async def test_the_newest_version_is_taken_unless_one_is_named(world: World) -> None:
    text = ECHO.replace("id: echo", "id: growing")
    for version in ("1.9", "1.10", "2.0-rc.1"):
        await world.publish(text.replace('"1.0"', f'"{version}"'))
    assert (await world.run("growing"))["version"] == "1.10"
    assert (await world.run("growing", version="1.9"))["version"] == "1.9"
    listed = (await world.client.get("/v1/workflows/growing")).json()
    assert listed["version"] == "1.10"
    assert listed["versions"] == ["2.0-rc.1", "1.10", "1.9"]


async def test_graph_as_json_and_mermaid(world: World) -> None:
    drawn = (await world.client.get("/v1/workflows/report/graph")).json()
    assert {node["id"] for node in drawn["nodes"]} == {"write", "say"}
    mermaid = await world.client.get("/v1/workflows/report/graph?format=mermaid&version=1.0")
    assert mermaid.text.startswith(("flowchart", "graph"))


async def test_workflows_are_listed_by_name_page_by_page(world: World) -> None:
    names: list[str] = []
    cursor = ""
    while True:
        page = (await world.client.get(f"/v1/workflows?limit=1{cursor}")).json()
        names += [item["workflow_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert names == sorted(names)
    assert {"echo", "gate", "report"} <= set(names)


async def test_a_trigger_is_accepted_with_where_to_look(world: World) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    answer = await world.client.post(
        "/v1/workflows/echo/trigger",
        json={"input": {"word": "a"}, "labels": {"team": "x"}, "correlation_key": "order-1"},
        headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"},
    )
    assert answer.status_code == 202
    started = answer.json()
    assert started["trace_id"] == trace
    assert answer.headers["traceparent"].split("-")[1] == trace
    view = (await world.client.get(started["links"]["self"])).json()
    assert (view["workflow_id"], view["trace_id"], view["labels"], view["correlation_key"]) == ("echo", trace, {"team": "x"}, "order-1")


@pytest.mark.parametrize("value", ["007", "1_000", "", 0, False, None, [1, [2]], {"a": {}}, 3.0, -0.0, 5e-324, 10**99, "é \U0001f600"])
async def test_a_value_comes_out_as_it_went_in(world: World, value: object) -> None:
    text = ECHO.replace("id: echo", "id: as_is").replace("{{ input.word | default('hello') }}", "{{ input.v }}")
    await world.publish(text)
    view = await world.run("as_is", input={"v": value})
    assert json.dumps(view["output"]["said"]) == json.dumps(value)
    assert json.dumps(view["steps"]["say"]["input"]) == json.dumps({"value": value})


async def test_an_instance_shows_all_that_it_holds(world: World) -> None:
    view = await world.run("report", input={"week": "48"})
    assert view["status"] == "WAITING"
    assert view["interrupted_at"] == "write"
    assert view["current_steps"] == ["write"]
    assert view["waiting_for"][0]["kind"] == "approval"
    assert view["steps"]["write"]["status"] == "WAITING_FOR_APPROVAL"
    assert view["steps"]["write"]["proposed_output"] == "All went well."
    assert view["steps"]["say"]["status"] == "PENDING"
    assert view["context"] == {"week": "48"}
    assert {action["name"] for action in view["actions"]} == {"approve", "reject", "cancel"}


async def test_input_that_breaks_the_schema_is_refused_with_its_place_and_kept(world: World) -> None:
    before = (await world.client.get("/v1/instances?workflow=report&limit=200")).json()["items"]
    answer = await world.client.post("/v1/workflows/report/trigger", json={"input": {"week": 48}})
    assert (answer.status_code, answer.json()["code"]) == (422, "input_invalid")
    assert answer.json()["errors"][0]["pointer"] == "/input/week"
    assert (await world.client.get("/v1/instances?workflow=report&limit=200")).json()["items"] == before
    rejected = (await world.client.get("/v1/admin/triggers?workflow=report")).json()["items"][0]
    assert (rejected["code"], rejected["principal"]) == ("input_invalid", "key:ops")


async def test_a_state_key_cannot_be_given_as_context_nor_an_odd_name(world: World) -> None:
    answer = await world.client.post("/v1/workflows/echo/trigger", json={"context": {"a b": 1}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/context/a b"


async def test_the_same_key_starts_one_instance_and_stands_for_one_body(world: World) -> None:
    key = {"idempotency-key": "k-1"}
    first, second = [await world.client.post("/v1/workflows/echo/trigger", json={"input": {"word": "x"}}, headers=key) for _ in range(2)]
    assert first.json()["instance_id"] == second.json()["instance_id"]
    assert second.status_code == 202
    other = await world.client.post("/v1/workflows/echo/trigger", json={"input": {"word": "y"}}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    refused = {"idempotency-key": "k-2"}
    assert (await world.client.post("/v1/workflows/report/trigger", json={"input": {}}, headers=refused)).status_code == 422
    good = await world.client.post("/v1/workflows/report/trigger", json={"input": {"week": "1"}}, headers=refused)
    assert good.status_code == 202


async def test_steps_trace_history_and_a_model_steps_prompt_can_be_read(world: World) -> None:
    view = await world.run("report", input={"week": "49"})
    at = view["links"]["self"]
    step = (await world.client.get(f"{at}/steps/write")).json()
    assert step["input"]["task_prompt"] == "Write about 49"
    steps = (await world.client.get(f"{at}/steps")).json()["items"]
    assert [s["id"] for s in steps] == ["write", "say"]
    trace = (await world.client.get(f"/v1/admin/instances/{view['instance_id']}/trace")).json()
    assert [s["id"] for s in trace["steps"]] == ["write", "say"]
    first = (await world.client.get(f"{at}/history?limit=1")).json()
    rest = (await world.client.get(f"{at}/history?after={first['next_after']}")).json()
    assert [r["seq"] for r in first["items"] + rest["items"]] == list(range(1, view["seq"] + 1))
    assert rest["next_after"] is None
    graph = (await world.client.get(f"{at}/graph")).json()
    assert graph["states"] == {"write": "WAITING_FOR_APPROVAL", "say": "PENDING"}


async def test_cancel_ends_a_waiting_instance_and_then_is_a_conflict_that_says_what_is_allowed(world: World) -> None:
    view = await world.run("report", input={"week": "50"})
    at = view["links"]["self"]
    assert (await world.client.post(f"{at}/cancel", json={"reason": "not needed"})).status_code == 202
    events = await world.client.get(f"{at}/events")
    assert "event: instance.ended" in events.text
    ended = (await world.client.get(at)).json()
    assert (ended["status"], ended["reason"], ended["steps"]["say"]["status"]) == (
        "CANCELLED",
        "cancelled by key:ops: not needed",
        "SKIPPED",
    )
    again = await world.client.post(f"{at}/cancel")
    assert (again.status_code, again.json()["present_status"], again.json()["actions"]) == (409, "CANCELLED", [])


async def test_tools_are_listed_with_their_contracts(world: World) -> None:
    names = [tool["name"] for tool in (await world.client.get("/v1/tools")).json()["items"]]
    assert {"database.query", "debug.echo", "email_sender.send"} <= set(names)
    assert (await world.client.get("/v1/tools/debug.echo")).json()["effect"] == "pure"
    assert (await world.client.get("/v1/tools/no.such")).status_code == 404
