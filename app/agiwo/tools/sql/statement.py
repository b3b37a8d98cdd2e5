"""A statement with bound values: which `:name` in it is a placeholder, and its form for a driver.

Only names that have a value are placeholders; what stands in a text literal, a quoted name, a dollar quote or a comment, and `::`, is left
alone. It must not paste a value into the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.errors import ValidationError

_PIECE = re.compile(
    r"""
    (?P<line>--[^\r\n]*)
  | (?P<block>/\*)
  | (?P<text>[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")*" | `(?:[^`]|``)*`)
  | (?P<dollar>\$(?P<tag>[A-Za-z_]\w*)?\$)
  | (?P<word>[A-Za-z_\u0080-\uffff][\w$]*)
  | (?P<cast>::|:=)
  | (?P<place>:(?P<name>[A-Za-z_]\w*))
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """The text for a driver and the values in the order of its placeholders."""

    text: str
    values: tuple[Any, ...]


def bound(query: str | Mapping[str, Any], mark: Callable[[int], str], *, once: bool) -> Statement:
    """A statement from a query as rendered: text alone, or `{statement, values}`.

    `mark` writes the placeholder of a number from 1. With `once` a name that stands twice is one value, else each place is one. Raises
    ValidationError if a value has no placeholder.
    """
    text, values = (query, {}) if isinstance(query, str) else (query["statement"], query.get("values", {}))
    out: list[str] = []
    order: list[str] = []
    at = 0
    while (piece := _PIECE.search(text, at)) is not None:
        out.append(text[at : piece.start()])
        at = _end(text, piece)
        name = piece.group("name")
        if name is None or name not in values:
            out.append(text[piece.start() : at])
            continue
        if not once or name not in order:
            order.append(name)
        out.append(mark(order.index(name) + 1 if once else len(order)))
    out.append(text[at:])
    unused = [name for name in values if name not in order]
    if unused:
        message = f"the statement has no place :{unused[0]} for the value of that name (outside literals and comments)"
        raise ValidationError(message, not_done=True)
    return Statement("".join(out), tuple(values[name] for name in order))


def _end(text: str, piece: re.Match[str]) -> int:
    """Where the piece ends; comments nest, and a dollar quote runs to its own tag."""
    if piece.group("dollar") is not None:
        closing = text.find(piece.group("dollar"), piece.end())
        return len(text) if closing < 0 else closing + len(piece.group("dollar"))
    if piece.group("block") is None:
        return piece.end()
    depth, at = 1, piece.end()
    while depth and at < len(text):
        two = text[at : at + 2]
        depth += {"/*": 1, "*/": -1}.get(two, 0)
        at += 2 if two in ("/*", "*/") else 1
    return at
