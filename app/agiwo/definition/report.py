"""Collects what is wrong with a document, each with its place in the text.

Decides nothing: who finds a fault names its path, this adds line and column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agiwo.definition.yaml_text import Place, locate
from agiwo.errors import Problem
from agiwo.names import nearest
from agiwo.values import JSON, kind_of, pointer, shown

Path = tuple[str | int, ...]

#: Names that are compared for one document before nothing more is guessed: a guess takes time, and nobody reads the thousandth.
_COMPARISONS = 50_000


class Report:
    """The problems of one document.

    `places` is where its parts stand, `prefix` what encloses the workflow in the text (`("workflow",)`), `source` the text.
    """

    def __init__(
        self, places: Mapping[str, Place] | None = None, prefix: Path = (), problems: Iterable[Problem] = (), source: str = ""
    ) -> None:
        self.places = places or {}
        self._lines = source.split("\n")
        self.prefix = prefix
        self._found: dict[tuple[str, str, str], Problem] = {}
        self._comparisons = _COMPARISONS
        for problem in problems:
            self._keep(problem)

    def error(self, code: str, message: str, at: Path, *, key: bool = False, severity: str = "error", inner: int = 0, **more: Any) -> None:
        """Note a fault at path `at` within the workflow; with `key` its line is that of the key. `more` as in Problem.

        `inner` is the line within a text of several lines, counted from 1.
        """
        place = pointer(*self.prefix, *at)
        if "nearest" in more and more["nearest"]:
            message = f"{message}; did you mean `{more['nearest']}`?"
        self._keep(self._located(Problem(code, message, place, severity=severity, **more), key, inner))

    def warning(self, code: str, message: str, at: Path, *, key: bool = False, **more: Any) -> None:
        """Note what is allowed and probably not meant."""
        self.error(code, message, at, key=key, severity="warning", **more)

    def wrong(self, at: Path, value: JSON, expected: str, code: str = "wrong_type") -> None:
        """Note a value of the wrong kind."""
        found = self.written(at) or shown(value)
        self.error(code, f"expected {expected}, found {kind_of(value)} {found}", at, found=found, expected=expected)

    def written(self, at: Path) -> str | None:
        """The text of a plain scalar as it was written, where it was read as something else than text."""
        place = self.places.get(pointer(*self.prefix, *at))
        return None if place is None else place.written

    def line_of(self, at: Path) -> str | None:
        """Where a part stands, in words."""
        place = self.places.get(pointer(*self.prefix, *at))
        return None if place is None else f"line {place.line}"

    def nearest(self, name: str, among: Iterable[str]) -> str | None:
        """The name that a wrong one was most likely meant to be, as long as this document has not had too many guesses."""
        names = list(among)
        self._comparisons -= len(names)
        return nearest(name, names) if self._comparisons >= 0 else None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All of them, by place."""
        return tuple(sorted(self._found.values(), key=lambda p: (p.line or 0, p.column or 0, p.pointer, p.code)))

    @property
    def broken(self) -> bool:
        """Whether any of them is an error."""
        return any(p.severity == "error" for p in self._found.values())

    def _keep(self, problem: Problem) -> None:
        self._found.setdefault((problem.code, problem.pointer, problem.message), problem)

    def _located(self, problem: Problem, key: bool, inner: int) -> Problem:
        place = next(locate(self.places, problem.pointer), None) if self.places else None
        if place is None:
            return problem
        if inner and place.line <= len(self._lines) and self._lines[place.line - 1][place.column - 1 : place.column] in ("|", ">"):
            return replace(problem, line=place.line + inner, column=1)
        line, column = (place.key_line, place.key_column) if key else (place.line, place.column)
        return replace(problem, line=line, column=column)
