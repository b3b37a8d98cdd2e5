"""Secrets are used everywhere and seen nowhere: a search through all tables, all answers of the API, the log and the metrics.

Tables and routes are walked as the schema and the OpenAPI document have them, so that new ones are searched by themselves.
"""

from __future__ import annotations

import asyncio
import base64
import html
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import asyncpg

from agiwo.testing.model_server import Answer, ModelServer, Say
from kit.telling_tools import ADDRESSES, TOOLS
from kit.web import Asked, Web, answer
from kit.whole import ADMIN_KEY, SIGNING_KEY, Whole, whole_service

WHSEC = [f"whsec_{base64.b64encode(f'{n}-signs-what-is-told-0123456789'.encode()).decode()}" for n in range(3)]
#: By name; two of them are written otherwise in JSON, HTML, URLs and Base64.
SECRETS = {
    "K": "s3cr3t-9f",
    "ODD": 'p"ü/<&> +7\\odd',
    "CRM_KEY": "crm-key-hush-1",
    "CRM_PASSWORD": "crm:pass word-hush-2",
}
CONFIGURED = {
    "model key": "sk-model-hush-3-0123456789",
    "database password": "db-hush-4",
    "channel token": "channel-hush-5",
    "dead channel token": "channel-hush-6",
    "hook": WHSEC[0],
    "approval channel": WHSEC[1],
    "callback": WHSEC[2],
    "header of a webhook": "Bearer header-hush-7",
    "API key": ADMIN_KEY,
    "signing key": SIGNING_KEY,
}

DECLARED = """\
name: echo.http
description: Sends secrets and gets them back.
parameters: {}
http:
  method: GET
  url: "ORIGIN/echo"
  headers: {X-Key: "k {{ secrets.K }}"}
  auth: {basic: {user: me, password: CRM_PASSWORD}}
---
name: echo.http_error
description: Sends secrets and is told them in an error.
parameters: {}
http:
  method: GET
  url: "ORIGIN/error"
  headers: {X-Key: "k {{ secrets.K }}"}
  errors: {500: {type: Odd, message: "it said no"}}
---
name: echo.command
description: Tells what it was given.
effect: read
parameters: {}
command: {arguments: [/usr/bin/env], environment: {TOKEN: {secret: ODD}, KEY: {secret: K}}}
---
name: echo.command_error
description: Tells what it was given, and fails.
effect: read
parameters: {}
command: {arguments: [/bin/sh, -c, 'echo "$TOKEN" >&2; echo "$TOKEN"; exit 3'], environment: {TOKEN: {secret: ODD}}}
"""

_LENIENT = "retry_policy: {max_attempts: 1, delay: 0}, on_failure: continue"


def step(id: str, tool: str, parameters: str, more: str = "") -> str:
    return f"    - {{id: {id}, type: tool_call, tool: {tool}, parameters: {parameters}, {_LENIENT}{more}}}\n"


def leaking(origin: str) -> str:
    """A workflow that lends every secret to everything that there is."""
    out = "workflow:\n  id: leak\n  version: 'VERSION'\n  steps:\n"
    for name in ("K", "ODD"):
        lent = f"{{secret: '{{{{ secrets.{name} }}}}'}}"
        low = name.lower()
        for kind in ("result", "error", "unexpected", "long", "thread", "process"):
            out += step(f"{kind}_{low}", f"tell.{kind}", lent)
        out += step(f"silent_{low}", "tell.silent", lent, ", heartbeat: 50ms")
        out += step(f"asked_{low}", "tell.asked", f"{{name: {name}}}")
        out += step(f"echo_{low}", "debug.echo", f"{{value: {{in: 'x {{{{ secrets.{name} }}}} y'}}}}")
        out += step(f"last_good_{low}", "tell.result", lent, ", fallback: {last_good: 1h}")
        out += step(f"aside_{low}", "tell.error", lent, f", fallback: {{tool: tell.result, parameters: {lent}}}")
        sent = f"payload: {{k: '{{{{ secrets.{name} }}}}', t: 'x {{{{ secrets.{name} }}}}'}}"
        out += step(f"signal_{low}", "events.send", f"{{event: told, {sent}, to: {{correlation_key: hears}}}}")
        sent = f"headers: {{Authorization: 'Bearer {{{{ secrets.K }}}}'}}, body: {{k: '{{{{ secrets.{name} }}}}'}}, effect: read"
        for path in ("echo", "error", "moved", "broken"):
            out += step(f"http_{path}_{low}", "http.request", f"{{method: POST, url: '{origin}/{path}', {sent}}}")
        statement = f"{{connection: books, statement: 'INSERT INTO nowhere VALUES ({{{{ secrets.{name} }}}})'}}"
        out += step(f"books_{low}", "database.execute", statement)
        approval = ", approval: {title: 'May it?', show: 'Now', approvers: ['user:ann@example.com'], notify: [CHANNEL]}"
        out += step(f"gated_{low}", "debug.echo", f"{{value: 'x {{{{ secrets.{name} }}}}'}}", approval.replace("CHANNEL", f"to_{low}"))
        schema = "{type: object, required: [n], properties: {n: {type: integer}}}"
        fit = f"output_schema: {schema}, repair: {{max_attempts: 1}}, "
        for kind, more in (("", "system_prompt: 'And {{ secrets.K }}', "), ("fit_", fit), ("error_", "")):
            prompt = f"task_prompt: 'Say {{{{ secrets.{name} }}}}'"
            out += f"    - {{id: model_{kind}{low}, type: llm_task, {prompt}, {more}{_LENIENT}}}\n"
    for tool in ("echo.http", "echo.http_error", "echo.command", "echo.command_error"):
        out += step(tool.replace(".", "_"), tool, "{}")
    for path in ("echo", "error"):
        out += step(f"crm_{path}", "http.request", f"{{connection: crm, url: {path}}}")
    out += step("away", "database.query", "{connection: away, query: 'SELECT 1'}")
    for id in ("later", "later_too"):
        out += step(
            id, "tell.later", "{url: '{{ secrets.callback_url }}'}", ", completion: {mode: callback, timeout: 1h}, run_parallel: true"
        )
    return out + '  output: {all: "{{ steps.echo_k.output }}", later: "{{ steps.later.output }}"}\n'


HEARS = """\
workflow:
  id: hears
  version: "1"
  steps:
    - {id: one, type: wait_for_signal, event: told}
    - {id: two, type: wait_for_signal, event: told}
    - {id: never, type: wait_for_signal, event: never}
"""


def saying(text: str) -> Answer:
    """An answer of the model that has the text wherever it can have one."""
    message = {"role": "assistant", "content": f"You said {text}", "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    body = {"id": f"id {text}", "object": "chat.completion", "created": 1, "model": f"m {text}", "choices": [choice]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return Answer(200, {**body, "usage": usage, "system_fingerprint": text})


async def echoing(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(200, json.dumps({"headers": asked.headers, "body": asked.body.decode()})))


async def refusing(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(500, json.dumps({"headers": asked.headers, "body": asked.body.decode()})))


async def moved(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(302, "", Location=f"/to/{quote(asked.headers['authorization'])}", X_Seen=asked.headers["authorization"]))


async def broken(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 " + asked.headers["authorization"].encode() + b"\r\nContent-Length: 900\r\n\r\n" + asked.body)
    writer.close()


def needles(secret: str) -> set[str]:
    """A text as it would stand in JSON (also in JSON in JSON), HTML, URLs, and at any place within Base64."""
    once = [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    out = {secret, html.escape(secret), quote(secret), quote(secret, safe=""), quote_plus(secret), *once}
    out |= {json.dumps(text, ensure_ascii=escaped)[1:-1] for text in once for escaped in (True, False)}
    raw = secret.encode()
    out |= {base64.b64encode(bytes(n) + raw).decode()[4 if n else 0 :].rstrip("=")[:-2] for n in range(3)}
    return {needle for needle in out if len(needle) >= 8}


def where_found(text: str, hidden: dict[str, str]) -> Iterator[str]:
    for name, secret in hidden.items():
        for needle in needles(secret):
            at = text.find(needle)
            if at >= 0:
                yield f"{name} at …{text[max(0, at - 90) : at + len(needle) + 20]}…".replace("\n", " ")


async def rows_of(database: str) -> Iterator[tuple[str, str]]:
    """Every row of every table as text."""
    connection = await asyncpg.connect(database)
    try:
        tables = await connection.fetch(
            "SELECT format('%I.%I', table_schema, table_name) AS name FROM information_schema.tables "
            "WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')"
        )
        assert len(tables) > 15
        out = []
        for table in tables:
            for row in await connection.fetch(f"SELECT * FROM {table['name']}"):
                out.append(
                    (table["name"], "\n".join(v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in row.values()))
                )
        return iter(out)
    finally:
        await connection.close()


async def answers_of(whole: Whole, things: dict[str, list[str]]) -> list[tuple[str, int, str]]:
    """What every GET of the document gives for each of these things."""
    document = (await whole.client.get("/openapi.json")).json()
    out = []
    for path, methods in document["paths"].items():
        if "get" not in methods:
            continue
        names = re.findall(r"{(\w+)}", path)
        assert set(names) <= set(things), f"name things of {path} here, so that it is searched too"
        asked = [p for p in methods["get"].get("parameters", ()) if p["in"] == "query"]
        query = {p["name"]: p["schema"]["maximum"] for p in asked if p["name"] == "limit"}
        query |= {p["name"]: things["version"][n] for n, p in enumerate(p for p in asked if p.get("required"))}
        for values in itertools.product(*(things[name] for name in names)):
            filled = path
            for name, value in zip(names, values, strict=True):
                filled = filled.replace(f"{{{name}}}", quote(value, safe=""))
            # What has not ended has no end of its events.
            if path.endswith("/events") and not (await whole.client.get(filled.removesuffix("/events"))).json().get("ended_at"):
                continue
            given = await whole.client.get(filled, params=query)
            out.append((path, given.status_code, str(given.headers) + given.text))
    return out


async def test_secrets_are_in_no_table_no_answer_no_log_line_and_no_metric(database: str, tmp_path: Path) -> None:
    """REQ-28: lent to every kind of call, told back in every way, and then searched for as text."""
    async with Web() as web, ModelServer(api_key=CONFIGURED["model key"]) as model:
        web.says |= {
            "/echo": echoing,
            "/error": refusing,
            "/moved": moved,
            "/broken": broken,
            "/channel": answer(204),
            "/told": answer(204),
        }
        web.says |= {"/dead": answer(500, "no"), "/crm/echo": echoing, "/crm/error": refusing}
        for secret in (SECRETS["K"], SECRETS["ODD"]):
            model.script += [
                saying(f"{secret} {CONFIGURED['model key']}"),
                Say(json.dumps({"n": secret})),
                Say(json.dumps({"m": secret})),
                Answer(400, {"error": {"message": f"bad {secret} {CONFIGURED['model key']}", "type": secret, "code": secret}}),
            ]
        config = {
            "outbound_allow": ["127.0.0.1"],
            "connections": {
                "crm": {
                    "kind": "http",
                    "url": web.url("/crm"),
                    "headers": {"X-Api-Key": {"secret": "CRM_KEY"}},
                    "auth": {"basic": {"user": "me", "password": "CRM_PASSWORD"}},
                },
                "books": {"kind": "sqlite", "url": f"sqlite:///{tmp_path}/books.sqlite"},
                "away": {"kind": "postgres", "url": f"postgresql://bob:{CONFIGURED['database password']}@127.0.0.1:1/books"},
            },
            # No circuit may open: a step that waits for one lends nothing.
            "breakers": {name: {"failures": 1000} for name in ("http.request", "database.execute", "database.query", "llm_task")},
            "commands_allowed": ["echo.command", "echo.command_error"],
            "llm_profiles": {"default": {"base_url": model.base_url, "model": "m", "api_key": "env:MODEL_KEY"}},
            "channels": {
                "to_k": {
                    "kind": "webhook",
                    "url": web.url(f"/channel?token={CONFIGURED['channel token']}"),
                    "principal": "user:ann@example.com",
                },
                "to_odd": {"kind": "webhook", "url": web.url(f"/dead?token={CONFIGURED['dead channel token']}")},
            },
            "hooks": {"shop": {"secret": CONFIGURED["hook"], "workflow": "hears"}},
            "approval_channels": {"chat": {"secret": CONFIGURED["approval channel"], "deciders": ["user:*@example.com"]}},
            "callback_secrets": {"default": CONFIGURED["callback"]},
        }
        (tmp_path / "books.sqlite").touch()
        environment = {f"AGIWO_SECRET_{name}": value for name, value in SECRETS.items()} | {"MODEL_KEY": CONFIGURED["model key"]}
        declared = DECLARED.replace("ORIGIN", web.url(""))
        async with whole_service(database, tmp_path, tools=TOOLS, declared=declared, config=config, environment=environment) as whole:
            hidden = await lived(whole, web)
            things = await things_of(whole)
            given = await answers_of(whole, things)
            log = whole.log.getvalue()
    bodies = [asked.body.decode() for asked in web.asked] + [json.dumps(seen.body) for seen in model.requests]
    for name in ("K", "ODD"):
        assert sum(json.dumps(SECRETS[name], ensure_ascii=False)[1:-1] in body for body in bodies) > 3, f"{name} was sent"
    pages = {path for path, _, _ in given}
    seen = {path for path, status, _ in given if status == 200}
    assert seen == pages, f"nothing was seen of {pages - seen}"
    found = [f"table {table}: {what}" for table, row in await rows_of(database) for what in where_found(row, hidden)]
    found += [f"GET {path}: {what}" for path, _, text in given for what in where_found(text, hidden)]
    found += [f"log: {what}" for what in where_found(log, hidden)]
    assert not found, f"{len(found)} places:\n" + "\n".join(dict.fromkeys(found))
    assert "using ***" in log, "tools did write lines"


async def shown_once(whole: Whole, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer that holds a secret, which a repetition of the call does not."""
    key = {"idempotency-key": f"once-{path}"}
    first, second = [await whole.client.post(path, json=body, headers=key) for _ in range(2)]
    assert first.status_code == second.status_code and first.status_code < 300, first.text
    assert second.headers["idempotency-replayed"] == "true"
    made: dict[str, Any] = first.json()
    secret = made["key"] if "key" in made else made["secret"]
    assert secret and secret not in second.text
    return made


async def until_told(web: Web) -> None:
    async with asyncio.timeout(30):
        while not any(asked.target.startswith("/channel") for asked in web.asked):  # noqa: ASYNC110 - the engine's moment
            await asyncio.sleep(0.02)


async def lived(whole: Whole, web: Web) -> dict[str, str]:
    """Let everything happen that secrets are needed for; gives all of them, also those that were made meanwhile."""
    hidden = {**SECRETS, **CONFIGURED}
    webhook = {
        "url": web.url("/told"),
        "events": ["*"],
        "include": ["output"],
        "headers": {"Authorization": CONFIGURED["header of a webhook"]},
    }
    made = await shown_once(whole, "/v1/webhooks", webhook)
    rotated = await shown_once(whole, f"/v1/webhooks/{made['webhook_id']}/rotate", {})
    key = await shown_once(whole, "/v1/admin/keys", {"name": "made", "roles": ["viewer"]})
    newer = await shown_once(whole, f"/v1/admin/keys/{key['key_id']}/rotate", {})
    await shown_once(whole, "/v1/admin/callback-secret", {})
    hidden |= {"webhook": made["secret"], "webhook, rotated": rotated["secret"], "key": key["key"], "key, rotated": newer["key"]}
    await whole.engine.subscriptions.round()
    await whole.publish(HEARS)
    assert (await whole.client.post("/v1/workflows/hears/trigger", json={"correlation_key": "hears"})).status_code == 202
    text = leaking(web.url(""))
    for version in ("1.0", "1.1"):
        await whole.publish(text.replace("VERSION", version))
    draft = await whole.client.post(
        "/v1/workflows?draft=true", content=text.replace("VERSION", "1.2"), headers={"content-type": "application/yaml"}
    )
    assert draft.status_code in (200, 201), draft.text
    view = await whole.run("leak", callback_url=web.url("/told"))
    decided = set()
    async with asyncio.timeout(60):
        while len(ADDRESSES) < 2:
            for waiting in view["waiting_for"]:
                if waiting["kind"] == "approval" and waiting["approval_id"] not in decided:
                    decided.add(waiting["approval_id"])
                    said = await whole.client.post(f"/v1/approvals/{waiting['approval_id']}/approve", json={"comment": "yes"})
                    assert said.status_code == 200, said.text
            await asyncio.sleep(0.02)
            view = (await whole.client.get(view["links"]["self"])).json()
            assert view["ended_at"] is None, view["error"]
    await until_told(web)
    told = [json.loads(asked.body)["text"] for asked in web.asked if asked.target.startswith("/channel")]
    (hidden["link of an approval"],) = {token for text in told for token in re.findall(r"/approve/([\w.~-]+)", text)}
    for path, address in ADDRESSES.items():
        hidden[f"address of {path}"] = token = address.rpartition("/")[2]
        assert (await whole.anonymous.post(f"/v1/callbacks/{token}/heartbeat")).status_code == 200
        told = await whole.anonymous.post(f"/v1/callbacks/{token}", json={"pages": 3})
        assert told.status_code == 200, told.text
    async with asyncio.timeout(60):
        while (await whole.client.get(view["links"]["self"])).json()["ended_at"] is None:  # noqa: ASYNC110 - the engine's moment
            await asyncio.sleep(0.02)
    return hidden


async def things_of(whole: Whole) -> dict[str, list[str]]:
    """Names for the parameters of all paths."""

    async def listed(path: str, name: str) -> list[str]:
        return [str(one[name]) for one in (await whole.client.get(path)).json()["items"]]

    instances = await listed("/v1/instances", "instance_id")
    return {
        "instance_id": instances,
        "path": [path for id in instances for path in await listed(f"/v1/instances/{id}/steps", "path")],
        "workflow_id": await listed("/v1/workflows", "workflow_id"),
        "version": ["1.0", "1.1", "1.2"],
        "approval_id": await listed("/v1/approvals", "approval_id"),
        "name": await listed("/v1/tools", "name"),
        "key_id": await listed("/v1/admin/keys", "key_id"),
        "webhook_id": await listed("/v1/webhooks", "webhook_id"),
    }
