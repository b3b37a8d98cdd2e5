"""The Redis-compatible server of the tests is a real one, can be taken away and brought back, and ends with its owner."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

from redis.asyncio import Redis

from agiwo.testing.servers import RedisServer

OWNER = """
import sys
from agiwo.testing.servers import RedisServer
server = RedisServer()
print(server.start(), flush=True)
sys.stdin.read()
"""


async def test_scripts_and_streams_work(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as client:
        assert await client.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, "count", 3) == 3
        assert await client.xadd("news", {"a": "1"})


async def test_server_that_was_taken_away_comes_back_empty_at_the_same_url(redis_server: RedisServer, redis_url: str) -> None:
    async with Redis.from_url(redis_url) as client:
        await client.set("kept", 1)
    redis_server.stop()
    assert redis_server.start() == redis_url
    async with Redis.from_url(redis_url) as client:
        assert await client.get("kept") is None


async def test_killed_owner_takes_its_server_along() -> None:
    with subprocess.Popen(  # noqa: ASYNC220  (short, and nothing else runs in this loop)
        [sys.executable, "-c", OWNER],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        async with Redis.from_url(url) as client:
            server = int((await client.info("server"))["process_id"])
        handle = os.pidfd_open(server)
        owner.kill()
    readable, _, _ = select.select([handle], [], [], 30)
    os.close(handle)
    shutil.rmtree(Path(url.removeprefix("unix://")).parent)
    assert readable, "the server lives on"
