"""Connections that a definition names in so many words: those that its tenant may not use are refused before anything runs.

A name that a template makes is known at the call, and judged there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agiwo.definition.compiled import FallbackKind
from agiwo.definition.contract import ToolContract
from agiwo.definition.proof.ways import Ways
from agiwo.definition.report import Path, Report
from agiwo.template import is_template

#: Why a tool (the first) may not use a connection (the second); None if it may, or if that is not known.
Barred = Callable[[str, str], str | None]


def prove_connections(ways: Ways, barred: Barred, report: Report) -> None:
    """Look at each parameter that names a connection, its default too."""
    for step in ways.steps:
        source, at = ways.made.steps[step.index], ways.made.place(step.index)
        if step.contract is not None:
            _call(step.contract, source, at, barred, report)
        if step.fallback is not None and step.fallback.kind is FallbackKind.TOOL and step.fallback.step.contract is not None:
            _call(step.fallback.step.contract, source["fallback"], (*at, "fallback"), barred, report)


def _call(contract: ToolContract, source: Mapping[str, Any], at: Path, barred: Barred, report: Report) -> None:
    if not isinstance(given := source.get("parameters", {}), Mapping):
        return
    for parameter in contract.connections:
        part: Any = contract.parameters.get("properties", {}).get(parameter, {})
        name = given.get(parameter, part.get("default") if isinstance(part, Mapping) else None)
        if not isinstance(name, str) or is_template(name):
            continue
        why = barred(contract.name, name)
        if why is not None:
            where = (*at, "parameters", parameter) if parameter in given else (*at, "tool")
            report.error("connection_denied", why, where, found=name[:80])
