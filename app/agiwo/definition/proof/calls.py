"""What steps ask of tools and models: names that exist, parameters that fit, retries that do no harm, clocks that fit.

Judges a step by itself; what stands around it is looked at elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from agiwo.definition.compiled import Gate, Kind, Step
from agiwo.definition.contract import CALLBACK_SECRETS, ToolContract
from agiwo.definition.durations import moment, seconds, worded
from agiwo.definition.proof.models import prove_models
from agiwo.definition.proof.reads import written_keys
from agiwo.definition.proof.ways import Ways
from agiwo.definition.report import Path, Report
from agiwo.definition.shape import BAD
from agiwo.schema import Schema
from agiwo.template import is_template
from agiwo.values import JSON, shown


def prove_calls(ways: Ways, contracts: Mapping[str, ToolContract], models: Collection[str] | None, report: Report) -> None:
    """Look at each step by itself, beside the contracts of tools and the names of model profiles."""
    declared = {*ways.draft.sound.get("context", {}), *ways.draft.sound.get("state", {})}
    for step in ways.steps:
        source, at = ways.made.steps[step.index], ways.made.place(step.index)
        if step.tool is not None and step.contract is None:
            unknown_tool(step.tool, contracts, (*at, "tool"), report)
        if step.contract is not None:
            prove_tool(step.contract, source, at, report)
        if step.kind is Kind.LLM_TASK and models is not None:
            prove_models(step, source, at, models, report)
        _retry(step, source, at, report)
        _call(ways, step, source, at, report)
        _wait(step, source, at, report)
        _signal(step, source, at, report)
        _constant_conditions(step, source, at, report)
        if step.gate is not None and step.gate.notify and not step.gate.approvers:
            report.warning(
                "nobody_told",
                f"nobody is told of `{step.id}`: `notify` tells the `approvers`, and none are named",
                (*at, "approval", "notify"),
            )
        for block, key in written_keys(source):
            if key not in declared:
                report.error(
                    "undeclared_key",
                    f"`{key}` is declared neither under `context` nor under `state`, so nothing can write it",
                    (*at, block, key),
                    key=True,
                    found=key,
                    expected="one of " + ", ".join(sorted(declared)) if declared else "a declared key",
                    nearest=report.nearest(key, declared),
                )
    _clocks(ways, report)


# Tools


def unknown_tool(name: str, contracts: Mapping[str, ToolContract], at: Path, report: Report) -> None:
    """Say that nobody has registered this tool."""
    report.error(
        "unknown_tool",
        f"there is no tool `{name[:80]}`",
        at,
        found=name[:80],
        expected="one of " + ", ".join(sorted(contracts)[:30]),
        nearest=report.nearest(name, contracts),
    )


def prove_tool(contract: ToolContract, source: Mapping[str, Any], at: Path, report: Report) -> None:
    """Look at one call as it is written: `source` has its `tool` and `parameters` and stands at `at`."""
    if not contract.effect_declared:
        report.warning(
            "undeclared_effect", f"`{contract.name}` does not say what it does to the world; it counts as a write", (*at, "tool")
        )
    parameters = source.get("parameters", {})
    if isinstance(parameters, dict):
        _parameters(contract, parameters, (*at, "parameters"), at, report)


def _parameters(contract: ToolContract, given: Mapping[str, JSON], at: Path, step_at: Path, report: Report) -> None:
    schema = contract.parameters
    known: Mapping[str, Any] = schema.get("properties", {})
    closed = schema.get("additionalProperties", True) is False
    for name, value in given.items():
        if name in known:
            _constant(contract, known[name], value, (*at, name), report)
        elif closed or (known and report.nearest(name, known)):
            report.error(
                "unknown_parameter",
                f"`{contract.name}` has no parameter `{name[:80]}`",
                (*at, name),
                key=True,
                found=name[:80],
                expected="one of " + ", ".join(sorted(known)) if known else "no parameters",
                nearest=report.nearest(name, known),
            )
    for name in schema.get("required", ()):
        if name not in given:
            where = at if given else step_at
            report.error("missing_parameter", f"`{contract.name}` needs the parameter `{name}`", where, key=True, expected=name)


def _constant(contract: ToolContract, part: Any, value: JSON, at: Path, report: Report) -> None:
    """Check what is known of one parameter: a constant whole, of an object or list its constant members."""
    if has_template(value):
        return
    definitions = {key: contract.parameters[key] for key in ("$defs", "definitions") if key in contract.parameters}
    schema = Schema.compile({**part, **definitions} if isinstance(part, Mapping) and definitions else part)
    for problem in schema.problems(schema.convert(value)):
        inside = tuple(p.replace("~1", "/").replace("~0", "~") for p in problem.pointer.split("/")[1:])
        report.error(
            "wrong_parameter",
            f"`{contract.name}`, parameter `{at[-1]}`: {problem.message}",
            (*at, *inside),
            found=problem.found,
            expected=problem.expected,
            nearest=problem.nearest,
        )


def has_template(value: JSON) -> bool:
    """Whether something in the value is known only when it is rendered."""
    if isinstance(value, str):
        return is_template(value)
    if isinstance(value, dict):
        return any(has_template(part) for part in value.values())
    return isinstance(value, list) and any(has_template(part) for part in value)


# How a call runs


def _call(ways: Ways, step: Step, source: Mapping[str, Any], at: Path, report: Report) -> None:
    """Its heartbeat, its process, and whether somebody can call back."""
    if step.heartbeat is not None and step.callback is None and step.heartbeat >= step.timeout:
        report.warning(
            "clock_too_long",
            f"the call is stopped after {worded(step.timeout)}, before a silence of {worded(step.heartbeat)} can be noticed",
            (*at, "heartbeat"),
            found=worded(step.heartbeat),
            expected=f"less than {worded(step.timeout)}",
        )
    if step.isolated and step.contract is not None and not step.contract.sync:
        report.error(
            "wrong_value",
            f"`{step.tool}` is no plain Python function; only such a one can run in a process of its own",
            (*at, "isolation"),
            found="process",
        )
    handed_out = any(use.step == step.index and not use.secrets.isdisjoint(CALLBACK_SECRETS) for use in ways.draft.texts.uses)
    if step.callback is not None and str(step.tool).startswith("http.") and not handed_out:
        report.error(
            "nobody_told",
            f"nobody is told where to answer `{step.id}`: put `{{{{ secrets.callback_url }}}}` into its parameters",
            (*at, "completion"),
            expected="secrets.callback_url in the parameters",
        )


# Retries, waits, conditions


def _retry(step: Step, source: Mapping[str, Any], at: Path, report: Report) -> None:
    policy = source.get("retry_policy")
    if step.contract is None or policy is None or step.effect.safe_to_repeat:
        return
    if policy.get("max_attempts", 1) > 1:
        report.error(
            "unsafe_retry",
            f"`{step.tool}` is {step.effect.value}: a second try could do its work twice; write `max_attempts: 1`, or use a tool "
            "that is safe to repeat",
            (*at, "retry_policy", "max_attempts"),
            found=shown(policy["max_attempts"]),
            expected="1",
        )


def _wait(step: Step, source: Mapping[str, Any], at: Path, report: Report) -> None:
    if step.kind is not Kind.WAIT or source.get("type") != "wait":
        return
    if ("duration" in source) == ("until" in source):
        report.error("wrong_form", "a wait has either `duration` or `until`", (*at, "type"), expected="duration or until")
    if "duration" in source and not has_template(source["duration"]):
        try:
            seconds(source["duration"])
        except ValueError as exc:
            report.error("wrong_duration", f"{exc}, found {shown(source['duration'])}", (*at, "duration"), found=shown(source["duration"]))
    if "until" in source and not has_template(source["until"]):
        try:
            moment(source["until"])
        except ValueError:
            report.wrong((*at, "until"), source["until"], "a timestamp with zone such as 2026-12-01T09:00:00Z, or a template")


def _signal(step: Step, source: Mapping[str, Any], at: Path, report: Report) -> None:
    if step.kind is not Kind.WAIT_FOR_SIGNAL or source.get("type") != Kind.WAIT_FOR_SIGNAL:
        return
    if ("event" in source) == ("first_of" in source):
        report.error("wrong_form", "a wait for a signal has either `event` or `first_of`", (*at, "type"), expected="event or first_of")
    elif "first_of" in source and "match" in source:
        report.error("misplaced_key", "with `first_of` each event has its own `match`", (*at, "match"), key=True, found="match")
    seen: dict[tuple[str, str], int] = {}
    for place, part in enumerate(source.get("first_of") or ()):
        if part is BAD or "event" not in part:
            continue
        event = str(part["event"])
        earlier = seen.get((event, ""), seen.get((event, str(part.get("match", "")))))
        if earlier is not None:
            why = f"this can never be taken: entry {earlier + 1} takes the same event"
            report.error("never_taken", why, (*at, "first_of", place), found=event[:80])
        seen.setdefault((event, str(part.get("match", ""))), place)


def _constant_conditions(step: Step, source: Mapping[str, Any], at: Path, report: Report) -> None:
    for key, condition in (("when", step.when), ("guard", step.guard)):
        if condition is not None and not condition.reads:
            report.warning(
                "constant_condition", f"`{key}` reads nothing, so it always gives the same", (*at, key), found=condition.source[:80]
            )


# Clocks


def _clocks(ways: Ways, report: Report) -> None:
    whole = ways.draft.workflow.timeout
    for step in ways.steps:
        source, at = ways.made.steps[step.index], ways.made.place(step.index)
        if step.total_timeout is not None and "timeout" in source and step.timeout > step.total_timeout:
            report.warning(
                "clock_too_long",
                f"one attempt may take {worded(step.timeout)}, all together only {worded(step.total_timeout)}",
                (*at, "timeout"),
            )
        for key, value in _own_clocks(step, source) if whole is not None else ():
            if whole is not None and value > whole:
                report.warning(
                    "clock_too_long",
                    f"`{step.id}` may take {worded(value)}, the whole workflow only {worded(whole)}",
                    (*at, *key),
                    found=worded(value),
                    expected=f"at most {worded(whole)}",
                )


def _own_clocks(step: Step, source: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], float]]:
    if step.signal is not None:
        if step.signal.timeout is not None:
            yield ("timeout",), step.signal.timeout
    elif "timeout" in source:
        yield ("timeout",), step.timeout
    gate: Gate | None = step.gate
    if gate is not None:
        yield (("approval", "timeout") if "timeout" in source.get("approval", {}) else ("id",)), gate.timeout
    duration = source.get("duration")
    if duration is not None and not has_template(duration):
        try:
            yield ("duration",), seconds(duration)
        except ValueError:
            return
