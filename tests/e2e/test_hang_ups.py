"""Clients that hang up at any moment of any call, and a service that is killed right after it has accepted one: all counts agree."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from typing import Any

import httpx
import pytest

from kit.process import Start, free_port
from kit.web import Asked, Web, answer

EACH = 40
STAGES = ("connected", "half a head", "head", "half a body", "whole", "first byte")
DONE = "{id: done, type: tool_call, tool: http.request, parameters: {method: PUT, url: 'ORIGIN/done', body: '{{ input.n }}'}}"
FIRST = {
    "plain": None,
    "held": "{id: ask, type: approval, approval: {title: 'May it?'}}",
    "heard": "{id: hear, type: wait_for_signal, event: go}",
    "called": "{id: job, type: tool_call, tool: http.request, completion: callback, parameters: {method: PUT, url: 'ORIGIN/job', "
    "body: {n: '{{ input.n }}', to: '{{ secrets.callback_url }}'}}}",
}


def definition(name: str, origin: str) -> str:
    steps = [step for step in (FIRST.get(name), DONE) if step is not None]
    return f"workflow:\n  id: {name}\n  version: '1'\n  steps:\n" + "".join(f"    - {step}\n".replace("ORIGIN", origin) for step in steps)


class Call:
    """One call of one client, which always has the same key."""

    def __init__(self, path: str, body: Any, key: str, type: str = "application/json") -> None:
        self.path = path
        self.body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.headers = {"idempotency-key": key, "content-type": type}

    async def hang_up(self, port: int, stage: str) -> None:
        """Make the call as far as `stage`, and reset the connection."""
        lines = [f"POST {self.path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(self.body)}"]
        head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]).encode()
        half = len(self.body) // 2
        sent = {"connected": b"", "half a head": head[: len(head) // 2], "head": head, "half a body": head + self.body[:half]}
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent.get(stage, head + self.body))
        await writer.drain()
        if stage == "first byte":
            await reader.read(1)
        writer.transport.abort()

    async def make(self, client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(self.path, content=self.body, headers=self.headers)


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 - the moment is another process's
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_whatever_clients_hang_up_on_and_whenever_is_done_once_or_not_at_all(start: Start) -> None:
    """REQ-38 and REQ-07: 200 clients in all stages of five calls, a kill 10 ms after a 202, and then each call is made again."""
    port = free_port()
    own = {"AGIWO_NODE_NAME": "n1", "AGIWO_OUTBOUND_ALLOW": "127.0.0.1"}
    done: dict[int, set[str]] = {}
    jobs: dict[int, str] = {}

    async def noted(asked: Asked, writer: asyncio.StreamWriter) -> None:
        done.setdefault(json.loads(asked.body), set()).add(asked.headers["idempotency-key"])
        writer.write(answer(200, "{}"))

    async def taken(asked: Asked, writer: asyncio.StreamWriter) -> None:
        job = json.loads(asked.body)
        jobs[job["n"]] = job["to"]
        writer.write(answer(202, "{}"))

    async with Web() as web, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        web.says |= {"/done": noted, "/job": taken}
        service = await asyncio.to_thread(lambda: start(port=port, **own))
        for name in FIRST:
            text = definition(name, web.url(""))
            assert (await client.post("/v1/workflows", content=text, headers={"content-type": "application/yaml"})).status_code == 201
        numbers = {name: range(at * EACH, at * EACH + EACH) for at, name in enumerate(FIRST)}
        waiting = {}
        for name in ("held", "heard", "called"):
            for n in numbers[name]:
                begun = await client.post(f"/v1/workflows/{name}/trigger", json={"input": {"n": n}})
                waiting[n] = begun.json()["instance_id"]

        async def all_wait() -> bool:
            rows = await listed(client, "/v1/instances?status=WAITING")
            return len(rows) == 3 * EACH

        await until(all_wait)
        asked = {row["instance_id"]: row["approval_id"] for row in await listed(client, "/v1/approvals?status=pending")}
        calls = [Call("/v1/workflows/plain/trigger", {"input": {"n": n}}, f"k-{n}") for n in numbers["plain"]]
        calls += [Call(f"/v1/approvals/{asked[waiting[n]]}/approve", {"comment": "yes"}, f"k-{n}") for n in numbers["held"]]
        calls += [Call(f"/v1/instances/{waiting[n]}/signals", {"event": "go", "id": f"s-{n}"}, f"k-{n}") for n in numbers["heard"]]
        calls += [Call("/v1/callbacks/" + jobs[n].rpartition("/")[2], {"ok": n}, f"k-{n}") for n in numbers["called"]]
        calls += [Call("/v1/workflows", definition(f"new_{n}", web.url("")), f"k-new-{n}", "application/yaml") for n in range(EACH)]
        assert len(calls) == 200
        await asyncio.gather(*(call.hang_up(port, STAGES[at % len(STAGES)]) for at, call in enumerate(calls)))
        last = Call("/v1/workflows/plain/trigger", {"input": {"n": 999}}, "k-last")
        accepted = await last.make(client)
        assert accepted.status_code == 202
        await asyncio.sleep(0.01)
        service.end(signal.SIGKILL)

        await asyncio.to_thread(lambda: start(port=port, **own))
        answers = [await call.make(client) for call in (*calls, last)]
        odd = [(call.path, one.status_code) for call, one in zip((*calls, last), answers, strict=True) if one.status_code >= 300]
        assert all(path.startswith("/v1/callbacks/") and status == 410 for path, status in odd), "a step that is over takes no answer"
        assert answers[-1].json()["instance_id"] == accepted.json()["instance_id"]

        async def all_ended() -> bool:
            rows = await listed(client, "/v1/instances")
            assert len(rows) == 4 * EACH + 1, Counter(row["workflow_id"] for row in rows)
            return all(row["ended_at"] is not None for row in rows)

        await until(all_ended)
        states = Counter((row["workflow_id"], row["status"]) for row in await listed(client, "/v1/instances"))
        assert states == {("plain", "SUCCESS"): EACH + 1, **{(name, "SUCCESS"): EACH for name in ("held", "heard", "called")}}
        assert sorted(done) == [*range(4 * EACH), 999]
        assert {len(keys) for keys in done.values()} == {1}, "each was done under one key"
        names = [row["workflow_id"] for row in await listed(client, "/v1/workflows")]
        assert sorted(names) == sorted([*FIRST, *(f"new_{n}" for n in range(EACH))])
        assert (await client.get("/v1/admin/invariants")).json()["hold"] is True


async def listed(client: httpx.AsyncClient, path: str) -> list[Any]:
    rows: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await client.get(path, params={"limit": 200, **({"cursor": cursor} if cursor else {})})).json()
        rows += page["items"]
        cursor = page["next_cursor"]
    return rows
