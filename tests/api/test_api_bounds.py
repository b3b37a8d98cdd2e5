"""What a client may cost is bounded, and one that goes away leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from agiwo.api import create_app
from agiwo.api.routing import VALUES_LIMIT
from agiwo.cli import serving
from agiwo.clock import SystemClock
from agiwo.service.callers import ApiKey, ApiKeys
from agiwo.service.keyring import KeyRing
from agiwo.store.keys import PostgresKeys
from agiwo.store.pool import SIZE, service_engine
from kit.api import World

OPS = ApiKeys([ApiKey.of("ops", "secret-a")])
TRIGGER = "/v1/workflows/echo/trigger"


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[int]:
    """The application on a loopback socket, spoken to as `agiwo serve` does."""
    config = uvicorn.Config(app, http=serving._Protocol, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        running = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await running


async def said(port: int, *sent: bytes) -> bytes:
    """What the service says to these bytes until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in sent:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


def post(path: str, body: bytes, length: int | None = None, **headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", "authorization: Bearer secret-a", "content-type: application/json"]
    lines += [f"content-length: {len(body) if length is None else length}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_a_body_that_never_arrives_whole_is_408(world: World) -> None:
    async with listening(create_app(world.services, keys=OPS, body_within=0.2)) as port:
        answer = await said(port, post(TRIGGER, b'{"input"', length=1000))
        assert answer.startswith(b"HTTP/1.1 408 ") and b'"code":"body_timeout"' in answer and b"connection: close" in answer
        whole = await said(port, post(TRIGGER, b"{}", connection="close"))
        assert whole.startswith(b"HTTP/1.1 202 ")


async def test_a_head_that_is_late_or_without_end_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_WITHIN", 0.3)
    async with listening(create_app(world.services, keys=OPS)) as port:
        for begun in (b"", b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: "):
            answer = await said(port, begun)
            assert answer.startswith(b"HTTP/1.1 408 ") and b'"code":"head_timeout"' in answer
        endless = await said(port, b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: ", *[b"a" * 65_536] * 4)
        assert endless == b"reset" or endless.startswith(b"HTTP/1.1 431 ")
        kept = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
        assert (await said(port, kept, kept, b"GET /hea")).count(b'{"status":"ok"}') == 2


async def test_long_addresses_and_large_headers_are_refused(world: World) -> None:
    long = await world.client.get("/v1/instances", params={"cursor": "x" * 20_000})
    assert (long.status_code, long.json()["code"]) == (414, "address_too_long")
    large = await world.client.get("/v1/instances", headers={"x-large": "x" * 70_000})
    assert (large.status_code, large.json()["code"]) == (431, "headers_too_large")


@pytest.mark.parametrize("part", [b"1,", b"[],", b"{},", b'"a",', b'{"a":[]},'])
async def test_a_body_of_very_many_values_is_refused_before_they_are_made(world: World, part: bytes) -> None:
    body = b'{"input": [' + part * (VALUES_LIMIT + 1) + b"1]}"
    answer = await world.client.post(TRIGGER, content=body[:9_900_000], headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_many_values")


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (TRIGGER, {f"k{n}": 1 for n in range(100_000)}, "/k0"),
        (TRIGGER, {"labels": {f"k{n}": n for n in range(100_000)}}, "/labels"),
        (TRIGGER, {"interrupt_before": [1] * 100_000}, "/interrupt_before"),
        ("/v1/webhooks", {"url": "https://x.example", "events": ["*"], "headers": {f"k{n}": n for n in range(100_000)}}, "/headers"),
        ("/v1/signals", {f"k{n}": 1 for n in range(100_000)}, "/k0"),
    ],
)
async def test_very_many_mistakes_in_a_body_are_not_told_one_by_one(world: World, path: str, body: dict[str, Any], pointer: str) -> None:
    """Each of them would be an error with its place: megabytes of answer, and seconds in which nothing else is answered."""
    answer = await world.client.post(path, json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert len(answer.content) < 20_000
    assert "100000" in answer.text


async def test_a_few_unknown_fields_are_all_named(world: World) -> None:
    answer = await world.client.post(TRIGGER, json={"a": 1, "b": 2, "labels": {"x": 1}})
    assert {error["pointer"] for error in answer.json()["errors"]} == {"/a", "/b", "/labels/x"}


async def test_commas_in_a_text_are_no_values(world: World) -> None:
    text = 'a,[{\\"' * (VALUES_LIMIT // 2)
    answer = await world.client.post(TRIGGER, content=b'{"input": "' + text.encode() + b'"}', headers={"content-type": "application/json"})
    assert answer.status_code == 202


async def test_streams_are_counted_by_tenant_and_given_back(world: World) -> None:
    waiting = await world.run("report", input={"week": "1"})
    path = f"/v1/instances/{waiting['instance_id']}/events"
    app = create_app(world.services, keys=OPS, streams=2)
    async with (
        listening(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={"authorization": "Bearer secret-a"}, timeout=30) as client,
    ):
        async with client.stream("GET", path) as one, client.stream("GET", path) as two:
            assert (one.status_code, two.status_code) == (200, 200)
            refused = await client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        while app.state.streams._open:
            await client.get("/healthz")
        async with client.stream("GET", path) as again:
            assert again.status_code == 200


NOBODY = "01a22ed9-3172-731c-bdcf-4bb99f4bea97"


async def test_a_stream_ends_when_its_key_is_revoked(world: World, module_database: str) -> None:
    made = (await world.client.post("/v1/admin/keys", json={"name": "watcher", "roles": ["viewer"]})).json()
    waiting = await world.run("report", input={"week": "1"})
    pool = service_engine(module_database)
    ring = KeyRing(OPS, PostgresKeys(pool), SystemClock(), fresh=0.0)
    async with (
        listening(create_app(world.services, keys=ring)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        client.stream("GET", f"{waiting['links']['events']}", headers={"authorization": f"Bearer {made['key']}"}) as stream,
    ):
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith("id: ")
        assert (await world.client.post(f"/v1/admin/keys/{made['key_id']}/revoke", json={})).status_code == 200
        await world.client.post(f"/v1/approvals/{waiting['waiting_for'][0]['approval_id']}/approve", json={})
        rest = [line async for line in lines]
    assert "event: step.approval_asked" in rest
    assert "event: instance.ended" not in rest
    await pool.dispose()


async def test_calls_that_are_given_up_leak_no_connection(world: World, module_database: str) -> None:
    """REQ-34."""
    lock, looking = [await asyncpg.connect(module_database) for _ in range(2)]
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agiwo-services' AND datname = current_database()"
    idle = mine + " AND state LIKE 'idle in transaction%'"
    waiting = mine + " AND wait_event_type = 'Lock'"
    try:
        for _ in range(4):
            transaction = lock.transaction()
            await transaction.start()
            await lock.execute("LOCK TABLE agiwo.instance IN ACCESS EXCLUSIVE MODE")
            calls = [asyncio.create_task(world.client.get("/v1/instances")) for _ in range(50)]
            while await looking.fetchval(waiting) == 0:
                continue
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            await transaction.rollback()
            assert await looking.fetchval(mine) <= SIZE
        for _ in range(20):
            assert (await world.client.get("/v1/instances")).status_code == 200
        assert await looking.fetchval(mine) <= SIZE
        assert await looking.fetchval(idle) == 0
    finally:
        await lock.close()
        await looking.close()


async def test_who_hangs_up_after_asking_has_it_done_once(world: World) -> None:
    """REQ-38: for a trigger and for a change, of which nobody reads the answer, and which is then asked for again."""
    async with listening(create_app(world.services, keys=OPS)) as port:

        async def asked_and_left(sent: bytes) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            await writer.drain()
            writer.transport.abort()

        bodies = [json.dumps({"input": {"word": f"left-{n}"}, "labels": {"left": str(n)}}).encode() for n in range(50)]
        keys = [{"Idempotency-Key": f"left-{n}"} for n in range(50)]
        await asyncio.gather(*(asked_and_left(post(TRIGGER, body, **key)) for body, key in zip(bodies, keys, strict=True)))
        headers = {"authorization": "Bearer secret-a", "content-type": "application/json"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
            ids = set()
            for n, (body, key) in enumerate(zip(bodies, keys, strict=True)):
                answer = await client.post(TRIGGER, content=body, headers=key)
                assert answer.status_code == 202
                ids.add(answer.json()["instance_id"])
                found: list[Any] = (await client.get(f"/v1/instances?label=left:{n}")).json()["items"]
                assert [one["instance_id"] for one in found] == [answer.json()["instance_id"]]
            assert len(ids) == 50
            view = await world.run("report", input={"week": "1"})
            at = f"{view['links']['self']}/cancel"
            await asyncio.gather(*(asked_and_left(post(at, b'{"reason": "left"}', **{"Idempotency-Key": "left-cancel"})) for _ in range(5)))
            answer = await client.post(at, content=b'{"reason": "left"}', headers={"Idempotency-Key": "left-cancel"})
            assert answer.status_code == 202, answer.text


async def test_a_thousand_rows_of_one_moment_are_paged_once_each_while_others_arrive_and_change(world: World, module_database: str) -> None:
    """REQ-37."""
    connection = await asyncpg.connect(module_database)
    fill = """
    INSERT INTO agiwo.instance (shard, id, tenant, workflow, version, content_hash, status, trace_id, created_at, labels)
    SELECT get_byte(uuid_send(id), 7), id, 'default', 'w', '1', 'h', 'RUNNING', 't', '2026-01-01T00:00:00Z', '{"paged": "x"}'
    FROM (SELECT ('01900000-0000-7' || substr(md5($1 || n), 1, 3) || '-8' || substr(md5($1 || n), 4, 3) || '-'
                  || substr(md5($1 || n), 7, 12))::uuid AS id FROM generate_series(1, $2::int) AS n) AS made
    RETURNING id
    """
    rows = {str(row["id"]) for row in await connection.fetch(fill, "first", 1000)}
    assert len(rows) == 1000
    seen: list[str] = []
    cursor: str | None = ""
    pages = 0
    while cursor is not None:
        page = (await world.client.get("/v1/instances?workflow=w&limit=100" + (f"&cursor={cursor}" if cursor else ""))).json()
        seen += [one["instance_id"] for one in page["items"]]
        cursor = page["next_cursor"]
        pages += 1
        await connection.fetch(fill, f"late-{pages}", 10)
        await connection.execute("UPDATE agiwo.instance SET status = 'WAITING' WHERE id = ANY($1::uuid[])", seen[-3:])
    await connection.close()
    assert len(seen) == len(set(seen)), "none twice"
    assert rows <= set(seen), "none left out"
