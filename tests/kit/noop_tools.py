"""The no-op step of the benchmark: takes the 200-byte JSON, gives the next one."""

from __future__ import annotations

import json
from typing import Any

from agiwo.toolkit import Effect, tool


def payload(i: int, step: int) -> dict[str, Any]:
    """200 bytes as compact JSON."""
    out = {"i": i, "step": step, "pad": ""}
    out["pad"] = "x" * (200 - len(json.dumps(out, separators=(",", ":"))))
    return out


@tool(
    name="bench.noop",
    description="Takes a payload and gives the next one.",
    parameters={"type": "object", "properties": {"payload": {"type": "object"}}, "required": ["payload"], "additionalProperties": False},
    effect=Effect.PURE,
)
async def noop(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "step": payload["step"] + 1}
