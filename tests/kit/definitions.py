"""Documents and contracts for the tests of definitions."""

from __future__ import annotations

import textwrap

from agiwo.definition import Checked, Effect, ToolContract, check, load
from agiwo.errors import Problem

_TEXT = {"type": "string"}
_ECHO = {"type": "object", "additionalProperties": False, "required": ["value"], "properties": {"value": {}}}
_MAIL = {
    "type": "object", "additionalProperties": False, "required": ["to", "subject", "body"],
    "properties": {"to": _TEXT, "subject": _TEXT, "body": _TEXT, "copies": {"type": "integer"}},
}  # fmt: skip
CONTRACTS = {
    contract.name: contract
    for contract in (
        ToolContract("debug.echo", parameters=_ECHO, effect=Effect.PURE),
        ToolContract("mail.send", parameters=_MAIL, effect=Effect.WRITE),
        ToolContract("db.query", parameters={**_ECHO, "required": []}, effect=Effect.READ, timeout=5.0),
        ToolContract("legacy.call", effect=Effect.WRITE, effect_declared=False),
    )
}
HEAD = 'id: flow\nversion: "1.0"\n'


def checked(text: str, **more: object) -> Checked:
    """Check a document; `text` without id and version gets them."""
    text = textwrap.dedent(text).lstrip("\n")
    whole = text if "version:" in text else HEAD + text
    return check(load(whole), CONTRACTS, **more)  # type: ignore[arg-type]


def steps(*lines: str, head: str = "") -> Checked:
    """Check a document with these steps, each written as a flow mapping without braces; `debug.echo` where no type is given."""
    out = [textwrap.dedent(head).strip(), "steps:"] if head else ["steps:"]
    for line in lines:
        typed = line if "type:" in line else f"{line}, type: tool_call, tool: debug.echo, parameters: {{value: 1}}"
        if "tool: debug.echo" in typed and "parameters:" not in typed:
            typed += ", parameters: {value: 1}"
        out.append(f"  - {{{typed}}}")
    return check(load(HEAD + "\n".join(out) + "\n"), CONTRACTS)


def codes(result: Checked, severity: str = "error") -> list[str]:
    return [p.code for p in result.problems if p.severity == severity]


def only(result: Checked, code: str, severity: str = "error") -> Problem:
    """The one problem of this severity, which has this code."""
    found = [p for p in result.problems if p.severity == severity]
    assert [p.code for p in found] == [code], [f"{p.code}: {p.message}" for p in found]
    return found[0]


def edges(result: Checked) -> set[tuple[str, str, str]]:
    assert result.workflow is not None, [p.message for p in result.errors]
    ids = [s.id for s in result.workflow.body]
    return {(ids[e.source], ids[e.target], e.kind) for e in result.workflow.body.edges}


def start(result: Checked) -> list[str]:
    assert result.workflow is not None, [p.message for p in result.errors]
    return [result.workflow.body.steps[i].id for i in result.workflow.body.start]


def aside(result: Checked) -> list[str]:
    assert result.workflow is not None, [p.message for p in result.errors]
    return [s.id for s in result.workflow.body if s.set_aside]
