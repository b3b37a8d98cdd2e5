"""Which tools there are, by name.

It must not call one, and takes each name once: a second tool of a name is a mistake, never an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agiwo.definition.contract import ToolContract
from agiwo.errors import Conflict, NotFound, Problem
from agiwo.names import nearest
from agiwo.tools.tool import Tool


class ToolRegistry:
    """The tools of one service or process."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> list[Problem]:
        """Take a tool in; gives the warnings that its author should see once.

        Raises Conflict if another tool has that name, TypeError if it is no tool.
        """
        if not isinstance(tool, Tool):
            raise TypeError(f"a {type(tool).__name__} is no tool: decorate the function with @tool(name=…)")
        if self._tools.setdefault(tool.name, tool) is not tool:
            raise Conflict(f"a tool named {tool.name!r} is registered already", code="tool_exists")
        return tool.warnings()

    def get(self, name: str) -> Tool:
        """The tool of that name; raises NotFound (code `tool_unknown`) with the nearest name."""
        found = self._tools.get(name)
        if found is None:
            near = self.nearest(name)
            hint = f"; did you mean {near!r}?" if near else ""
            raise NotFound(f"there is no tool {name!r}{hint}", code="tool_unknown", nearest=near)
        return found

    def nearest(self, name: str) -> str | None:
        """The registered name that `name` was most likely meant to be."""
        return nearest(name, self._tools)

    def contracts(self) -> Mapping[str, ToolContract]:
        """What definitions may rely on, by tool name."""
        return {name: tool.contract for name, tool in sorted(self._tools.items())}

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
