"""Calls of a whole service to a real local server: attempts that are really ended, waits that the server asks for, servers that drip."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

import agiwo
from agiwo.service.callers import ADMIN, Caller
from kit.web import Asked, Web, answer

CALLER = Caller("default", "key:test", frozenset({ADMIN}))


def flow(more: str) -> str:
    call = "{id: get, type: tool_call, tool: http.request, parameters: {url: '{{ input.url }}'}"
    return f'id: calling\nversion: "1"\noutput: "{{{{ steps.get.output.body }}}}"\nsteps:\n  - {call}, {more}}}\n'


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web() as server:
        yield server


@pytest.fixture
async def running(database: str) -> AsyncIterator[agiwo.Agiwo]:
    settings: dict[str, Any] = {"outbound_allow": "127.0.0.0/8", "breakers": {"http.request": {"failures": 1000}}}
    async with agiwo.Agiwo(database, node_name="http", drain=1, **settings) as made:
        yield made


async def records(running: agiwo.Agiwo, id: UUID | str, type: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for batch in running.services.following.records(CALLER, UUID(str(id)), 0):
        found += [dict(record) for record in batch if record["type"] == type]
    return found


async def test_an_attempt_that_timed_out_is_closed_before_the_next_one_is_made(running: agiwo.Agiwo, web: Web) -> None:
    """REQ-11: the first connection is gone when the second request comes, and the step's result is that of the second attempt."""
    seen: list[str] = []

    async def first_never(asked: Asked, writer: asyncio.StreamWriter) -> None:
        number = len(web.asked)
        seen.append(f"asked {number}")
        if number == 1:
            try:
                while not writer.transport.is_closing():
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            except ConnectionError:
                pass
            seen.append("closed 1")
            return
        writer.write(answer(200, '"second"'))

    web.says["/"] = first_never
    await running.publish(flow("timeout: 300ms, retry_policy: {max_attempts: 2, delay: 0.2}"))
    view = await running.run("calling", {"url": web.url()}, within=20)
    assert (view["status"], view["output"]) == ("SUCCESS", "second")
    assert seen == ["asked 1", "closed 1", "asked 2"]
    (again,) = await records(running, view["instance_id"], "step.retrying")
    assert again["data"]["error"]["type"] == "Timeout"


async def test_all_that_were_limited_wait_for_as_long_as_they_were_told_and_do_not_come_back_together(
    running: agiwo.Agiwo, web: Web
) -> None:
    """REQ-12."""
    limited: set[str] = set()

    async def once(asked: Asked, writer: asyncio.StreamWriter) -> None:
        first = asked.target not in limited
        limited.add(asked.target)
        writer.write(answer(429, Retry_After="1") if first else answer(200, "1"))

    for n in range(20):
        web.says[f"/{n}"] = once
    await running.publish(flow("retry_policy: {max_attempts: 2, delay: 0}"))
    views = await asyncio.gather(*(running.run("calling", {"url": web.url(f"/{n}")}, within=20) for n in range(20)))
    assert {view["status"] for view in views} == {"SUCCESS"}
    delays = [(await records(running, view["instance_id"], "step.retrying"))[0]["data"]["delay"] for view in views]
    assert min(delays) >= 1
    assert max(delays) - min(delays) > 0.1
    assert len(set(delays)) == 20


@pytest.mark.parametrize(
    ("asks", "least", "most"), [("soon", 0.05, 0.05), ("-5", 0.05, 0.05), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.05, 0.05), ("0.5", 0.5, 1.0)]
)
async def test_a_wait_that_makes_no_sense_leaves_the_policy_as_it_is(
    running: agiwo.Agiwo, web: Web, asks: str, least: float, most: float
) -> None:
    """REQ-12."""

    async def once(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(503, Retry_After=asks) if len(web.asked) == 1 else answer(200, "1"))

    web.says["/"] = once
    await running.publish(flow("retry_policy: {max_attempts: 2, delay: 50ms}"))
    view = await running.run("calling", {"url": web.url()}, within=20)
    assert view["status"] == "SUCCESS"
    (again,) = await records(running, view["instance_id"], "step.retrying")
    assert least <= again["data"]["delay"] <= most


async def test_a_wait_that_is_longer_than_what_is_left_fails_at_once_and_says_so(running: agiwo.Agiwo, web: Web) -> None:
    """REQ-12."""
    web.says["/"] = answer(429, Retry_After="86400")
    await running.publish(flow("total_timeout: 1h, retry_policy: {max_attempts: 3, delay: 0}"))
    view = await running.run("calling", {"url": web.url()}, within=20)
    assert (view["status"], view["error"]["type"]) == ("FAILED", "RateLimited")
    assert "would come after total_timeout" in view["error"]["message"]
    assert view["error"]["retry_after"] == 86_400
    assert len(web.asked) == 1


async def test_a_server_that_drips_is_ended_at_the_step_s_time(running: agiwo.Agiwo, web: Web) -> None:
    """REQ-13: one clock over the whole attempt, whatever comes in between."""

    async def drip(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n")
        while not writer.transport.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    web.says["/"] = drip
    await running.publish(flow("timeout: 300ms, retry_policy: {max_attempts: 1}"))
    view = await running.run("calling", {"url": web.url()}, within=20)
    assert (view["status"], view["error"]["type"]) == ("FAILED", "Timeout")
    await web.gone.wait()
