"""Circuits and fallbacks through the whole service, on a real Postgres: what waits for a probe waits over a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import agiwo
from agiwo.errors import StepError
from agiwo.service.callers import ADMIN, Caller
from agiwo.service.changes import PLAIN
from agiwo.tools.tool import Tool, tool

CALLER = Caller("default", "key:test", frozenset({ADMIN}))
LOOK = "{id: look, type: tool_call, tool: far.look, parameters: {what: '{{ input.what }}'}, retry_policy: {max_attempts: 1}"


def flow(id: str, more: str = "") -> str:
    return f'id: {id}\nversion: "1"\noutput: "{{{{ steps.look.output }}}}"\nsteps:\n  - {LOOK}{more}}}\n'


class Far:
    """Another side that a test takes away and brings back, as a tool."""

    def __init__(self) -> None:
        self.away = False
        self.asked: list[str] = []
        self.tool = self._tool()

    def _tool(self) -> Tool:
        @tool(name="far.look", effect="read", breaker={"failures": 2, "open_for": 60})
        async def look(what: str) -> str:
            self.asked.append(what)
            if self.away:
                raise StepError("nobody there", type="Unavailable", status=503)
            return what.upper()

        return look


def service(database: str, far: Far, open_for: float) -> agiwo.Agiwo:
    return agiwo.Agiwo(database, node_name="circuits", drain=1, tools=[far.tool], breakers={"far.look": {"open_for": open_for}})


async def until(running: agiwo.Agiwo, id: UUID, holds: Callable[[Any], bool]) -> None:
    """Returns when the history of an instance has a record of which this holds."""
    async for batch in running.services.following.records(CALLER, id, 0):
        if any(holds(record) for record in batch):
            return
    raise AssertionError("the instance has ended before")


async def test_a_step_waits_for_the_probe_over_a_restart_and_then_completes(database: str) -> None:
    """REQ-14."""
    far = Far()
    far.away = True
    async with service(database, far, 5.0) as running:
        await running.publish(flow("plain"))
        for _ in range(2):
            view = await running.run("plain", {"what": "a"}, within=20)
            assert (view["status"], view["error"]["type"]) == ("FAILED", "Unavailable")
        id = await running.trigger("plain", {"what": "b"})
        await until(running, id, lambda record: record["type"] == "step.queued")
        view = await running.show(id)
        assert view["status"] == "WAITING"
        assert (view["steps"]["look"]["status"], view["steps"]["look"]["reason"]) == ("QUEUED", "circuit_open")
        assert view["steps"]["look"]["error"]["cause"] == {"type": "Unavailable", "message": "nobody there", "status": 503}
        assert view["waiting_for"][0]["kind"] == "circuit"
        assert view["waiting_for"][0]["until"] > view["started_at"]
    assert far.asked == ["a", "a"]
    far.away = False
    async with service(database, far, 5.0) as running:
        async for _ in running.services.following.records(CALLER, id, 0):
            continue
        view = await running.show(id)
    assert (view["status"], view["output"]) == ("SUCCESS", "B")
    assert far.asked == ["a", "a", "b"]


async def test_a_step_that_waits_for_a_circuit_is_cancelled_with_its_instance(database: str) -> None:
    far = Far()
    far.away = True
    async with service(database, far, 3600.0) as running:
        await running.publish(flow("plain"))
        for _ in range(2):
            await running.run("plain", {"what": "a"}, within=20)
        id = await running.trigger("plain", {"what": "b"})
        await until(running, id, lambda record: record["type"] == "step.queued")
        await running.services.steering.cancel(CALLER, id, PLAIN)
        async for _ in running.services.following.records(CALLER, id, 0):
            continue
        assert (await running.show(id))["status"] == "CANCELLED"


async def test_the_last_good_result_is_handed_on_while_the_other_side_is_away(database: str) -> None:
    far = Far()
    async with service(database, far, 3600.0) as running:
        await running.publish(flow("recalling", ", fallback: {last_good: 1h}"))
        assert (await running.run("recalling", {"what": "a"}, within=20))["output"] == "A"
    far.away = True
    async with service(database, far, 3600.0) as running:
        for _ in range(4):
            view = await running.run("recalling", {"what": "a"}, within=20)
            assert (view["status"], view["output"]) == ("SUCCESS", "A")
            assert view["steps"]["look"]["marks"] == ["degraded"]
        assert view["steps"]["look"]["fallback"]["error"]["type"] == "CircuitOpen"
        assert far.asked == ["a"] * 3
        other = await running.run("recalling", {"what": "b"}, within=20)
        assert other["status"] == "FAILED"
        assert other["error"]["type"] == "CircuitOpen"
        assert other["error"]["others"][0]["type"] == "NotFound"
