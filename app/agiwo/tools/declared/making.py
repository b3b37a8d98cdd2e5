"""A declaration whose form is right to a tool: contract, function and probe, with what its parts mean to each other checked.

It registers nothing and reads no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.definition.contract import Breaker, Effect, ToolContract
from agiwo.definition.report import Path, Report
from agiwo.schema import Schema
from agiwo.tools.context import ToolContext
from agiwo.tools.declared.command import CommandTool, command_tool
from agiwo.tools.declared.filling import Filling
from agiwo.tools.declared.http import HttpProbe, HttpTool, http_probe, http_tool
from agiwo.tools.declared.openapi import Operation
from agiwo.tools.exchange import EFFECTS
from agiwo.tools.tool import Probe, Tool, breaker_of

#: The argument that carries the context; no parameter of a schema can be meant by it.
_CONTEXT = " context"
_ANY = Schema.compile({"type": "object", "properties": {}, "additionalProperties": False})


def made(declared: Mapping[str, Any], at: Path, report: Report) -> Tool:
    """The tool of a declaration. What is wrong with it is noted; then the tool must not be used."""
    name = declared.get("name", "?")
    parameters: Schema = declared.get("parameters", _ANY)
    known = None if parameters.source.get("additionalProperties", True) is not False else tuple(parameters.source.get("properties", {}))
    filling = Filling(report, known)
    if ("http" in declared) == ("command" in declared):
        report.error("wrong_form", "a tool has either `http` or `command`", at, expected="http or command")
    for parameter in declared.get("uses", {}):
        properties = parameters.source.get("properties", {})
        if parameter not in properties:
            report.error(
                "unknown_name", f"there is no parameter `{parameter[:80]}`", (*at, "uses", parameter), key=True, found=parameter[:80],
                nearest=report.nearest(parameter, properties),
            )  # fmt: skip
    probe: HttpProbe | None = None
    if "http" in declared:
        http = declared["http"]
        call: HttpTool | CommandTool = http_tool(name, http, (*at, "http"), filling, report)
        effect = Effect(declared.get("effect") or EFFECTS[http.get("method", "GET")])
        if "reconcile" in declared:
            probe = http_probe(name, declared["reconcile"], http.get("auth", {}), (*at, "reconcile"), filling, report)
    else:
        call = command_tool(name, declared.get("command", []), (*at, "command"), filling, report)
        effect = Effect(declared.get("effect") or Effect.WRITE)
        if "reconcile" in declared:
            report.error("misplaced_key", "only an `http` tool has a probe", (*at, "reconcile"), key=True, found="reconcile")
    result: Schema | None = declared.get("result")
    properties = parameters.source.get("properties", {})
    contract = ToolContract(
        name=name,
        description=declared.get("description", ""),
        parameters=parameters.source,
        result=None if result is None else result.source,
        effect=effect,
        effect_declared="effect" in declared or "http" in declared,
        timeout=declared.get("timeout"),
        uses=declared.get("uses", {}),
        reconcile=probe is not None,
        breaker=breaker(name, declared, effect, properties, at, report),
    )
    return tool_of(contract, call, probe)


def breaker(
    name: str, declared: Mapping[str, Any], effect: Effect, properties: Mapping[str, Any], at: Path, report: Report
) -> Breaker | None:
    """The breaker of a declaration: the usual one unless it says otherwise, none for what is pure."""
    try:
        made = breaker_of(name, declared.get("breaker", effect is not Effect.PURE))
    except ValueError as exc:
        report.error("wrong_value", str(exc), (*at, "breaker"))
        return None
    for parameter in made.key if made is not None else ():
        if parameter not in properties:
            report.error(
                "unknown_name",
                f"there is no parameter `{parameter[:80]}`",
                (*at, "breaker", "key"),
                found=parameter[:80],
                nearest=report.nearest(parameter, properties),
            )
    return made


def tool_of(contract: ToolContract, call: HttpTool | CommandTool | Operation, probe: HttpProbe | None = None) -> Tool:
    """The tool whose calls `call` carries out."""
    defaults = {
        name: part["default"]
        for name, part in contract.parameters.get("properties", {}).items()
        if isinstance(part, Mapping) and "default" in part
    }

    async def function(**given: Any) -> Any:
        ctx: ToolContext = given.pop(_CONTEXT)
        return await call.call({**defaults, **given}, ctx)

    async def asked(idempotency_key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Probe:
        assert probe is not None, "only a tool with a probe is asked"
        return await probe.ask(idempotency_key, {**defaults, **arguments}, ctx)

    return Tool(
        contract=contract,
        function=function,
        parameters=Schema.compile(contract.parameters),
        result=None if contract.result is None else Schema.compile(contract.result),
        context=_CONTEXT,
        reconcile=None if probe is None else asked,
        keeps_off=True,
    )
