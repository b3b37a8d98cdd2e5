"""The tools that come with the product."""

from __future__ import annotations

from collections.abc import Iterable

from agiwo.tools.builtin import aggregate, database, debug, events, files, http, mail, notify, time, transform
from agiwo.tools.registry import ToolRegistry
from agiwo.tools.tool import Tool

BUILT_IN: tuple[Tool, ...] = (
    debug.echo,
    debug.sleep,
    debug.fail,
    database.query,
    database.execute,
    http.request,
    files.read,
    files.write,
    time.now,
    aggregate.aggregate,
    transform.transform,
    mail.send,
    notify.send,
    events.send,
)


def standard_registry(more: Iterable[Tool] = ()) -> ToolRegistry:
    """A registry with the built-in tools and `more`."""
    return ToolRegistry([*BUILT_IN, *more])
