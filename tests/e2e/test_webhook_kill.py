"""A service that is killed between the commit of an event and its delivery tells of it all the same, once it is back."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from agiwo.engine.telling import EVENTS
from kit.process import Start
from kit.web import Asked, Web, answer

CHAIN = """
workflow:
  id: chain
  version: "1.0"
  steps:
    - {id: a, type: tool_call, tool: debug.echo, parameters: {value: 1}}
    - {id: b, type: tool_call, tool: debug.echo, parameters: {value: 2}}
    - {id: c, type: tool_call, tool: debug.echo, parameters: {value: 3}}
"""


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - the moment is another process's
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_req_38_an_event_outlives_a_kill_between_its_commit_and_its_delivery(start: Start) -> None:
    own = {"AGIWO_NODE_NAME": "n1", "AGIWO_OUTBOUND_ALLOW": "127.0.0.1"}
    async with Web() as web:
        web.says["/hook"] = answer(204)
        service = await asyncio.to_thread(lambda: start(**own))
        async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
            await client.post("/v1/workflows", content=CHAIN, headers={"content-type": "application/yaml"})
            made = (await client.post("/v1/webhooks", json={"url": web.url("/hook"), "events": ["*"]})).json()
            while not web.asked:  # the webhook counts within a second
                await client.post("/v1/workflows/chain/trigger?wait=10s", json={})
                await asyncio.sleep(0.05)
            open_ones = f"/v1/webhooks/{made['webhook_id']}/deliveries?state=pending"
            while (await client.get(open_ones)).json()["items"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

            async def kill(asked: Asked, writer: asyncio.StreamWriter) -> None:
                service.process.send_signal(signal.SIGKILL)
                web.says["/hook"] = answer(204)
                writer.close()

            seen = len(web.asked)
            web.says["/hook"] = kill
            instance = (await client.post("/v1/workflows/chain/trigger", json={})).json()["instance_id"]
            await until(lambda: service.process.poll() is not None)
        again = await asyncio.to_thread(lambda: start(**own))
        await until(lambda: b"instance.succeeded" in web.asked[-1].body and instance.encode() in web.asked[-1].body)
        async with httpx.AsyncClient(base_url=again.url, timeout=30) as client:
            history = (await client.get(f"/v1/instances/{instance}/history")).json()["items"]
        told = [one for one in web.asked[seen:] if instance.encode() in one.body]
        events = [Webhook(made["secret"]).verify(one.body, one.headers) for one in told]
        assert told[0].headers["webhook-id"] == told[1].headers["webhook-id"], "the one that was under way comes again"
        numbers = list(dict.fromkeys(event["data"]["seq"] for event in events))
        assert numbers == [record["seq"] for record in history if record["type"] in EVENTS or record["type"] == "instance.ended"]
        assert len({one.headers["webhook-id"] for one in told}) == len(numbers)
