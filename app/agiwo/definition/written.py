"""Keeps the text of plain scalars in parameters whose tool wants text: a code 1.10 stays "1.10".

Needs the tools' schemas, so it runs when a document is checked and not when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.definition.contract import ToolContract
from agiwo.definition.report import Path, Report
from agiwo.values import JSON


def as_written(document: JSON, contracts: Mapping[str, ToolContract], report: Report) -> JSON:
    """The document with numbers and truth values in text parameters as they were written; the same object if there are none."""
    steps = document.get("steps") if isinstance(document, dict) else None
    if not isinstance(steps, list):
        return document
    changed = [_step(step, ("steps", index), contracts, report) for index, step in enumerate(steps)]
    if all(new is old for new, old in zip(changed, steps, strict=True)):
        return document
    return {**document, "steps": changed}


def _step(step: JSON, at: Path, contracts: Mapping[str, ToolContract], report: Report) -> JSON:
    if not isinstance(step, dict):
        return step
    made = _call(step, at, contracts, report)
    if isinstance(fallback := step.get("fallback"), dict):
        written = _call(fallback, (*at, "fallback"), contracts, report)
        made = made if written is fallback else {**made, "fallback": written}
    return made


def _call(call: dict[str, Any], at: Path, contracts: Mapping[str, ToolContract], report: Report) -> dict[str, Any]:
    """A step or a fallback with its parameters as they were written."""
    if not isinstance(call.get("parameters"), dict) or not isinstance(call.get("tool"), str):
        return call
    contract = contracts.get(call["tool"])
    if contract is None:
        return call
    parameters = _value(call["parameters"], contract.parameters, (*at, "parameters"), report)
    return call if parameters is call["parameters"] else {**call, "parameters": parameters}


def _value(value: JSON, schema: Any, at: Path, report: Report) -> JSON:
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        made = {key: _value(part, properties.get(key, others), (*at, key), report) for key, part in value.items()}
        return made if any(made[key] is not value[key] for key in value) else value
    if isinstance(value, list):
        items = [_value(part, schema.get("items"), (*at, index), report) for index, part in enumerate(value)]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if schema.get("type") == "string" and isinstance(value, bool | int | float):
        written = report.written(at)
        return value if written is None else written
    return value
