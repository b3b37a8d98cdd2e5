"""Whether fallbacks and circuits can do what their author expects: tools that exist, effects that do not double, routes that can be taken.

Judges a step by itself; that what a fallback reads is there is proved with all other reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.definition.compile import CALLS
from agiwo.definition.compiled import Fallback, FallbackKind, Kind, Step
from agiwo.definition.contract import ToolContract
from agiwo.definition.proof.calls import has_template, prove_tool, unknown_tool
from agiwo.definition.proof.ways import Ways
from agiwo.definition.report import Path, Report
from agiwo.errors import canonical_type


def prove_fallbacks(ways: Ways, contracts: Mapping[str, ToolContract], report: Report) -> None:
    """Look at each step's fallback, and at what it says of open circuits."""
    for step in ways.steps:
        source, at = ways.made.steps[step.index], ways.made.place(step.index)
        _circuits(step, source, at, report)
        if step.fallback is None or not isinstance(written := source.get("fallback"), Mapping):
            continue
        if step.fallback.kind is FallbackKind.TOOL:
            _tool(step, step.fallback, written, contracts, (*at, "fallback"), report)
        elif step.fallback.kind is FallbackKind.LAST_GOOD:
            _last_good(step, (*at, "fallback", "last_good"), report)
        else:
            _value(step, written["value"], (*at, "fallback", "value"), report)


def _tool(
    step: Step, fallback: Fallback, written: Mapping[str, Any], contracts: Mapping[str, ToolContract], at: Path, report: Report
) -> None:
    call = fallback.step
    if call.contract is None:
        unknown_tool(call.tool or "", contracts, (*at, "tool"), report)
        return
    prove_tool(call.contract, written, at, report)
    if call.effect.safe_to_repeat:
        return
    if not step.effect.safe_to_repeat:
        report.warning(
            "fallback_after_write",
            f"`{step.tool}` is {step.effect.value} and so is `{call.tool}`: the fallback is taken only if it is certain that nothing was "
            "done before",
            (*at, "tool"),
            found=call.effect.value,
        )
    if step.gate is not None and step.gate.at == "before":
        report.warning(
            "fallback_not_shown",
            f"the approval of `{step.id}` shows what `{step.tool or 'the model'}` is called with, not its fallback `{call.tool}`, "
            f"which is {call.effect.value}",
            (*at, "tool"),
            found=call.effect.value,
        )


def _last_good(step: Step, at: Path, report: Report) -> None:
    if step.callback is not None:
        message = "what is called back later is not kept, so there is no last good result; use `value` or `tool`"
        report.error("no_effect", message, at, key=True, expected="value or tool")
    if not step.effect.safe_to_repeat:
        report.error(
            "unsafe_fallback",
            f"`{step.tool}` is {step.effect.value}: an earlier result would say that its work is done; use `value` or `tool`",
            at,
            key=True,
            found=step.effect.value,
            expected="a tool that is pure, read or idempotent_write",
        )


def _value(step: Step, value: Any, at: Path, report: Report) -> None:
    if step.output_schema is None or has_template(value):
        return
    for problem in step.output_schema.problems(value):
        inside = tuple(part.replace("~1", "/").replace("~0", "~") for part in problem.pointer.split("/")[1:])
        report.error(
            "wrong_value",
            f"the fallback's value does not fit output_schema: {problem.message}",
            (*at, *inside),
            found=problem.found,
            expected=problem.expected,
        )


def _circuits(step: Step, source: Mapping[str, Any], at: Path, report: Report) -> None:
    """Only a call goes through a circuit, and only a call that can fail by itself."""
    if step.kind is Kind.LLM_TASK or (step.kind is Kind.TOOL_CALL and (step.contract is None or step.contract.breaker is not None)):
        policy: Mapping[str, Any] = source.get("retry_policy") or {}
        for key in ("retry_on", "give_up_on"):
            for n, name in enumerate(policy.get(key) or ()):
                if isinstance(name, str) and canonical_type(name) == "CircuitOpen":
                    report.warning(
                        "no_effect",
                        "an open circuit uses up no try: a fallback or a route takes it, else the step waits for the next probe",
                        (*at, "retry_policy", key, n),
                        found=name,
                    )
        return
    why = f"`{step.tool}` has no circuit breaker" if step.kind in CALLS else "it calls nothing"
    for n, link in enumerate(source.get("on_failure") or () if isinstance(source.get("on_failure"), list) else ()):
        names = link.get("errors") if isinstance(link, Mapping) else None
        if names and all(isinstance(name, str) and canonical_type(name) == "CircuitOpen" for name in names):
            report.error("never_taken", f"this route can never be taken: {why}", (*at, "on_failure", n), found="CircuitOpen")
