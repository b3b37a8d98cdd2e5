"""The tools of one service: built in, of installed packages, of modules that an operator names, and declared in YAML.

It registers; it calls none and judges no definition.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from agiwo.errors import Conflict, InvalidInput, Problem
from agiwo.tools.builtin import standard_registry
from agiwo.tools.declared import declared_tools
from agiwo.tools.registry import ToolRegistry
from agiwo.tools.tool import Tool

GROUP = "agiwo.tools"


class ToolsRefused(InvalidInput):
    """A named module gives no tools that can be registered."""

    code = "tools_refused"


def toolbox(
    modules: Sequence[str] = (),
    warn: Callable[[Problem], None] | None = None,
    more: Iterable[Tool] = (),
    *,
    declared: Path | None = None,
    commands: Collection[str] | None = (),
) -> ToolRegistry:
    """A registry of all tools: built in, of the entry points `agiwo.tools`, of `modules` (a dotted name or a path to a .py file), `more`,
    and those of the file or folder `declared`, whose commands have to be named in `commands` (None: all of them, where nothing is run).

    `warn` hears what their authors should see once. Raises ToolsRefused for what cannot be imported, holds no tool, has a taken name, or
    is declared with mistakes: a line for each, with file, line and column.
    """
    registry = standard_registry()
    for origin, tools in (*_sources(modules, more), *_declared(declared, commands, warn)):
        for tool in tools:
            try:
                warnings = registry.register(tool)
            except (Conflict, TypeError) as exc:
                raise ToolsRefused(f"{origin}: {exc}") from None
            if warn is not None:
                for warning in warnings:
                    warn(warning)
    return registry


def _declared(
    path: Path | None, commands: Collection[str] | None, warn: Callable[[Problem], None] | None
) -> Iterator[tuple[str, list[Tool]]]:
    if path is None:
        return
    try:
        found = declared_tools(path, commands)
    except OSError as exc:
        raise ToolsRefused(f"the declared tools {path} cannot be read: {exc.strerror}") from None
    lines = [f"{_place(file, problem)}: {problem.severity}: {problem.message}" for file, problem in found.problems]
    if found.broken:
        raise ToolsRefused("\n".join(["the declared tools cannot be used:", *lines]))
    off = [f"the command {name} is off: name it in `commands_allowed` to have it run" for name in found.off]
    if warn is not None:
        for code, told in (("declared_tool", lines), ("command_off", off)):
            for line in told:
                warn(Problem(code, line, severity="warning"))
    for place, tool in found.tools:
        yield place, [tool]


def _place(file: Path, problem: Problem) -> str:
    return f"{file}:{problem.line}:{problem.column}" if problem.line is not None else f"{file}{problem.pointer and ': ' + problem.pointer}"


def _sources(modules: Sequence[str], more: Iterable[Tool]) -> Iterator[tuple[str, Sequence[Tool]]]:
    for point in entry_points(group=GROUP):
        yield f"the entry point {point.name}", _tools_of(f"the entry point {point.name}", _loaded(point))
    for name in modules:
        yield f"the module {name}", _tools_of(f"the module {name}", _imported(name))
    yield "the program", tuple(more)


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as exc:
        raise ToolsRefused(f"the entry point {point.name} cannot be loaded: {type(exc).__name__}: {exc}") from None


def _imported(name: str) -> Any:
    path = Path(name)
    folder = path.parent.resolve() if name.endswith(".py") else Path.cwd()
    # As `python FILE` and `python -m` have it: beside the file, or from where one stands.
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(path.stem if name.endswith(".py") else name)
    except Exception as exc:
        raise ToolsRefused(f"the module {name} cannot be imported: {type(exc).__name__}: {exc}") from None


def _tools_of(origin: str, found: Any) -> Sequence[Tool]:
    if isinstance(found, Tool):
        return [found]
    if isinstance(found, list | tuple):
        return list(found)
    tools = (
        list({id(value): value for value in vars(found).values() if isinstance(value, Tool)}.values()) if hasattr(found, "__dict__") else []
    )
    if not tools:
        raise ToolsRefused(f"{origin} has no tools: expected functions with @tool(…)")
    return tools
