"""Tools that give, raise, log and report what JSON or Postgres cannot hold."""

from __future__ import annotations

from typing import Any

from agiwo.errors import StepError
from agiwo.toolkit import Tool, ToolContext, tool


def _deep() -> Any:
    value: Any = 1
    for _ in range(200):
        value = [value]
    return value


def _round() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


#: What no value may be or hold, by name.
SPOILED: dict[str, Any] = {
    "nul": {"a": "x\x00y"},
    "nul_key": {"x\x00y": 1},
    "surrogate": ["\ud800"],
    "surrogate_key": {"\udfff": 1},
    "nan": float("nan"),
    "infinite": [float("-inf")],
    "long_integer": {"n": 10**101},
    "very_long_integer": -(10**6000),
    "deep": _deep(),
    "round": _round(),
    "bytes": b"x",
    "set": {1, 2},
    "number_key": {1: 2},
    "object": object(),
}


@tool(name="spoil.async", effect="read")
async def in_loop(kind: str) -> Any:
    return SPOILED[kind]


@tool(name="spoil.thread", effect="read")
def in_thread(kind: str) -> Any:
    return SPOILED[kind]


@tool(name="spoil.process", effect="read", isolation="process")
def in_process(kind: str) -> Any:
    return SPOILED[kind]


@tool(name="spoil.error", effect="read", breaker=False)
async def error(kind: str) -> None:
    raise StepError(f"no: \x00 \ud800 {kind}", type="Odd\x00", details={"d": SPOILED[kind]})


@tool(name="spoil.process_error", effect="read", breaker=False, isolation="process")
def process_error(kind: str) -> None:
    raise StepError(f"no: \x00 \ud800 {kind}", details={"d": SPOILED[kind]})


@tool(name="spoil.beside", effect="read")
async def beside(kind: str, ctx: ToolContext) -> str:
    ctx.log(f"\x00 \ud800 {kind}", value=SPOILED[kind])
    ctx.heartbeat(SPOILED[kind])
    return "well"


@tool(name="spoil.process_beside", effect="read", isolation="process")
def process_beside(kind: str, ctx: ToolContext) -> str:
    ctx.log(f"\x00 \ud800 {kind}", value=SPOILED[kind])
    ctx.heartbeat(SPOILED[kind])
    return "well"


TOOLS: tuple[Tool, ...] = (in_loop, in_thread, in_process, error, process_error, beside, process_beside)
