"""Dry runs, differences, pictures and the schema for editors, as the API gives them."""

from __future__ import annotations

from typing import Any

import yaml

from agiwo.schema import Schema
from kit.api import ECHO, World

YAML = {"content-type": "application/yaml"}


async def test_a_dry_run_shows_prompts_and_approvals_and_starts_nothing(world: World) -> None:
    before = (await world.client.get("/v1/instances?workflow=report")).json()
    answer = await world.client.post("/v1/workflows/report/preview", json={"input": {"week": "48"}, "results": {"write": "All is well."}})
    assert answer.status_code == 200, answer.text
    write, say = answer.json()["steps"]
    assert write["input"]["task_prompt"] == "Write about 48"
    assert (write["approval"]["at"], write["approval"]["decided"], write["approval"]["assumed"]) == ("after", "approve", True)
    assert (say["input"], say["output_from"]) == ({"value": "All is well."}, "placeholder")
    assert (answer.json()["status"], answer.json()["stopped"]) == ("SUCCESS", None)
    assert (await world.client.get("/v1/instances?workflow=report")).json() == before


async def test_a_dry_run_of_a_text_needs_no_publishing(world: World) -> None:
    text = ECHO.replace("id: echo", "id: unpublished")
    answer = await world.client.post("/v1/workflows/preview", json={"definition": text, "input": {"word": "x"}})
    assert answer.json()["steps"][0]["input"] == {"value": "x"}
    as_json = await world.client.post("/v1/workflows/preview", json={"definition": yaml.safe_load(text), "input": {"word": "x"}})
    assert as_json.json() == answer.json()
    assert (await world.client.get("/v1/workflows/unpublished")).status_code == 404
    refused = await world.client.post("/v1/workflows/preview", json={"definition": text.replace("debug.echo", "debug.ekho")})
    assert (refused.status_code, refused.json()["code"]) == (422, "definition_refused")
    assert [p["line"] for p in refused.json()["errors"] if p["severity"] == "error"] == [5]


async def test_what_a_dry_run_cannot_use_is_named(world: World) -> None:
    asked: list[tuple[dict[str, Any], str]] = [
        ({"results": {"sai": 1}}, "/results/sai"),
        ({"decisions": {"say": "maybe"}}, "/decisions/say"),
        ({"decisions": {"say": {"action": "approve", "values": []}}}, "/decisions/say"),
        ({"decisions": {"say": 1}}, "/decisions/say"),
        ({"context": {"a b": 1}}, "/context/a b"),
        ({"colour": 1}, "/colour"),
    ]
    for body, place in asked:
        answer = await world.client.post("/v1/workflows/echo/preview", json=body)
        assert answer.status_code == 422
        assert [e["pointer"] for e in answer.json()["errors"]] == [place]
    missing = await world.client.post("/v1/workflows/echo/preview", json={"version": "9"})
    assert (missing.status_code, missing.json()["code"]) == (404, "version_not_found")
    assert (await world.stranger.post("/v1/workflows/echo/preview", json={})).status_code == 404


async def test_two_versions_are_compared_by_step(world: World) -> None:
    await world.publish(ECHO.replace("id: echo", "id: compared"))
    changed = ECHO.replace("id: echo", "id: compared").replace('"1.0"', '"1.1"').replace("hello", "hi")
    await world.publish(changed + "  description: greets\n")
    at = "/v1/workflows/compared/diff?from=1.0&to=1.1"
    found = (await world.client.get(at)).json()
    assert found["steps"]["changed"] == [
        {
            "id": "say",
            "keys": [
                {
                    "key": "parameters",
                    "from": {"value": "{{ input.word | default('hello') }}"},
                    "to": {"value": "{{ input.word | default('hi') }}"},
                }
            ],
        }
    ]
    assert found["workflow"] == [{"key": "description", "to": "greets"}]
    text = (await world.client.get(f"{at}&format=text")).text
    assert text.splitlines()[:3] == ["compared 1.0 -> 1.1", '  description: "greets" (new)', "~ step say"]
    assert (await world.client.get("/v1/workflows/compared/diff?from=1.0&to=1.0")).json()["same"] is True
    for query, status in (("from=1.0&to=9", 404), ("from=1.0", 422), ("from=&to=1.0", 422), ("from=1.0&to=1.1&format=xml", 422)):
        assert (await world.client.get(f"/v1/workflows/compared/diff?{query}")).status_code == status
    assert (await world.stranger.get(at)).status_code == 404


async def test_a_graph_is_a_picture_that_fetches_and_runs_nothing(world: World) -> None:
    """REQ-40 for names in a picture."""
    await world.publish(
        "workflow:\n  id: drawn\n  version: '1'\n  steps:\n"
        "    - {id: a, type: tool_call, tool: time.now, name: '<script>alert(1)</script>'}\n"
    )
    for format in ("svg", "mermaid"):
        answer = await world.client.get(f"/v1/workflows/drawn/graph?format={format}")
        assert answer.status_code == 200
        assert "<script" not in answer.text
    picture = await world.client.get("/v1/workflows/drawn/graph?format=svg")
    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert picture.headers["content-security-policy"].startswith("default-src 'none'")
    running = await world.run("drawn")
    assert (await world.client.get(f"{running['links']['graph']}?format=svg")).text == picture.text


async def test_the_schema_takes_what_is_published(world: World) -> None:
    schema = Schema.compile((await world.client.get("/v1/schema")).json())
    assert schema.fits(yaml.safe_load(ECHO))
    assert not schema.fits({"id": "x", "version": "1", "steps": [{"id": "a", "type": "tool_call"}]})
