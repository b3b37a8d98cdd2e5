"""Compiles a step's `fallback`: the step as it is carried out when its call has failed for good or its circuit is open.

What the parts of a fallback mean beside the step's own call is proved in `proof`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agiwo.definition.compiled import Fallback, FallbackKind, Kind, Retry, Step
from agiwo.definition.contract import Effect, ToolContract
from agiwo.definition.report import Path, Report
from agiwo.definition.texts import START, Texts
from agiwo.schema import Schema

#: Seconds in which an earlier result has to be found.
RECALL_TIMEOUT = 10.0
_KINDS = tuple(kind.value for kind in FallbackKind)
_ONE_TRY = Retry(1, 1.0, by_author=False)


def compile_fallback(
    step: Step,
    source: Mapping[str, Any],
    contracts: Mapping[str, ToolContract],
    texts: Texts,
    report: Report,
    at: Path,
    timeout: float,
) -> Fallback | None:
    """The fallback of `step`; None if it has errors. `timeout` (seconds) is for a tool that names none of its own."""
    given = [kind for kind in _KINDS if kind in source]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        report.error("wrong_form", "a fallback has exactly one of `value`, `tool` and `last_good`", at, found=found, expected="one of them")
        return None
    for key in ("parameters", "timeout"):
        if key in source and given[0] != FallbackKind.TOOL:
            report.error("misplaced_key", f"`{key}` belongs to a fallback with a `tool`", (*at, key), key=True, found=key)
    rest = replace(step, fallback=None, retry=_ONE_TRY, callback=None, heartbeat=None, isolated=False)
    if given[0] == FallbackKind.VALUE:
        value = texts.value(source["value"], (*at, "value"), step.index, START)
        return None if value is None else Fallback(FallbackKind.VALUE, rest, value)
    if given[0] == FallbackKind.TOOL:
        tool: str = source["tool"]
        contract = contracts.get(tool)
        parameters = source.get("parameters", {})
        uses = contract.uses if contract is not None else {}
        called = contract.timeout if contract is not None and contract.timeout is not None else timeout
        call = replace(
            rest,
            kind=Kind.TOOL_CALL,
            tool=tool,
            contract=contract,
            effect=contract.effect_with(parameters) if contract is not None else Effect.WRITE,
            parameters_schema=None if contract is None else Schema.compile(contract.parameters),
            arguments=texts.value(parameters, (*at, "parameters"), step.index, START, uses=uses, secrets=True),
            timeout=float(source.get("timeout", called)),
            llm={},
        )
        return Fallback(FallbackKind.TOOL, call)
    if step.kind is not Kind.TOOL_CALL:
        message = "a model is asked anew each time: `last_good` is for tools; use `value` or `tool`"
        report.error("misplaced_key", message, (*at, "last_good"), key=True, found="last_good", expected="value or tool")
        return None
    recall = replace(rest, effect=Effect.READ, contract=None, recall=source["last_good"], timeout=RECALL_TIMEOUT)
    return Fallback(FallbackKind.LAST_GOOD, recall)
