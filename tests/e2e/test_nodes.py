"""Two services on one database and one Redis: what one of them leaves behind when it is killed, and news that reach the other."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from agiwo.testing.servers import RedisServer
from kit.process import Start

LOOK = 0.05  # seconds between two looks

TOOLS = """
import asyncio
import os
from pathlib import Path

from agiwo.toolkit import Effect, tool

FOLDER = Path(os.environ["MARKS"])


def mark(text: str) -> None:
    with (FOLDER / "marks").open("a") as file:
        file.write(text + "\\n")


@tool(name="gate.pass", description="Waits until the gate is open.", effect=Effect.IDEMPOTENT_WRITE,
      parameters={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False})
async def wait_at_gate(name: str) -> str:
    mark(f"gate {os.getpid()} {name}")
    while not (FOLDER / "open").exists():
        await asyncio.sleep(0.02)
    return name


@tool(name="gate.sign", description="Signs the book, which cannot be undone.", effect=Effect.IRREVERSIBLE,
      parameters={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False})
async def sign(name: str) -> str:
    mark(f"sign {os.getpid()} {name}")
    return name
"""

FLOW = """
workflow:
  id: visit
  version: "1"
  input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
  steps:
    - {id: gate, type: tool_call, tool: gate.pass, parameters: {name: "{{ input.name }}"}, timeout: 100s}
    - {id: sign, type: tool_call, tool: gate.sign, parameters: {name: "{{ input.name }}"}}
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_a_killed_node_left_goes_on_at_the_other_and_nothing_unsafe_is_done_twice(
    start: Start, redis_server: RedisServer, redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "visit.yaml").write_text(FLOW)
    own = {"AGIWO_REDIS_URL": redis_url, "AGIWO_LEASE": "2", "MARKS": str(tmp_path)}
    arguments = ("--workflows", str(tmp_path / "flows"), "--tools", str(tmp_path / "tools.py"))
    killed, other = (start(*arguments, AGIWO_NODE_NAME=name, **own) for name in ("killed", "other"))
    with httpx.Client(base_url=killed.url) as to_killed, httpx.Client(base_url=other.url) as to_other:
        ready = to_other.get("/readyz")
        assert (ready.status_code, ready.json()["parts"]) == (200, {"database": True, "engine": True, "redis": True})
        ids = {}
        for n in range(10):
            begun = (to_killed if n % 2 else to_other).post("/v1/workflows/visit/trigger", json={"input": {"name": f"guest-{n}"}})
            assert begun.status_code == 202, begun.text + "".join(other.seen)
            ids[f"guest-{n}"] = begun.json()["instance_id"]
        while len(marks(tmp_path)) < len(ids):
            time.sleep(LOOK)
        killed.end(signal.SIGKILL)
        (tmp_path / "open").touch()
        for id in ids.values():
            while (view := to_other.get(f"/v1/instances/{id}").json())["ended_at"] is None:
                time.sleep(LOOK)
            assert view["status"] == "SUCCESS", json.dumps(view)
        redis_server.stop()
        try:
            # Without Redis it is as ready as before, and says so.
            while (ready := to_other.get("/readyz")).json()["parts"]["redis"]:
                assert ready.status_code == 200
                time.sleep(LOOK)
            assert (ready.status_code, ready.json()["status"]) == (200, "ok")
            numbers = to_other.get("/metrics").text
            assert "agiwo_redis_up 0.0" in numbers
        finally:
            redis_server.start()
        other.line_with("redis is back")
        assert "agiwo_redis_up 1.0" in to_other.get("/metrics").text
    signed = Counter(name for what, _, name in marks(tmp_path) if what == "sign")
    assert signed == Counter(dict.fromkeys(ids, 1))


def marks(folder: Path) -> list[tuple[str, str, str]]:
    path = folder / "marks"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(what, pid, name) for what, pid, name in (line.split() for line in lines)]
