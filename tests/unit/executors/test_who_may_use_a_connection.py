"""Connections by tenant and tool: refused at the call, and at publishing where the name is written out."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from agiwo.clock import SystemClock
from agiwo.definition import check, load
from agiwo.definition.compiled import Kind, Step
from agiwo.errors import StepError
from agiwo.executors.tool_call import ToolCalls
from agiwo.machine.commands import StartAttempt
from agiwo.machine.reports import Failed, Succeeded
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.ports.executor import Circumstances
from agiwo.tools.builtin import standard_registry
from agiwo.tools.context import ToolContext
from agiwo.tools.registry import ToolRegistry
from agiwo.tools.tool import tool

SPECS = [
    ConnectionSpec("open", "http", "https://open.example"),
    ConnectionSpec("theirs", "http", "https://theirs.example", tenants=frozenset({"acme", "beta"})),
    ConnectionSpec("narrow", "http", "https://narrow.example", tools=frozenset({"crm.look"})),
    ConnectionSpec("default", "sqlite", "sqlite:////nowhere", tenants=frozenset({"acme"})),
]


@tool(name="crm.look", effect="read", connections=["connection"])
async def look(connection: str, ctx: ToolContext) -> list[str]:
    return [ctx.connections.get(connection, "http").name, *ctx.connections.names()]


@pytest.mark.parametrize(
    ("tenant", "name", "connection", "said"),
    [
        ("acme", "crm.look", "theirs", None),
        ("other", "crm.look", "theirs", "the connection 'theirs' is not for the tenant 'other'"),
        ("other", "crm.look", "open", None),
        ("other", "crm.look", "narrow", None),
        ("acme", "crm.other", "narrow", "the connection 'narrow' is not for the tool 'crm.other'"),
        ("other", "crm.look", "their", "there is no connection 'their'; there are: narrow, open"),
    ],
)
async def test_call_over_a_connection_that_is_not_its_tenants_is_refused(tenant: str, name: str, connection: str, said: str | None) -> None:
    other = replace(look, contract=replace(look.contract, name="crm.other"))
    calls = ToolCalls(ToolRegistry([look, other]), SystemClock(), connections=Connections(SPECS))
    start = StartAttempt("s", Step("s", 0, Kind.TOOL_CALL, tool=name), 1, 1, {"connection": connection}, (), 5.0, "key")
    outcome = await calls.perform(start, Circumstances(UUID(int=7), "flow", "1", tenant, "ab" * 16))
    if said is None:
        assert isinstance(outcome, Succeeded) and outcome.result[0] == connection
        return
    assert isinstance(outcome, Failed) and outcome.failure.message == said and outcome.failure.not_done
    assert outcome.failure.type == ("NotFound" if "there is no" in said else "PermissionDenied")


async def test_every_view_has_the_same_pools() -> None:
    connections = Connections(SPECS)
    made: list[object] = []

    async def close() -> None:
        made.append("closed")

    spec = SPECS[0]
    for tenant in ("a", "b"):
        connections.seen_by(tenant, "t").pool(spec, lambda _: (made.append(object()), close))
    assert len(made) == 1
    await connections.close()
    assert made[1:] == ["closed"]


STEPS = """
id: w
version: "1"
steps:
  - {id: a, type: tool_call, tool: http.request, parameters: {url: /x, connection: theirs}}
  - {id: b, type: tool_call, tool: http.request, parameters: {url: /x, connection: "{{ input.c }}"}}
  - {id: c, type: tool_call, tool: http.request, parameters: {url: /x, connection: open}}
  - {id: d, type: tool_call, tool: database.query, parameters: {query: SELECT 1}}
"""


def test_connection_that_is_written_out_is_judged_at_publishing_for_its_tenant() -> None:
    connections = Connections(SPECS)
    contracts = standard_registry().contracts()
    found = {}
    for tenant in ("acme", "other"):
        checked = check(load(STEPS), contracts, barred=lambda tool, name, tenant=tenant: connections.barred(tenant, tool, name))  # type: ignore[misc]
        found[tenant] = [(p.code, p.line, p.column) for p in checked.errors]
    assert found == {"acme": [], "other": [("connection_denied", 5, 84), ("connection_denied", 8, 36)]}
    assert not check(load(STEPS), contracts).errors


def test_contract_of_a_tool_does_not_change_with_who_may_use_its_connections() -> None:
    """What an approval was given for is the same: the digest has no part of it."""
    assert replace(look.contract, connections=()).digest == look.contract.digest
    with pytest.raises(ValueError, match="the name of a connection 'nothing' is no parameter"):
        tool(name="a.b", connections=["nothing"])(look.function)


def test_name_that_nobody_has_is_no_refusal_of_a_connection() -> None:
    connections = Connections(SPECS)
    assert connections.barred("other", "crm.look", "nothing") is None
    with pytest.raises(StepError, match="there is no connection"):
        connections.get("nothing")


def test_where_no_connection_is_configured_the_message_says_where_they_stand() -> None:
    with pytest.raises(StepError, match=r"no connection 'shop'; none is configured; see docs/configuration.md"):
        Connections().get("shop")
