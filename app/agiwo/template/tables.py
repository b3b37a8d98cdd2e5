"""Rows as a table, in plain text or as HTML, for mails and pages.

Every cell is data: it is escaped, it never adds markup, and the same rows always give the same characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from agiwo.errors import TemplateError
from agiwo.template.absent import described
from agiwo.template.meter import Meter
from agiwo.template.operators import is_number, text, write


@dataclass(frozen=True, slots=True)
class Html:
    """Markup that the template floor itself made; it is written out as it is and can be used for nothing else."""

    text: str


def text_table(meter: Meter, rows: object, columns: object = None) -> str:
    """A list of objects as lines of padded columns; numbers stand right, line breaks in a cell become spaces."""
    names, cells, numeric = _grid(meter, rows, columns)
    if not names:
        return ""
    lines = [names, *([" ".join(cell.split()) for cell in line] for line in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    # A single long cell widens its column in every line: count the padding before it is made.
    meter.walk((sum(widths) + 2 * len(widths)) * (len(lines) + 1))
    lines.insert(1, ["-" * width for width in widths])
    pads = [str.rjust if right else str.ljust for right in numeric]
    return "\n".join("  ".join(pad(cell, width) for pad, cell, width in zip(pads, line, widths, strict=True)).rstrip() for line in lines)


def html_table(meter: Meter, rows: object, columns: object = None) -> Html:
    """A list of objects as an HTML table, all cells escaped."""
    names, cells, _ = _grid(meter, rows, columns)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in cells)
    return Html(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def _grid(meter: Meter, rows: object, columns: object) -> tuple[list[str], list[list[str]], list[bool]]:
    if not isinstance(rows, list | tuple):
        raise TemplateError(f"`table` needs a list of objects, found {described(rows)}")
    for index, row in enumerate(rows):
        meter.walk()
        if not isinstance(row, dict):
            raise TemplateError(f"`table` needs a list of objects, found {described(row)} at index {index}")
    if columns is None:
        seen: dict[str, None] = {}
        for row in rows:
            meter.walk(len(row))
            seen.update(dict.fromkeys(row))
        names = list(seen)
    elif isinstance(columns, list | tuple):
        names = [text(name, "a column of `table`") for name in columns]
    else:
        raise TemplateError(f"the columns of `table` must be a list of texts, found {described(columns)}")
    numeric = [True] * len(names)
    cells: list[list[str]] = []
    for row in rows:
        meter.walk(len(names))
        line = []
        for i, name in enumerate(names):
            value = row.get(name)
            numeric[i] = numeric[i] and (value is None or is_number(value))
            cell = write(value, meter.units)
            meter.walk(len(cell))
            line.append(cell)
        cells.append(line)
    meter.walk(sum(map(len, names)))
    return names, cells, numeric
