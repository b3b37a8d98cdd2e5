"""Workflows for tests of the machine, written as authors write them and driven by `kit.machine.Drive`."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from agiwo.errors import Failure
from agiwo.machine import Record
from agiwo.machine.reports import Failed
from kit.machine import Drive, World, all_well, compiled

_TYPED = re.compile(r"\btype: (tool_call|llm_task|wait|wait_for_signal|wait_for_event|approval|set|branch|end|fail)\b")
_TOOL = re.compile(r"(^|, )tool:")
HEAD = 'id: w\nversion: "1"\n'


def flow(
    *lines: str, head: str = "", world: World = all_well, input: Any = None, context: dict[str, Any] | None = None, **more: Any
) -> Drive:
    """An instance of these steps, begun. A line is a flow mapping without braces, a call of `t.pure` where it names no type or tool."""
    out = [textwrap.dedent(head).strip(), "steps:"] if head else ["steps:"]
    for line in lines:
        if _TYPED.search(line) is None:
            line += ", type: tool_call"
        if "type: tool_call" in line and _TOOL.search(line) is None:
            line += ", tool: t.pure"
        out.append(f"  - {{{line}}}")
    return Drive(compiled(HEAD + "\n".join(out) + "\n"), world, input=input, context=context or {}, **more)


def failed(type: str = "ToolError", message: str = "no", **more: Any) -> Failed:
    return Failed(Failure(type, message, **more))


def records(drive: Drive, type: str, path: str | None = None) -> list[Record]:
    """The records of one type in the history, of one run if `path` is given."""
    return [r for r in drive.history if r.type == type and (path is None or r.path == path)]


def data(drive: Drive, type: str, path: str | None = None) -> dict[str, Any]:
    """What the only record of this type says."""
    (found,) = records(drive, type, path)
    return dict(found.data or {})


def order(drive: Drive, *types: str) -> list[str]:
    """`type path` of the records of these types, in the order of the history."""
    return [f"{r.type} {r.path}" if r.path else r.type for r in drive.history if r.type in types]
