"""What was done is not done again when an instance goes on elsewhere, and data stays data on its whole way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agiwo.testing.model_server import ModelServer, Say
from agiwo.toolkit import Tool, tool
from kit.web import Web, answer
from kit.whole import Whole, whole_service

TWICE_ASKED = """\
workflow:
  id: order
  version: "1"
  context: {by: nobody}
  steps:
    - {id: charge, type: tool_call, tool: count.call, parameters: {what: "charge {{ input.n }} {{ context.by }}"}}
    - id: ok1
      type: approval
      approval: {title: "First, after {{ steps.charge.output }}"}
      writes: {by: "{{ steps.ok1.approval.by }}"}
    - {id: ok2, type: approval, approval: {title: "Second"}}
    - {id: ship, type: tool_call, tool: count.call, parameters: {what: "ship"}}
"""


def counting(calls: list[str]) -> Tool:
    @tool(name="count.call", effect="write", description="counts")
    async def call(what: str) -> int:
        calls.append(what)
        return len(calls)

    return call


async def decided(whole: Whole, instance: str) -> None:
    view = (await whole.client.get(f"/v1/instances/{instance}")).json()
    assert view["error"] is None, view["error"]
    (waiting,) = view["waiting_for"]
    assert (await whole.client.post(f"{waiting['href']}/approve", json={})).status_code == 200


async def settled(whole: Whole, instance: str, step: str) -> dict[str, Any]:
    """The instance once this step waits for a person or it has ended."""
    while True:
        view: dict[str, Any] = (await whole.client.get(f"/v1/instances/{instance}")).json()
        if view["ended_at"] or any(one["step"] == step for one in view["waiting_for"]):
            return view


async def test_going_on_after_a_pause_does_nothing_again_that_was_done(database: str, tmp_path: Path) -> None:
    """REQ-06: two approvals after a call, each decided on another service than the one before."""
    calls: list[str] = []
    (tmp_path / "a").mkdir()
    async with whole_service(database, tmp_path / "a", tools=[counting(calls)]) as whole:
        await whole.publish(TWICE_ASKED)
        view = await whole.run("order", input={"n": 7})
        instance = view["instance_id"]
        before = (await whole.client.get(f"/v1/instances/{instance}/steps/charge")).json()
        await decided(whole, instance)
        await settled(whole, instance, "ok2")
    (tmp_path / "b").mkdir()
    async with whole_service(database, tmp_path / "b", tools=[counting(calls)]) as whole:
        resumed = [await whole.client.post(f"/v1/instances/{instance}/resume", json={}) for _ in range(2)]
        assert {one.status_code for one in resumed} == {409}, "it is not interrupted; what it waits for stands in the answer"
        await decided(whole, instance)
        view = await settled(whole, instance, "none")
        again = [await whole.client.post(f"/v1/instances/{instance}/resume", json={}) for _ in range(2)]
        assert {one.status_code for one in again} == {409}
        after = (await whole.client.get(f"/v1/instances/{instance}/steps/charge")).json()
    assert view["status"] == "SUCCESS"
    assert calls == ["charge 7 nobody", "ship"]
    assert after == before, "what is over is not rendered anew"


TEXT = "Hi {{ name }} {% raw %} {# x #} ${7*7} {{ secrets.KEY }} %(a)s {0} \\n <b>&amp;</b>"
THROUGH = """\
workflow:
  id: through
  version: "1"
  context: {kept: "{{ input.text }}", said: ""}
  steps:
    - {id: one, type: tool_call, tool: debug.echo, parameters: {value: "{{ input.text }}"}}
    - {id: http, type: tool_call, tool: http.request, parameters: {url: "ORIGIN/echo", method: PUT, body: {t: "{{ steps.one.output }}"}}}
    - {id: told, type: tool_call, tool: http.request, parameters: {url: "ORIGIN/told"}}
    - {id: fails, type: tool_call, tool: debug.fail, parameters: {message: "{{ steps.told.output.body }}"}, on_failure: continue}
    - {id: model, type: llm_task, task_prompt: "{{ steps.told.output.body }}"}
    - {id: hears, type: wait_for_signal, event: go}
    - id: ask
      type: approval
      approval: {title: "{{ input.text }}", show: "{{ steps.model.output }}"}
      writes: {said: "{{ steps.ask.approval.comment }}"}
    - {id: last, type: tool_call, tool: debug.echo, parameters: {value: "{{ steps.hears.output.t }}"}}
  output:
    one: "{{ steps.one.output }}"
    http: "{{ steps.http.output.body.t }}"
    told: "{{ steps.told.output.body }}"
    error: "{{ steps.fails.error.message }}"
    model: "{{ steps.model.output }}"
    comment: "{{ context.said }}"
    signal: "{{ steps.last.output }}"
    context: "{{ context.kept }}"
"""


async def test_text_that_looks_like_a_template_reaches_every_place_unchanged(database: str, tmp_path: Path) -> None:
    """REQ-25: as input, context, argument, answer of a service and a model, error, signal, title, comment and output."""
    async with Web() as web, ModelServer([Say(TEXT)]) as model:

        async def echo(asked: Any, writer: Any) -> None:
            writer.write(answer(200, asked.body))

        web.says |= {"/echo": echo, "/told": answer(200, json.dumps(TEXT))}
        config = {"outbound_allow": ["127.0.0.1"], "llm_profiles": {"default": {"base_url": model.base_url, "model": "m"}}}
        async with whole_service(database, tmp_path, config=config) as whole:
            await whole.publish(THROUGH.replace("ORIGIN", web.url("")))
            started = (await whole.client.post("/v1/workflows/through/trigger", json={"input": {"text": TEXT}})).json()
            instance = started["instance_id"]
            await whole.client.post(f"/v1/instances/{instance}/signals", json={"event": "go", "payload": {"t": TEXT}})
            view = await settled(whole, instance, "ask")
            (waiting,) = view["waiting_for"]
            asked = (await whole.client.get(waiting["href"])).json()
            assert (asked["title"], asked["show"]) == (TEXT, TEXT)
            assert (await whole.client.post(f"{waiting['href']}/approve", json={"comment": TEXT})).status_code == 200
            view = await settled(whole, instance, "none")
        assert view["status"] == "SUCCESS", view["error"]
        assert view["output"] == dict.fromkeys(("one", "http", "told", "error", "model", "comment", "signal", "context"), TEXT)
        assert model.requests[0].body["messages"][-1]["content"] == TEXT
