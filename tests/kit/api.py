"""The application over a real database, a real engine and the built-in tools; only the model is scripted."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx
from fastapi import FastAPI

from agiwo.api import create_app
from agiwo.clock import SystemClock
from agiwo.console import approval_page
from agiwo.definition.compiled import Kind
from agiwo.engine.node import Engine
from agiwo.executors.breakers import Breakers
from agiwo.executors.tool_call import ToolCalls
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded
from agiwo.outbound.guard import Guard
from agiwo.outbound.http import HttpCalls
from agiwo.ports.executor import Circumstances, Executor, ProbeAnswer
from agiwo.service.callers import ApiKey, ApiKeys
from agiwo.service.definitions import Catalog
from agiwo.service.instances import Instances
from agiwo.service.keyring import KeyRing
from agiwo.service.services import Services, build_services
from agiwo.service.tokens import CallbackLinks, Signer
from agiwo.settings import Settings
from agiwo.store.answered import PostgresAnsweredCalls
from agiwo.store.deliveries import PostgresDeliveries
from agiwo.store.keys import PostgresKeys
from agiwo.store.oversight import PostgresOversight
from agiwo.store.pool import service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.queries import PostgresQueries
from agiwo.store.records import PostgresRecords
from agiwo.store.webhooks import PostgresWebhooks
from agiwo.store.workflows import PostgresWorkflows
from agiwo.toolkit import tool
from agiwo.tools.builtin import standard_registry
from agiwo.tools.context import ToolContext
from agiwo.tools.processes import ToolProcesses
from agiwo.tools.threads import ToolThreads
from agiwo.wiring.callbacks import callback_urls
from agiwo.wiring.limits import limits_of
from agiwo.wiring.signals import SignalsFromSteps
from agiwo.wiring.webhooks import webhook_notifiers, webhook_parts

ECHO = """\
workflow:
  id: echo
  version: "1.0"
  steps:
    - {id: say, type: tool_call, tool: debug.echo, parameters: {value: "{{ input.word | default('hello') }}"}}
  output: {said: "{{ steps.say.output }}"}
"""

REPORT = """\
workflow:
  id: report
  version: "1.0"
  input_schema: {type: object, required: [week], properties: {week: {type: string}}, additionalProperties: false}
  context: {week: "{{ input.week }}"}
  steps:
    - id: write
      type: llm_task
      task_prompt: "Write about {{ input.week }}"
      requires_approval: true
    - {id: say, type: tool_call, tool: debug.echo, parameters: {value: "{{ steps.write.output }}"}}
  output: "{{ steps.say.output }}"
"""

GATE = """\
workflow:
  id: gate
  version: "1.0"
  steps:
    - id: pay
      type: tool_call
      tool: debug.echo
      parameters: {value: "{{ input }}"}
      approval:
        title: "Pay <b>{{ input.to }}</b>?"
        show: "Amount {{ input.amount }}"
        approvers: ["user:ann@example.com"]
        fields:
          type: object
          required: [cost_centre]
          properties:
            cost_centre: {type: integer, title: Cost centre}
            urgent: {type: boolean}
            kind: {enum: [goods, services]}
            note: {type: string}
"""

PAY = """\
workflow:
  id: pay
  version: "1.0"
  steps:
    - {id: pay, type: tool_call, tool: test.pay, parameters: {amount: "{{ input.amount }}"}, timeout: 10ms, output_schema: {type: object}}
  output: "{{ steps.pay.output }}"
"""


PRINT = """\
workflow:
  id: print
  version: "1.0"
  steps:
    - id: job
      type: tool_call
      tool: test.print
      completion: {mode: callback, timeout: 1h}
      parameters: {text: "{{ input.text | default('x') }}", url: "{{ secrets.callback_url }}"}
      output_schema: {type: object, required: [pages]}
  output: "{{ steps.job.output }}"
"""


@tool(name="test.pay", description="pays, and never says whether it did", effect="write")
async def never_says(amount: int) -> dict[str, Any]:
    await asyncio.Event().wait()
    return {"amount": amount}


@tool(name="test.print", description="takes a job on and calls back", effect="write")
async def print_out(text: str, url: str, ctx: ToolContext) -> dict[str, Any]:
    assert ctx.callback is not None
    assert url == ctx.callback.url, "the address in the parameters is the one that the tool is told"
    TAKEN_ON[ctx.instance_id] = url
    return {"job": 7, "url": url}


@tool(name="test.reprint", description="takes a job on as often as it is asked to, and calls back", effect="idempotent_write")
async def print_again(text: str, url: str, ctx: ToolContext) -> dict[str, Any]:
    TAKEN_ON[ctx.instance_id] = url
    return {"job": 7}


#: Where the jobs of `test.print` are to be answered, by instance.
TAKEN_ON: dict[str, str] = {}


#: The secret of every hook and channel of the tests.
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
HOOKS: Any = {
    "shop": {
        "secret": SECRET,
        "workflow": "echo",
        "input": {"word": "{{ payload.order.word }}"},
        "correlation_key": "{{ payload.order.id }}",
    },
    "strangers": {"secret": SECRET, "workflow": "echo", "tenant": "other"},
    "paid": {
        "secret": SECRET,
        "signal": {"event": "payment.{{ payload.kind }}", "payload": "{{ payload.data }}", "correlation_key": "{{ payload.order }}"},
    },
    "paid_one": {"secret": SECRET, "signal": {"event": "payment.received", "instance": "{{ payload.instance }}"}},
}
APPROVAL_CHANNELS: Any = {
    "chat": {"secret": SECRET, "deciders": ["user:*@example.com"]},
    "strangers": {"secret": SECRET, "tenant": "other", "deciders": ["user:*@example.com"], "roles": ["admin"]},
}


class Scripted:
    """A model that gives what the test says."""

    def __init__(self) -> None:
        self.answer: Any = "All went well."
        self.calls: list[Any] | None = None

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        calls = [{"request": {"prompt": call.arguments}, "raw": self.answer}] if self.calls is None else self.calls
        return Succeeded(self.answer, {"model": "scripted"}, calls)

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
        return ProbeAnswer("unavailable")


@dataclass
class World:
    """The parts that tests reach for. `client` calls as an admin of tenant `default`, `stranger` as one of another tenant."""

    services: Services
    app: FastAPI
    client: httpx.AsyncClient
    stranger: httpx.AsyncClient
    anonymous: httpx.AsyncClient
    model: Scripted
    engine: Engine

    async def publish(self, text: str) -> dict[str, Any]:
        answer = await self.client.post("/v1/workflows", content=text, headers={"content-type": "application/yaml"})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def run(self, workflow: str, **body: Any) -> dict[str, Any]:
        """Trigger and wait until it has ended or waits for a person."""
        answer = await self.client.post(f"/v1/workflows/{workflow}/trigger?wait=20s", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def api_world(database: str) -> AsyncIterator[World]:
    """The application over `database` with the workflows above published."""
    clock = SystemClock()
    pool = service_engine(database)
    store = PostgresStore(database)
    registry = standard_registry()
    registry.register(never_says)
    registry.register(print_out)
    registry.register(print_again)
    records, queries = PostgresRecords(pool, clock), PostgresQueries(pool)
    catalog = Catalog(records, registry.contracts, clock)
    model = Scripted()
    signer = Signer([b"0123456789abcdef0123456789abcdef"])
    signals = SignalsFromSteps()
    callbacks = callback_urls(CallbackLinks(signer, "http://agiwo.test"), clock)
    tools = ToolCalls(registry, clock, callbacks=callbacks, signals=signals)

    def executor_for(kind: Kind) -> Executor:
        return model if kind is Kind.LLM_TASK else tools

    key = "0123456789abcdef0123456789abcdef"
    settings = Settings(hooks=HOOKS, approval_channels=APPROVAL_CHANNELS)
    hooking = webhook_parts(settings, key, PostgresWebhooks(pool), PostgresDeliveries(pool))
    posting = HttpCalls(Guard(["127.0.0.1"]))
    notifiers = webhook_notifiers(hooking, Instances(queries, catalog), posting, clock)
    engine = Engine(store, catalog, executor_for, clock, name="api-tests", random=Random(1), notifiers=notifiers, feed=hooking.store)
    await engine.start()
    configured = ApiKeys([ApiKey.of("ops", "secret-a"), ApiKey.of("other", "secret-b", "other")])
    services = build_services(
        engine=engine,
        records=records,
        workflows=PostgresWorkflows(pool),
        queries=queries,
        oversight=PostgresOversight(pool),
        limits=limits_of(engine, ToolThreads(), ToolProcesses(), {}),
        answered=PostgresAnsweredCalls(pool),
        keys=PostgresKeys(pool),
        breakers=Breakers(clock),
        webhooks=hooking,
        catalog=catalog,
        tools=registry.contracts,
        clock=clock,
        random=Random(2),
        signer=signer,
        public_url="http://agiwo.test",
        configured_keys=configured,
    )
    signals.signalling = services.signalling
    app = create_app(services, keys=KeyRing(configured, PostgresKeys(pool), clock), pages=[approval_page(services)])
    transport = httpx.ASGITransport(app)
    clients = [
        httpx.AsyncClient(transport=transport, base_url="http://agiwo.test", headers=headers, timeout=30)
        for headers in ({"authorization": "Bearer secret-a"}, {"authorization": "Bearer secret-b"}, {})
    ]
    made = World(services, app, *clients, model, engine)
    for text in (ECHO, REPORT, GATE, PAY, PRINT):
        await made.publish(text)
    yield made
    for client in clients:
        await client.aclose()
    await engine.stop()
    await posting.close()
    await store.close()
    await pool.dispose()
