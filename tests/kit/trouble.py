"""Instances in every kind of trouble that docs/trouble.md tells of, in a real service that a page's commands can be run against."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from agiwo.machine.view import WAIT_KINDS
from kit.process import ROOT, Service, free_port

#: What an instance may wait for by its own history.
WAITS = WAIT_KINDS

STEPS = {
    "running": "{id: report, type: tool_call, tool: debug.sleep, parameters: {seconds: 3600}, timeout: 2h}",
    "approval": "{id: pay, type: tool_call, tool: debug.echo, parameters: {value: 1},"
    " approval: {title: Pay the invoice, notify: [mail], approvers: ['user:ann@example.com']}}",
    "outcome": "{id: pay, type: tool_call, tool: bank.transfer, parameters: {amount: 100}, timeout: 100ms}",
    "signal": "{id: paid, type: wait_for_signal, event: payment.received}",
    "timer": "{id: pause, type: wait, duration: 5d}",
    "retry": "{id: fetch, type: tool_call, tool: debug.fail, parameters: {error: NetworkError, message: no route to host},"
    " retry_policy: {max_attempts: 5, delay: 1h}}",
    "callback": "{id: ship, type: tool_call, tool: courier.order, parameters: {}, completion: {mode: callback, timeout: 2h}}",
    "circuit": "{id: customer, type: tool_call, tool: crm.find, parameters: {id: 7}, retry_policy: {max_attempts: 1}}",
    "interrupt": "{id: send, type: tool_call, tool: debug.echo, parameters: {value: 1}}",
    "set_aside": "{id: pause, type: wait, duration: 5d}",
    "pending": "{id: fetch, type: tool_call, tool: debug.sleep, parameters: {seconds: 3600}, timeout: 2h}\n"
    "  - {id: warn, type: tool_call, tool: debug.echo, parameters: {value: 1}, when: '{{ input.amount > 1000 }}', depends_on: []}\n"
    "  - {id: send, type: tool_call, tool: debug.echo, parameters: {value: 1}, depends_on: [fetch]}",
    "model_away": "{id: write, type: llm_task, task_prompt: Say something., llm: away, retry_policy: {max_attempts: 1}}",
    "model_form": "{id: write, type: llm_task, task_prompt: Name the airport of Oslo., repair: {max_attempts: 1},"
    " output_schema: {type: object, required: [code], properties: {code: {type: string, pattern: '^[A-Z]{3}$'}}}}",
    "order": "{id: pay, type: tool_call, tool: debug.echo, parameters: {value: 1}}",
}
HEADS = {
    "order": "input_schema: {type: object, required: [amount], additionalProperties: false, properties: {amount: {type: integer}}}\n",
    "pending": "input_schema: {type: object, properties: {amount: {type: integer}}}\n",
}
#: What more a trigger says than its workflow.
TRIGGERS: dict[str, dict[str, Any]] = {"interrupt": {"interrupt_before": ["send"]}, "pending": {"input": {"amount": 12}}}
#: The record after which an instance stands where the page finds it, unless it waits or ends by then.
RECORDS = {
    "running": "step.started", "approval": "step.approval_asked", "outcome": "step.unknown", "signal": "step.waiting",
    "timer": "step.waiting", "retry": "step.retrying", "callback": "step.waiting", "circuit": "step.queued", "interrupt": "step.queued",
    "set_aside": "step.waiting", "pending": "step.skipped", "model_away": "instance.ended", "model_form": "instance.ended",
}  # fmt: skip

CONFIGURATION = """\
connections:
  mail: {{kind: smtp, url: "smtp://127.0.0.1:{nobody}", sender: "Agiwo <agiwo@example.com>"}}
llm_profiles:
  default: {{base_url: "{model}", model: agiwo-scripted, max_tokens: 500}}
  away: {{base_url: "http://127.0.0.1:{nobody}/v1", model: some-model, max_tokens: 500}}
"""


def start_service(start: Callable[..., Service], folder: Path, model: str) -> Service:
    """A service with the tools and definitions of the scenes; its mail server and one of its models answer nobody."""
    configuration = folder / "agiwo.yaml"
    configuration.write_text(CONFIGURATION.format(nobody=free_port(), model=model))
    definitions = folder / "troubles"
    definitions.mkdir()
    for name, steps in STEPS.items():
        (definitions / f"{name}.yaml").write_text(f'id: {name}\nversion: "1.0"\n{HEADS.get(name, "")}steps:\n  - {steps}\n')
    tools = str(ROOT / "tests" / "kit" / "trouble_tools.py")
    return start(
        "--config", str(configuration), "--workflows", str(definitions), AGIWO_TOOLS=tools, AGIWO_NODE_NAME="node-a", AGIWO_DRAIN="0"
    )


def in_trouble(service: Service, database: str, name: str) -> str:
    """Bring about a scene, wait until it is there, and give the id of its instance ("" if it has none)."""
    with httpx.Client(base_url=service.url, timeout=30) as client:
        if name == "service":
            return ""
        if name == "refused":
            assert client.post("/v1/workflows/order/trigger", json={"input": {"amonut": 1}}).status_code == 422
            return ""
        if name == "circuit":
            _wait_for(client, _started(client, name), "instance.ended")
        instance = _started(client, "timer" if name == "cancelled" else name)
        if name == "cancelled":
            client.post(f"/v1/instances/{instance}/cancel", json={"reason": "no longer wanted"}).raise_for_status()
            return instance
        _wait_for(client, instance, RECORDS[name])
        if name == "approval":
            _until(client, "/v1/admin/outbox?state=pending", lambda found: any(_failed(row, instance) for row in found["items"]))
        elif name == "set_aside":
            _until(client, f"/v1/instances/{instance}", lambda found: _left(database, instance))
            asyncio.run(_executed(database, BROKE_NODES, instance))
            _until(client, f"/v1/instances/{instance}", lambda found: found["waiting_for"][0]["kind"] == "set_aside")
        return instance


#: As if node after node had died while it drove an instance.
BROKE_NODES = "UPDATE agiwo.run SET deaths = 6, due_at = now() WHERE id = $1::uuid AND owner IS NULL RETURNING id"


def _failed(row: dict[str, Any], instance: str) -> bool:
    return row["instance_id"] == instance and row["last_error"] is not None


def _left(database: str, instance: str) -> bool:
    """Whether no node holds the instance any more."""
    return bool(asyncio.run(_executed(database, "SELECT 1 FROM agiwo.run WHERE id = $1::uuid AND owner IS NULL", instance)))


def _until(client: httpx.Client, path: str, there: Callable[[dict[str, Any]], bool]) -> None:
    """Ask until the answer is as it should be."""
    for _ in range(5000):
        if there(client.get(path).raise_for_status().json()):
            return
    raise AssertionError(f"{path} stays as it is")


async def _executed(database: str, statement: str, instance: str) -> list[Any]:
    connection = await asyncpg.connect(database)
    try:
        return list(await connection.fetch(statement, instance))
    finally:
        await connection.close()


def _started(client: httpx.Client, name: str) -> str:
    answer = client.post(f"/v1/workflows/{name}/trigger", json={"input": {}, **TRIGGERS.get(name, {})})
    answer.raise_for_status()
    return str(answer.json()["instance_id"])


def _wait_for(client: httpx.Client, instance: str, record: str) -> None:
    """Follow the instance's events until this one has come."""
    with client.stream("GET", f"/v1/instances/{instance}/events") as stream:
        for line in stream.iter_lines():
            if line.removeprefix("event: ") == record:
                return
    raise AssertionError(f"{instance} ended without {record}")
