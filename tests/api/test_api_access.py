"""Who may do what: the roles of a key, a service without keys and the browsers that reach it, and what a fault of ours shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from threading import get_ident

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request

from agiwo.api import create_app
from agiwo.api.routing import read_json
from agiwo.console import approval_page
from agiwo.definition.contract import ToolContract
from agiwo.service.callers import ApiKey, ApiKeys
from agiwo.service.publish import Publishing
from agiwo.store.pool import service_engine
from agiwo.store.records import PostgresRecords
from kit.api import ECHO, World

ROLES = ("viewer", "author", "operator", "approver")
YAML = {"content-type": "application/yaml"}


def calling(app: FastAPI, **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers, timeout=30)


@pytest.fixture
async def by_role(world: World) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """A client for each role, with a key that has that role alone."""
    app = create_app(world.services, keys=ApiKeys([ApiKey.of(role, f"key-of-{role}", roles=(role,)) for role in ROLES]))
    clients = {role: calling(app, authorization=f"Bearer key-of-{role}") for role in ROLES}
    yield clients
    for client in clients.values():
        await client.aclose()


async def test_a_key_does_what_its_roles_say_and_reads_in_any_case(world: World, by_role: dict[str, httpx.AsyncClient]) -> None:
    view = await world.run("report", input={"week": "1"})
    approval = view["waiting_for"][0]["href"]
    calls = [
        ("author", "/v1/workflows", {"content": ECHO.replace('"1.0"', '"1.1"'), "headers": YAML}, 201),
        ("operator", "/v1/workflows/echo/trigger", {"json": {}}, 202),
        ("approver", f"{approval}/approve", {"json": {}}, 200),
        ("operator", f"{view['links']['self']}/cancel", {"json": {}}, None),
        ("operator", f"{view['links']['self']}/steps/write/reconcile", {"json": {"done": False}}, None),
    ]
    for needed, path, sent, status in calls:
        for role, client in by_role.items():
            assert (await client.get(view["links"]["self"])).status_code == 200
            if role != needed:
                refused = await client.post(path, **sent)
                assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json"), (role, path)
        allowed = await by_role[needed].post(path, **sent)
        assert allowed.status_code == status or (status is None and allowed.status_code != 403), path
    rejected = (await world.client.get("/v1/admin/triggers?workflow=echo")).json()["items"]
    assert {item["principal"] for item in rejected if item["code"] == "role_missing"} == {"key:viewer", "key:author", "key:approver"}


async def test_a_service_without_keys_answers_to_its_own_name_and_to_no_foreign_page(world: World) -> None:
    app = create_app(world.services, pages=[approval_page(world.services)], hosts={"127.0.0.1", "::1", "localhost", "flows.example.com"})
    trigger = "/v1/workflows/echo/trigger"
    async with calling(app) as client:
        for host in ("127.0.0.1:8700", "localhost", "LOCALHOST:1", "[::1]:8700", "[::1]", "flows.example.com"):
            assert (await client.get("/v1/tools", headers={"host": host})).status_code == 200, host
        for host in ("evil.example", "evil.example:8700", "127.0.0.1.evil.example", ""):
            answer = await client.get("/v1/tools", headers={"host": host})
            assert (answer.status_code, answer.json()["code"]) == (403, "unknown_host"), host
        for origin in ("http://evil.example", "null", "http://127.0.0.1:3000", "http://localhost:8700"):
            for path in (trigger, "/v1/workflows"):
                answer = await client.post(path, headers={"origin": origin})
                assert (answer.status_code, answer.json()["code"]) == (403, "foreign_page"), origin
        assert (await client.post(trigger, headers={"origin": "http://127.0.0.1:8700"})).status_code == 202
        assert (await client.get("/healthz", headers={"host": "10.0.0.7"})).status_code == 200
        # The page of a link needs no name of ours: its token is all the right that there is.
        assert (await client.post("/approve/x", headers={"origin": "null", "host": "any"})).status_code == 404


async def test_a_key_is_no_ambient_right_so_any_name_and_page_may_use_it(world: World) -> None:
    headers = {"host": "any.example", "origin": "http://other.example"}
    assert (await world.client.post("/v1/workflows/echo/trigger", headers=headers)).status_code == 202


async def test_a_fault_of_ours_is_a_problem_too_and_shows_nothing_but_its_trace(world: World) -> None:
    broken = APIRouter()

    @broken.get("/broken")
    async def fails() -> None:
        raise RuntimeError("SELECT secret FROM somewhere")

    async with calling(create_app(world.services, pages=[broken])) as client:
        answer = await client.get("/broken", headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"})
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.json()["code"] == "internal"
    assert "ab" * 16 in answer.json()["detail"]
    assert "SELECT" not in answer.text


async def test_a_definition_is_judged_beside_the_loop(world: World, module_database: str) -> None:
    threads: list[int] = []

    def tools() -> dict[str, ToolContract]:
        threads.append(get_ident())
        return {}

    pool = service_engine(module_database)
    publishing = Publishing(PostgresRecords(pool, world.services.clock), world.services.catalog, tools)
    await asyncio.gather(*(publishing.validate(ECHO.encode()) for _ in range(3)))
    assert len(threads) == 3
    assert get_ident() not in threads
    await pool.dispose()


async def test_a_large_body_is_read_beside_the_loop() -> None:
    text = b'{"input": [' + b"1," * 400_000 + b"1]}"

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": text, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    reading = asyncio.create_task(read_json(Request(scope, receive)))
    rounds = 0
    while not reading.done():
        rounds += 1
        await asyncio.sleep(0)
    assert len(reading.result()["input"]) == 400_001
    # Without a thread the task would be done at its first step.
    assert rounds > 1


async def test_a_secret_that_is_not_configured_is_refused_at_publishing(world: World, module_database: str) -> None:
    text = ECHO.replace("{{ input.word | default('hello') }}", "{{ secrets.TOKN }}")
    pool = service_engine(module_database)
    records, tools = PostgresRecords(pool, world.services.clock), world.services.tools
    problems = {}
    for known in (("TOKEN",), ("TOKN",), ()):
        examined = await Publishing(records, world.services.catalog, tools, secrets=known).validate(text.encode())
        problems[known] = [(problem.code, problem.nearest) for problem in examined.checked.errors]
    assert problems == {("TOKEN",): [("unknown_secret", "TOKEN")], ("TOKN",): [], (): [("unknown_secret", None)]}
    await pool.dispose()
