"""The named statements of the engine, read from `sql/*.sql`, one file a subject.

Builds no SQL: a statement is written out in full where it stands, with `$1`, `$2` … for its values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

_HEADER = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)\n-- (?P<purpose>.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: its name, what it is for in one line, and its text."""

    name: str
    purpose: str
    text: str


def parse(source: str) -> list[Statement]:
    """The statements of one file. Raises ValueError if text stands before the first header or a statement is empty."""
    headers = list(_HEADER.finditer(source))
    if not headers or source[: headers[0].start()].strip():
        raise ValueError("a file of statements begins with '-- name: …' and a line '-- …' that says what it is for")
    found = []
    for header, end in zip(headers, [h.start() for h in headers[1:]] + [len(source)], strict=True):
        text = source[header.end() : end].strip().removesuffix(";")
        if not text:
            raise ValueError(f"the statement {header['name']} is empty")
        found.append(Statement(header["name"], header["purpose"], text))
    return found


def load() -> Mapping[str, Statement]:
    """All statements by name. Raises ValueError if a name stands twice."""
    found: dict[str, Statement] = {}
    for file in sorted(resources.files("agiwo.store").joinpath("sql").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            for statement in parse(file.read_text("utf-8")):
                if statement.name in found:
                    raise ValueError(f"the statement {statement.name} stands twice")
                found[statement.name] = statement
    return MappingProxyType(found)


STATEMENTS = load()
