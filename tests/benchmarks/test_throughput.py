"""Three no-op steps, each durable before the next: over HTTP with one request an instance, and in process.

`make bench` prints the figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from agiwo import Agiwo
from agiwo.store.embedded import EmbeddedPostgres
from kit.measure import WORKFLOW, Meter, children_of, emit, quantiles
from kit.noop_tools import payload

IN_FLIGHT = 64
INSTANCES = int(os.environ.get("BENCH_INSTANCES", "1500"))
TESTS = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def durable_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A Postgres with fsync on, as in production."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("bench"), report=print) as server:
        yield server


def postgres_pids(server: EmbeddedPostgres) -> list[int]:
    return [pid for pid in children_of(os.getpid())[1:] if b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]][:1]


@pytest.mark.timeout(300)
async def test_w1_and_w2_over_http(durable_postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "three_noops.yaml").write_text(WORKFLOW)
    env = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'app'}"}
    env |= {"AGIWO_DATABASE_URL": durable_postgres.url, "AGIWO_SECRET_KEY": "b" * 40, "AGIWO_LOG_LEVEL": "warning"}
    port = 18377
    command = [sys.executable, "-m", "agiwo", "serve", "--port", str(port), "--workflows", str(tmp_path), "--tools", "kit.noop_tools"]
    with (tmp_path / "log").open("wb") as log:
        service = await asyncio.create_subprocess_exec(*command, env=env, stdout=log, stderr=log)
        connection = await asyncpg.connect(durable_postgres.url)
        url = f"http://127.0.0.1:{port}"
        limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
        try:
            async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
                await _ready(client)
                await _load(port, 100, 32)
                meter = Meter(connection, [service.pid], postgres_pids(durable_postgres))
                await meter.begin()
                await _load(port, INSTANCES, IN_FLIGHT)
                await meter.end()
                _report("HTTP, one request an instance", meter, INSTANCES)
                waits = []
                for i in range(200):
                    start = time.perf_counter()
                    answer = await client.post("/v1/workflows/three_noops/trigger?wait=30s", json={"input": payload(i, 0)})
                    waits.append(time.perf_counter() - start)
                    assert answer.json()["status"] == "SUCCESS", answer.text
                emit("W2", "HTTP", n=len(waits), **quantiles(waits))
        finally:
            service.terminate()
            await service.wait()
            await connection.close()


async def _load(port: int, count: int, in_flight: int) -> None:
    """Drive with raw keep-alive connections: a heavy client would take the processor that is measured."""
    numbers = iter(range(count))

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in numbers:
            body = json.dumps({"input": payload(i, 0)}).encode()
            head = "POST /v1/workflows/three_noops/trigger?wait=30s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            line = await reader.readline()
            length = 0
            while (header := await reader.readline()) != b"\r\n":
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            answer = await reader.readexactly(length)
            assert b" 200 " in line or b" 202 " in line, (line, answer)
            assert b'"SUCCESS"' in answer, answer
        writer.close()

    await asyncio.gather(*(one_connection() for _ in range(in_flight)))


async def _ready(client: httpx.AsyncClient) -> None:
    for _ in range(300):
        try:
            if (await client.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError("the service did not come up")


@pytest.mark.timeout(300)
async def test_w1_and_w2_in_process(durable_postgres: EmbeddedPostgres) -> None:
    async with Agiwo(durable_postgres.url, tool_modules=["kit.noop_tools"], node_name="bench", log_level="warning") as agiwo:
        await agiwo.publish(WORKFLOW)
        connection = await asyncpg.connect(durable_postgres.url)
        room = asyncio.Semaphore(IN_FLIGHT)

        async def one(i: int) -> None:
            async with room:
                assert (await agiwo.run("three_noops", payload(i, 0)))["output"] == payload(i, 0) | {"step": 3}

        await asyncio.gather(*(one(i) for i in range(100)))
        meter = Meter(connection, [], postgres_pids(durable_postgres))
        await meter.begin()
        await asyncio.gather(*(one(i) for i in range(INSTANCES)))
        await meter.end()
        _report("in process", meter, INSTANCES)
        waits = []
        for i in range(200):
            start = time.perf_counter()
            await one(i)
            waits.append(time.perf_counter() - start)
        emit("W2", "in process", n=len(waits), **quantiles(waits))
        await connection.close()


def _report(variant: str, meter: Meter, instances: int) -> None:
    steps = instances * 3
    r = meter.result
    emit(
        "W1",
        f"{variant}, {IN_FLIGHT} in flight, no-op steps, fsync on",
        n=instances,
        steps_per_s=round(steps / r["wall_s"], 1),
        client_cpu_ms_per_step=round(r["client_cpu_s"] / steps * 1000, 4),
        engine_cpu_ms_per_step=round(r["engine_cpu_s"] / steps * 1000, 4),
        pg_cpu_ms_per_step=round(r["pg_cpu_s"] / steps * 1000, 4),
        commits_per_step=round(r["commits"] / steps, 4),
        wal_bytes_per_step=round(r["wal_bytes"] / steps),
    )
