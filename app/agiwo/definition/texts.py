"""Compiles the templates and expressions of a document, and remembers what each of them reads and when it is evaluated.

Says what is wrong with each of them at its place; whether what they read is there is proved elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.definition.report import Path, Report
from agiwo.template import Expression, Read, TemplateErrors, ValueTemplate, compile_expression, compile_value, is_template
from agiwo.values import JSON

CONTEXT = "context"  # once, at the start of the instance
START = "start"  # before the step's call
WHEN = "when"  # the condition itself, before all others
SIGNAL = "signal"  # when a signal comes: `payload` and `event` are there
AFTER = "after"  # after the call: the step's own output and `result` are there
END = "end"  # at the end of the instance


@dataclass(frozen=True, slots=True)
class Use:
    """One template or expression: whose it is (a step's number, None for the workflow's own), when it is evaluated, where it stands."""

    step: int | None
    phase: str
    at: Path
    reads: tuple[Read, ...]
    secrets: frozenset[str] = frozenset()
    source: JSON = None


class Texts:
    """Compiles and collects."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.uses: list[Use] = []

    def value(
        self, source: JSON, at: Path, step: int | None, phase: str, *, uses: Mapping[str, str] | None = None, secrets: bool = False
    ) -> ValueTemplate | None:
        """A value with templates in it; None if it has errors."""
        try:
            made = compile_value(source, uses=uses, place=_place(at, step), allow_secrets=secrets)
        except TemplateErrors as exc:
            self._refuse(exc, at)
            return None
        if not made.constant:
            self.uses.append(Use(step, phase, at, made.reads, made.secrets, source))
        return made

    def expression(self, source: str, at: Path, step: int | None, phase: str) -> Expression | None:
        """An expression; None if it has errors."""
        try:
            made = compile_expression(source, place=_place(at, step))
        except TemplateErrors as exc:
            self._refuse(exc, at)
            return None
        self.uses.append(Use(step, phase, at, made.reads))
        return made

    def _refuse(self, exc: TemplateErrors, at: Path) -> None:
        for error in exc.errors:
            data: Mapping[str, Any] = error.data if isinstance(error.data, Mapping) else {}
            inside = tuple(part.replace("~1", "/").replace("~0", "~") for part in str(data.get("pointer", "")).split("/")[1:])
            self._report.error("template", error.message, (*at, *inside), found=str(data.get("template", ""))[:200], inner=_line(data))


def _line(data: Mapping[str, Any]) -> int:
    line = data.get("line")
    return line if isinstance(line, int) else 0


def place_of(use: Use, read: Read) -> Path:
    """Where in a value the text stands that reads this."""
    found = _leaf(use.source, read, use.at)
    return use.at if found is None else found


def _leaf(source: JSON, read: Read, at: Path) -> Path | None:
    if isinstance(source, str):
        return at if is_template(source) and read in compile_value(source, allow_secrets=True).reads else None
    parts = source.items() if isinstance(source, dict) else enumerate(source) if isinstance(source, list) else ()
    return next((found for key, part in parts if (found := _leaf(part, read, (*at, key))) is not None), None)


def _place(at: Path, step: int | None) -> str:
    """How messages call the place: within its step, since the step is named beside it."""
    return "/".join(str(part) for part in (at if step is None else at[2:]))
