"""The ledger over the API: what an instance used call by call, what a tenant used by day."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.cli.traces import trace_lines
from kit.api import REPORT, World

CALL = {
    "purpose": "main",
    "at": 1_790_000_000.0,
    "profile": "default",
    "kind": "openai",
    "asked": "m",
    "model": "m-1",
    "usage": {"input_tokens": 100, "output_tokens": 10, "cache_read_tokens": 40, "cache_write_tokens": 0, "reasoning_tokens": 0},
    "cost_micro_usd": 350,
    "price_version": "2026-11-01",
    "latency": 0.25,
    "request_id": "r-1",
}
REFUSED = {**CALL, "error": {"type": "ValidationError", "status": 400}, "usage": None, "cost_micro_usd": None}
JUNK = [7, None, {"profile": 3}, {"profile": "odd", "usage": [1], "at": "now", "latency": -1, "cost_micro_usd": 2**99, "error": "x"}]


async def reported(world: World, calls: list[Any]) -> str:
    world.model.calls = calls
    await world.publish(REPORT)
    started = await world.client.post("/v1/workflows/report/trigger?wait=20s", json={"input": {"week": "1"}})
    return str(started.json()["instance_id"])


async def test_an_instance_shows_every_call_and_what_they_come_to(world: World) -> None:
    id = await reported(world, [REFUSED, CALL])
    page = (await world.client.get(f"/v1/instances/{id}/usage")).json()
    assert [(row["path"], row["attempt"], row["number"], row["status"], row["cost_micro_usd"]) for row in page["items"]] == [
        ("write", 1, 1, "ValidationError", None),
        ("write", 1, 2, "ok", 350),
    ]
    assert page["items"][1]["latency_ms"] == 250
    assert (page["totals"]["calls"], page["totals"]["failed"], page["totals"]["cost_micro_usd"], page["totals"]["unpriced"]) == (
        2,
        1,
        350,
        1,
    )
    first = (await world.client.get(f"/v1/instances/{id}/usage?limit=1")).json()
    rest = (await world.client.get(f"/v1/instances/{id}/usage?limit=1&cursor={first['next_cursor']}")).json()
    assert [*first["items"], *rest["items"]] == page["items"]
    assert rest["next_cursor"] is None


async def test_the_trace_of_the_command_line_shows_each_call_under_its_step(world: World) -> None:
    id = await reported(world, [REFUSED, CALL])
    trace = (await world.client.get(f"/v1/instances/{id}/trace")).json()
    usage = (await world.client.get(f"/v1/instances/{id}/usage")).json()
    lines = [line.strip() for line in trace_lines(trace, usage["items"], usage["totals"])]
    write = next(number for number, line in enumerate(lines) if "? write  " in line)
    assert lines[write + 1] == "m: ? tokens in, ? out, 250 ms, ValidationError"
    assert lines[write + 2] == "m-1: 100 tokens in, 10 out, 250 ms, $0.000350"
    assert lines[-1] == "models: 2 calls, 1 failed, 100 tokens in, 10 out, $0.000350, 1 without a price"


async def test_what_an_executor_tells_badly_harms_nobody(world: World) -> None:
    id = await reported(world, JUNK)
    page = (await world.client.get(f"/v1/instances/{id}/usage")).json()
    assert [(row["profile"], row["number"], row["cost_micro_usd"], row["latency_ms"]) for row in page["items"]] == [("odd", 4, None, None)]


async def test_another_tenants_instance_looks_like_none(world: World) -> None:
    id = await reported(world, [CALL])
    unknown = await world.stranger.get("/v1/instances/01900000-0000-7000-8000-000000000000/usage")
    foreign = await world.stranger.get(f"/v1/instances/{id}/usage")
    assert (foreign.status_code, foreign.json()["code"]) == (unknown.status_code, unknown.json()["code"]) == (404, "instance_not_found")
    assert (await world.stranger.get("/v1/admin/usage?since=2026-09-01&until=2026-12-31")).json()["items"] == []


async def test_totals_by_day_take_filters_and_bounds(world: World) -> None:
    await reported(world, [{**CALL, "profile": "by-day"}, {**REFUSED, "profile": "by-day"}])
    found = (await world.client.get("/v1/admin/usage?since=2026-09-21&until=2026-09-21&workflow=report&profile=by-day")).json()
    assert (found["since"], found["until"], found["next_cursor"]) == ("2026-09-21", "2026-09-21", None)
    assert [(row["day"], row["workflow_id"], row["profile"], row["calls"], row["input_tokens"]) for row in found["items"]] == [
        ("2026-09-21", "report", "by-day", 2, 100)
    ]
    assert (await world.client.get("/v1/admin/usage?since=2026-09-21&until=2026-09-21&profile=claude")).json()["items"] == []


@pytest.mark.parametrize(
    "query",
    [
        "since=2026-01-02&until=2026-01-01",
        "since=2020-01-01&until=2026-01-01",
        "until=9999-12-31",
        "until=0001-01-01",
        "since=soon",
        "by=day",
    ],
)
async def test_days_that_make_no_sense_are_refused(world: World, query: str) -> None:
    answer = await world.client.get(f"/v1/admin/usage?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameters")


async def test_a_cursor_of_another_list_is_refused(world: World) -> None:
    id = await reported(world, [CALL, CALL])
    cursor = (await world.client.get(f"/v1/instances/{id}/usage?limit=1")).json()["next_cursor"]
    assert (await world.client.get(f"/v1/admin/usage?cursor={cursor}")).json()["code"] == "bad_cursor"
