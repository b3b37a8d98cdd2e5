"""Tools that get into the troubles of docs/trouble.md: a transfer without an answer, a courier who calls back, a register that is down."""

from __future__ import annotations

import asyncio

from agiwo.toolkit import Effect, NetworkError, ToolContext, tool


@tool(
    name="bank.transfer",
    description="Transfers an amount, and never says so.",
    effect=Effect.WRITE,
    parameters={"amount": {"type": "integer"}},
)
async def transfer(amount: int) -> None:
    await asyncio.Event().wait()


@tool(name="courier.order", description="Orders a courier, who calls back.", effect=Effect.IDEMPOTENT_WRITE, parameters={})
async def order(call: ToolContext) -> None:
    assert call.callback is not None, "it is used in a step with a callback"


@tool(
    name="crm.find", description="Asks a register that is down.", effect=Effect.READ, parameters={"id": {"type": "integer"}},
    breaker={"failures": 1, "open_for": 3600},
)  # fmt: skip
async def find(id: int) -> None:
    raise NetworkError("crm.example.com does not answer")
