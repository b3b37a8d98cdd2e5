"""What JSON or Postgres cannot hold comes in everywhere and stops nothing: clients get a 4xx, a step fails once and clearly.

The bodies of all routes are walked as the OpenAPI document has them, so that new fields are held to it by themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook

from agiwo.service.tokens import Link
from agiwo.testing.model_server import ModelServer, Say
from kit.api import SECRET, TAKEN_ON, World
from kit.spoiled_tools import SPOILED, TOOLS
from kit.web import Web, answer
from kit.whole import whole_service

#: JSON texts of values that cannot be kept; most parsers read them.
UNSTORABLE = {
    "NUL": r'"x\u0000y"',
    "NUL in a key": r'{"x\u0000y": 1}',
    "lone surrogate": r'"\ud800"',
    "lone surrogate in a key": r'{"\udc00": 1}',
    "NaN": "NaN",
    "infinity": "[-Infinity]",
    "beyond a float": "1e999",
    "101 digits": "1" * 101,
    "5000 digits": "1" * 5000,
    "200 levels": "[" * 200 + "]" * 200,
    "50000 levels": "[" * 50_000 + "]" * 50_000,
    "a key twice": '{"a": 1, "a": 2}',
}
HERE = "@here@"


def schema_of(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Method, path and body of every request that takes JSON, with a mark at each place in turn."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None:
                continue
            given = content.get("example", {})
            yield method, path, HERE
            for name in schema_of(document, content["schema"]).get("properties", {}):
                yield method, path, {**given, name: HERE}
                yield method, path, {**given, name: {"deep": [1, HERE]}}
            yield method, path, {**given, "no such field": HERE}


async def test_no_field_of_any_route_takes_what_cannot_be_kept(world: World) -> None:
    """REQ-26: 4xx for each of them, and nothing has changed."""
    view = await world.run("report", input={"week": "1"})
    printed = (await world.client.post("/v1/workflows/print/trigger", json={})).json()
    while (await world.client.get(printed["links"]["self"])).json()["status"] != "WAITING":
        pass
    webhook = (await world.client.post("/v1/webhooks", json={"url": "https://example.com/", "events": ["*"]})).json()
    ids = {
        "instance_id": view["instance_id"], "workflow_id": "report", "version": "1.0", "path": "write", "name": "shop", "channel": "chat",
        "approval_id": view["waiting_for"][0]["approval_id"], "webhook_id": webhook["webhook_id"], "key_id": webhook["webhook_id"],
        "delivery_id": webhook["webhook_id"], "token": TAKEN_ON[printed["instance_id"]].rpartition("/")[2],
    }  # fmt: skip
    document = (await world.anonymous.get("/openapi.json")).json()
    before = [(await world.client.get(one["links"]["history"])).json() for one in (view, printed)]
    tried = set()
    kinds = cycle(UNSTORABLE.items())
    for method, path, body in bodies(document):
        at = re.sub(r"{(\w+)}", lambda found: ids[found[1]], path)
        # All of them as a body; of the places within it each has some, in turn, for one reader reads them all.
        for what, text in islice(kinds, len(UNSTORABLE) if body == HERE else 3):
            raw = json.dumps(body).replace(json.dumps(HERE), text).encode()
            headers = {"content-type": "application/json"} | signed(raw)
            given = await world.client.request(method.upper(), at, content=raw, headers=headers)
            assert 400 <= given.status_code < 500 and given.status_code != 404, (path, body, what, given.status_code, given.text[:300])
            assert given.headers["content-type"] == "application/problem+json"
            tried.add(path)
    assert len(tried) > 25
    assert [(await world.client.get(one["links"]["history"])).json() for one in (view, printed)] == before
    assert (await world.run("echo", input={"word": "on"}))["output"] == {"said": "on"}


def signed(raw: bytes) -> dict[str, str]:
    """A good signature, so that what is signed is read."""
    now = datetime.now(UTC)
    return {
        "webhook-id": "m1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(SECRET).sign("m1", now, raw.decode()),
    }


@pytest.mark.parametrize("field", ["comment", "digest", "action", "field.note", "field.kind", "field.cost_centre"])
@pytest.mark.parametrize("text", ["x%00y", "%ed%a0%80", "9" * 101, "1e999"])
async def test_a_form_with_what_cannot_be_kept_is_refused_or_is_plain_text(world: World, field: str, text: str) -> None:
    """REQ-26: on the page of an approval, whose fields come as a form."""
    view = await world.run("gate", input={"to": "Ann", "amount": 1})
    approval, expires = UUID(view["waiting_for"][0]["approval_id"]), world.services.clock.now() + 1000
    path = world.services.links.url(Link("default", approval, "user:ann@example.com", expires)).removeprefix("http://agiwo.test")
    digest = (await world.client.get(view["waiting_for"][0]["href"])).json()["digest"]
    form = {"digest": digest, "action": "approve", "comment": "fine", "field.cost_centre": "7"}
    body = "&".join(f"{name}={value}" for name, value in {**form, field: text}.items())
    kind = {"content-type": "application/x-www-form-urlencoded"}
    given = await world.anonymous.post(path, content=body, headers=kind)
    # What is no UTF-8 is read as browsers read it: with a mark in its place.
    plain = text != "x%00y" and field in ("comment", "field.note")
    assert (given.status_code == 303) if plain else (400 <= given.status_code < 500), (given.status_code, given.text[:200])
    if not plain:
        assert (await world.client.get(view["waiting_for"][0]["href"])).json()["status"] == "pending"
        assert (await world.anonymous.post(path, data=form)).status_code == 303


LENIENT = "retry_policy: {max_attempts: 3, delay: 0}, on_failure: continue"


def step(id: str, tool: str, parameters: str, more: str = "") -> str:
    return f"    - {{id: {id}, type: tool_call, tool: {tool}, parameters: {parameters}, {LENIENT}{more}}}\n"


DECLARED = """\
name: spoil.http
description: Asks.
parameters: {path: {type: string}}
http: {method: GET, url: "ORIGIN/{{ parameters.path }}"}
---
name: spoil.command
description: Prints.
effect: read
parameters: {text: {type: string}}
command: {arguments: [/usr/bin/printf, --, "%b", "{{ parameters.text }}"], output: json}
---
name: spoil.command_text
description: Prints.
effect: read
parameters: {text: {type: string}}
command: {arguments: [/usr/bin/printf, --, "%b", "{{ parameters.text }}"], output: text}
"""


async def test_what_a_step_gives_and_cannot_be_kept_fails_that_step_once(database: str, tmp_path: Path) -> None:
    """REQ-26: of tools in the loop, in threads and in processes, declared ones, HTTP, databases and models."""
    out = "workflow:\n  id: spoiled\n  version: '1'\n  steps:\n"
    fails: list[str] = []
    errs: list[str] = []
    goes: list[str] = []
    for kind in SPOILED:
        for tool, those in (("async", fails), ("thread", fails), ("process", fails), ("error", errs), ("process_error", errs)):
            those.append(f"{tool}_{kind}")
            out += step(those[-1], f"spoil.{tool}", f"{{kind: {kind}}}")
        for tool in ("beside", "process_beside"):
            goes.append(f"{tool}_{kind}")
            out += step(goes[-1], f"spoil.{tool}", f"{{kind: {kind}}}", ", heartbeat: 30s")
    texts = {name.replace(" ", "_").lower(): text for name, text in UNSTORABLE.items()}
    async with Web() as web, ModelServer() as model:
        for name, text in texts.items():
            web.says[f"/{name}"] = answer(200, f'{{"a": {text}}}')
            web.says[f"/error/{name}"] = answer(422, f'{{"a": {text}}}')
            fails += [f"http_{name}", f"declared_{name}", f"model_{name}"]
            errs.append(f"http_error_{name}")
            out += step(f"http_{name}", "http.request", f"{{url: '{web.url('')}/{name}'}}")
            out += step(f"http_error_{name}", "http.request", f"{{url: '{web.url('')}/error/{name}'}}")
            out += step(f"declared_{name}", "spoil.http", f"{{path: {name}}}")
            model.script.append(Say(f'{{"a": {text}}}'))
            schema = "output_schema: {type: object, required: [a], properties: {a: {}}}, repair: {max_attempts: 0}"
            out += f"    - {{id: model_{name}, type: llm_task, task_prompt: x, {schema}, {LENIENT}}}\n"
        model.script.append(Say("x\x00y"))
        out += f"    - {{id: model_text, type: llm_task, task_prompt: x, {LENIENT}}}\n"
        fails.append("model_text")
        for name, text in (("json_nul", r"{\"a\": \"\\\\u0000\"}"), ("json_raw_nul", r"[\"\\0\"]"), ("json_bad", r"\\377")):
            fails.append(name)
            out += step(name, "spoil.command", f'{{text: "{text}"}}')
        config = {
            "outbound_allow": ["127.0.0.1"],
            "commands_allowed": ["spoil.command", "spoil.command_text"],
            "llm_profiles": {"default": {"base_url": model.base_url, "model": "m"}},
            "breakers": {name: {"failures": 1000} for name in ("http.request", "spoil.http", "llm_task")},
        }
        declared = DECLARED.replace("ORIGIN", web.url(""))
        async with whole_service(database, tmp_path, tools=TOOLS, declared=declared, config=config) as whole:
            await whole.publish(out)
            view = await whole.run("spoiled")
            steps = (await whole.client.get(f"{view['links']['self']}/steps")).json()["items"]
            history = (await whole.client.get(f"{view['links']['history']}?limit=1000")).json()["items"]
            answers = [await whole.client.get(f"{view['links']['self']}/steps/{id}") for id in (*fails, *errs, *goes)]
            log = whole.log.getvalue()
    assert view["status"] == "SUCCESS", view["error"]
    by_id = {one["id"]: one for one in steps}
    for id in fails:
        one = by_id[id]
        assert (one["status"], one["attempts"]) == ("FAILED", 1), one
        assert one["error"]["type"] in ("ValidationError", "OutputInvalid"), one
        assert re.search("storable|stored|read as such|no JSON value|declared to be", one["error"]["message"]), one
    for id in errs:
        assert by_id[id]["status"] == "FAILED" and by_id[id]["error"]["message"], by_id[id]
    for id in goes:
        assert (by_id[id]["status"], by_id[id]["output"]) == ("SUCCESS", "well"), by_id[id]
    assert {answer.status_code for answer in answers} == {200}
    assert sum('"event":"tool"' in line for line in log.splitlines()) == len(goes), "no line is lost"
    assert history
