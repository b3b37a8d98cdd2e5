"""What every tool promises, asked of each built-in tool and of a sync and an async one of a user's."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agiwo.errors import StepError, ValidationError, is_a
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.schema import check_schema
from agiwo.testing.smtp import LoopbackMail
from agiwo.toolkit import Tool, ToolContext, tool
from agiwo.tools.builtin import BUILT_IN
from agiwo.tools.calling import call_tool
from agiwo.values import canonical, check
from kit.web import Web, answer


@tool(name="user.waits", effect="read", parameters={"n": {"type": "integer"}})
async def users_async(n: int, ctx: ToolContext) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"n": n, "key": ctx.idempotency_key}


@tool(name="user.blocks", effect="read", parameters={"n": {"type": "integer"}})
def users_sync(n: int, ctx: ToolContext) -> dict[str, Any]:
    return {"n": n, "key": ctx.idempotency_key}


ARGUMENTS: dict[str, dict[str, Any]] = {
    "debug.echo": {"value": {"a": "007"}},
    "debug.sleep": {"seconds": 0},
    "debug.fail": {"until_attempt": 1, "value": [1]},
    "database.query": {"query": {"statement": "SELECT :p1 AS v", "values": {"p1": "007"}}},
    "database.execute": {"statement": {"statement": "INSERT INTO t VALUES (:p1)", "values": {"p1": "007"}}},
    "http.request": {"connection": "web", "url": "/", "method": "POST", "body": {"a": "007"}},
    "file.read": {"path": "there.txt"},
    "file.write": {"path": "new.json", "content": {"a": "007"}},
    "time.now": {},
    "data_processor.aggregate": {"raw_data": [{"k": "a", "v": 1}], "group_by": "k"},
    "data.transform": {"data": [{"k": "a"}], "operations": [{"op": "limit", "n": 1}]},
    "email_sender.send": {"to": "ops@example.com", "subject": "s", "body": "b"},
    "notify.send": {"channel": "ops", "text": "007"},
    "events.send": {"event": "paid", "payload": {"a": "007"}, "to": {"correlation_key": "order-1"}},
    "user.waits": {"n": 1},
    "user.blocks": {"n": 1},
}
TOOLS = [*BUILT_IN, users_async, users_sync]
every_tool = pytest.mark.parametrize("tested", TOOLS, ids=lambda t: t.name)


class Held:
    def now(self) -> float:
        return 1_790_000_000.0

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
async def ctx(tmp_path: Path) -> AsyncIterator[ToolContext]:
    data = sqlite3.connect(tmp_path / "data.db")
    data.execute("CREATE TABLE t (v TEXT)")
    data.close()
    (tmp_path / "there.txt").write_text("007")
    async with LoopbackMail() as mail, Web(says={"/": answer(200, '{"ok": true}')}) as web:
        specs = [
            ConnectionSpec("default", "sqlite", f"sqlite:///{tmp_path / 'data.db'}"),
            ConnectionSpec("files", "folder", str(tmp_path), {"writable": True}),
            ConnectionSpec("web", "http", web.url("")),
        ]
        connections = Connections([mail.connection(), *specs])

        async def tell(channel: str, to: Sequence[str], body: Mapping[str, Any]) -> list[str]:
            return [*to]

        async def signals(id: str, event: str, payload: Any, instance: str | None, key: str | None) -> list[dict[str, Any]]:
            return [{"instance_id": "i", "outcome": "accepted"}]

        more: dict[str, Any] = {"connections": connections, "clock": Held(), "tell": tell, "signals": signals}
        yield ToolContext(instance_id="i", step="s", idempotency_key="key-1", **more)
        await connections.close()


def test_every_built_in_tool_has_arguments_here() -> None:
    assert set(ARGUMENTS) == {t.name for t in TOOLS}


@every_tool
async def test_the_result_can_be_kept_and_is_the_declared_one(tested: Tool, ctx: ToolContext) -> None:
    result = await call_tool(tested, ARGUMENTS[tested.name], ctx)
    check(result)
    assert tested.result is None or tested.result.fits(result)


@every_tool
async def test_arguments_stay_as_they_are(tested: Tool, ctx: ToolContext) -> None:
    before = canonical(ARGUMENTS[tested.name])
    await call_tool(tested, ARGUMENTS[tested.name], ctx)
    assert canonical(ARGUMENTS[tested.name]) == before


@every_tool
async def test_an_unknown_argument_is_refused_with_its_place(tested: Tool, ctx: ToolContext) -> None:
    with pytest.raises(ValidationError) as caught:
        await call_tool(tested, {**ARGUMENTS[tested.name], "surprise": 1}, ctx)
    assert "/surprise" in [p["pointer"] for p in caught.value.data["problems"]]


@every_tool
async def test_a_missing_argument_is_refused_before_the_tool_is_entered(tested: Tool, ctx: ToolContext) -> None:
    for name in tested.contract.parameters.get("required", ()):
        fewer = {key: value for key, value in ARGUMENTS[tested.name].items() if key != name}
        with pytest.raises(ValidationError, match=f"/{name}: is required"):
            await call_tool(tested, fewer, ctx)


@every_tool
async def test_a_call_that_is_cancelled_at_once_lets_the_cancellation_through(tested: Tool, ctx: ToolContext) -> None:
    call = asyncio.ensure_future(call_tool(tested, ARGUMENTS[tested.name], ctx))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@every_tool
async def test_all_attempts_of_a_run_give_the_same(tested: Tool, ctx: ToolContext) -> None:
    first, second, third = [await call_tool(tested, ARGUMENTS[tested.name], replace(ctx, attempt=n)) for n in (1, 2, 3)]
    assert first == second == third


@every_tool
def test_the_contract_is_complete_and_its_schemas_are_valid(tested: Tool) -> None:
    contract = tested.contract
    assert contract.description or tested in (users_async, users_sync)
    assert check_schema(contract.parameters) == []
    assert contract.result is None or check_schema(contract.result) == []
    assert contract.reconcile is (tested.reconcile is not None)
    assert len(contract.digest) == 64
    check(contract.to_json())


@pytest.mark.parametrize(
    ("tested", "spec"),
    [
        (BUILT_IN[3], ConnectionSpec("default", "postgres", "postgresql://u:s3cr3t-9f@127.0.0.1:1/x")),
        (BUILT_IN[3], ConnectionSpec("default", "sqlite", "sqlite:////nowhere/s3cr3t-9f.db")),
        (BUILT_IN[3], ConnectionSpec("default", "postgres", "mysql://u:s3cr3t-9f@h/x")),
        (BUILT_IN[6], ConnectionSpec("mail", "smtp", "smtp://u:s3cr3t-9f@127.0.0.1:1")),
        (BUILT_IN[6], ConnectionSpec("mail", "smtp", "http://u:s3cr3t-9f@127.0.0.1:1")),
    ],
)
async def test_no_error_shows_what_a_connection_keeps_secret(tested: Tool, spec: ConnectionSpec) -> None:
    connections = Connections([spec])
    with pytest.raises(StepError) as caught:
        await call_tool(tested, ARGUMENTS[tested.name], ToolContext(connections=connections, idempotency_key="k"))
    assert "s3cr3t-9f" not in f"{caught.value!r} {caught.value.failure()} {spec!r}"
    assert any(is_a(caught.value.type, root) for root in ("Transient", "Permanent"))
    await connections.close()
