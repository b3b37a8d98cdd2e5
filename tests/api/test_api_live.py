"""Following an instance over a real socket: news as they come, resuming, waiting, hanging up."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn

from kit.api import World


@pytest.fixture(scope="module")
async def live(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application on a loopback socket."""
    server = uvicorn.Server(uvicorn.Config(world.app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        running = asyncio.create_task(server.serve(sockets=[listening]))
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=base, headers={"authorization": "Bearer secret-a"}, timeout=30) as client:
            yield client
        server.should_exit = True
        await running


async def events(client: httpx.AsyncClient, path: str, **headers: str) -> AsyncIterator[tuple[str, str, Any]]:
    """The events of a stream as (id, name, data), as they arrive."""
    async with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                yield fields["id"], fields["event"], json.loads(fields["data"])
                fields = {}


async def test_a_client_that_stays_sees_the_question_answers_it_and_goes_on_seeing(live: httpx.AsyncClient) -> None:
    started = (await live.post("/v1/workflows/report/trigger", json={"input": {"week": "1"}})).json()
    seen = []
    async for id, name, data in events(live, started["links"]["events"]):
        seen.append((int(id), name))
        if name == "step.approval_asked":
            answer = await live.post(f"/v1/approvals/{data['data']['approval']['id']}/approve", json={})
            assert answer.status_code == 200
    assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][1] == "instance.ended"
    names = [name for _, name in seen]
    assert names.index("step.approval_asked") < names.index("step.approval_decided") < names.index("step.succeeded")


async def test_a_stream_resumes_after_the_last_number_and_may_begin_with_a_snapshot(world: World, live: httpx.AsyncClient) -> None:
    view = await world.run("echo")
    path = view["links"]["events"]
    every = [event async for event in events(live, path)]
    rest = [event async for event in events(live, path, **{"last-event-id": every[1][0]})]
    assert rest == every[2:]
    (id, name, whole), *more = [event async for event in events(live, f"{path}?snapshot=true")]
    assert (int(id), name, more) == (view["seq"], "snapshot", [])
    assert whole["output"] == view["output"]


async def test_waiting_answers_when_it_ended_or_stops_at_a_person(live: httpx.AsyncClient) -> None:
    ended = await live.post("/v1/workflows/echo/trigger?wait=20s", json={})
    assert (ended.status_code, ended.json()["status"]) == (200, "SUCCESS")
    waits = await live.post("/v1/workflows/report/trigger?wait=20s", json={"input": {"week": "1"}})
    assert (waits.status_code, waits.json()["status"], waits.json()["interrupted_at"]) == (200, "WAITING", "write")
    assert waits.json()["waiting_for"][0]["approval_id"]


async def test_twenty_triggers_in_parallel_under_one_key_start_one_instance(live: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "twenty"}
    answers = await asyncio.gather(*(live.post("/v1/workflows/echo/trigger", json={}, headers=headers) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["instance_id"] for answer in answers}) == 1


async def test_a_client_that_hangs_up_at_once_has_started_what_it_asked_for(world: World, live: httpx.AsyncClient) -> None:
    host, port = live.base_url.host, live.base_url.port
    for number in range(10):
        body = json.dumps({"correlation_key": f"gone-{number}"}).encode()
        head = (
            f"POST /v1/workflows/echo/trigger HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret-a\r\nidempotency-key: gone-{number}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        _, writer = await asyncio.open_connection(host, port)
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        # The same again under the same key: exactly one instance whether or not the first call was heard.
        again = await live.post(
            "/v1/workflows/echo/trigger", json={"correlation_key": f"gone-{number}"}, headers={"idempotency-key": f"gone-{number}"}
        )
        found = (await live.get(f"/v1/instances?correlation_key=gone-{number}")).json()["items"]
        assert [item["instance_id"] for item in found] == [again.json()["instance_id"]]
