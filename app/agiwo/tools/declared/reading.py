"""Files of declared tools to tools, with everything that is wrong in all of them at its place.

It reads only the files that it is given and those that they name below their own folder; it calls nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agiwo.definition.report import Report
from agiwo.definition.shape import BAD
from agiwo.definition.yaml_text import MAX_BYTES, read_text, source_text
from agiwo.errors import Problem
from agiwo.tools.declared.form import DOCUMENT, TOOL
from agiwo.tools.declared.making import made, tool_of
from agiwo.tools.declared.openapi import imported
from agiwo.tools.tool import Tool

MAX_FILES = 1_000
MAX_DOCUMENTS = 200
ENDINGS = (".yaml", ".yml", ".json")
_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)


@dataclass(slots=True)
class Declarations:
    """What was declared: the tools with the place of each, what is wrong by file, and the commands that nobody allowed."""

    tools: list[tuple[str, Tool]] = field(default_factory=list)
    problems: list[tuple[Path, Problem]] = field(default_factory=list)
    off: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        return any(problem.severity == "error" for _, problem in self.problems)


def declared_tools(path: Path, allowed: Collection[str] | None = ()) -> Declarations:
    """The tools of a file, or of all files of a folder in the order of their names.

    `allowed` are the names of the commands that may be run; None allows all, where nothing is run. Raises OSError for what cannot be read.
    """
    found = Declarations()
    files = sorted(one for one in path.iterdir() if one.suffix in ENDINGS and one.is_file()) if path.is_dir() else [path]
    if len(files) > MAX_FILES:
        found.problems.append((path, Problem("too_many", f"a folder of tools has at most {MAX_FILES} files, this has {len(files)}")))
        return found
    places: dict[str, str] = {}
    for file in files:
        _read(file, file.read_bytes(), allowed, places, found)
    return found


def _read(file: Path, text: bytes, allowed: Collection[str] | None, places: dict[str, str], found: Declarations) -> None:
    for number, part in enumerate(_documents(text)):
        if number == MAX_DOCUMENTS:
            found.problems.append((file, Problem("too_many", f"a file of tools has at most {MAX_DOCUMENTS} documents")))
            return
        reading = read_text(part)
        report = Report(reading.places, (), reading.problems, source_text(part))
        if reading.readable and not report.broken:
            for at, tool, command in _tools(reading.value, file, report):
                line = report.line_of(at)
                here = f"{file.name}, {line}" if line else file.name
                if tool.name in places:
                    report.error(
                        "duplicate",
                        f"the tool `{tool.name}` is declared twice, first in {places[tool.name]}",
                        (*at, "name"),
                        found=tool.name,
                    )
                elif command and allowed is not None and tool.name not in allowed:
                    found.off.append(tool.name)
                else:
                    found.tools.append((here, tool))
                places.setdefault(tool.name, here)
        found.problems += [(file, problem) for problem in report.problems]


def _tools(value: Any, file: Path, report: Report) -> Iterable[tuple[tuple[str | int, ...], Tool, bool]]:
    """The tools of one document, each with its place and whether it is a command."""
    if isinstance(value, Mapping) and ("tools" in value or "openapi" in value):
        whole = DOCUMENT(report, value, ())
        if whole is BAD:
            return
        for index, one in enumerate(whole.get("tools", ())):
            if one is not BAD:
                yield ("tools", index), made(one, ("tools", index), report), "command" in one
        if "openapi" in whole and not report.broken:
            for contract, call in imported(whole["openapi"], ("openapi",), report, file.parent):
                yield ("openapi",), tool_of(contract, call), False
        return
    one = TOOL(report, value, ())
    if one is not BAD:
        yield (), made(one, (), report), "command" in one


def _documents(text: bytes) -> list[str | bytes]:
    """The documents of a text, each with empty lines where the earlier ones stand, so that its places are those of the file."""
    try:
        whole = text.decode("utf-8")
    except UnicodeDecodeError:
        return [text]
    marks = [found.start() for found in _MARKER.finditer(whole)] if len(text) <= MAX_BYTES else []
    if not marks:
        return [whole]
    parts: list[str | bytes] = []
    for start, end in zip([0, *marks], [*marks, len(whole)], strict=True):
        part = whole[start:end]
        if any(line.strip() and not line.lstrip().startswith("#") for line in part.removeprefix("---").splitlines()):
            parts.append("\n" * whole.count("\n", 0, start) + part)
    return parts or [whole]
