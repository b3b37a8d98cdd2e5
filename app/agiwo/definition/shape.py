"""Checks of the form of a document's parts, as values that are put together in `model`.

A check gives back the part as it counts, or BAD after it has said why not; it never stops at the first fault and knows no other part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agiwo.definition.durations import EXPECTED, seconds
from agiwo.definition.report import Path, Report
from agiwo.errors import InvalidInput
from agiwo.schema import Schema
from agiwo.values import JSON, kind_of, shown


class _Bad:
    """The mark of a part that cannot be used."""


BAD: Final = _Bad()
Check = Callable[[Report, Any, Path], Any]


@dataclass(frozen=True, slots=True)
class Text:
    """A text; a plain scalar counts as it was written."""

    pattern: str | None = None
    expected: str = "a text"
    longest: int = 100_000

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        if value is not None and not isinstance(value, str | dict | list):
            written = report.written(at)
            if written is None:
                report.wrong(at, value, f"{self.expected}: quote it")
                return BAD
            value = written
        if not isinstance(value, str):
            report.wrong(at, value, self.expected)
            return BAD
        if len(value) > self.longest:
            report.error(
                "too_long", f"expected at most {self.longest} characters, found {len(value)}", at, expected=f"at most {self.longest}"
            )
            return BAD
        if self.pattern is not None and re.fullmatch(self.pattern, value) is None:
            report.error("wrong_form", f"expected {self.expected}, found {shown(value)}", at, found=shown(value), expected=self.expected)
            return BAD
        return value


@dataclass(frozen=True, slots=True)
class Words:
    """One of some words; those in `later` are known and not carried out yet."""

    allowed: tuple[str, ...]
    later: tuple[str, ...] = ()

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        if isinstance(value, str) and value in self.allowed:
            return value
        if isinstance(value, str) and value in self.later:
            return not_supported(report, at, f"`{value}`")
        expected = "one of " + ", ".join(self.allowed)
        near = report.nearest(value, self.allowed) if isinstance(value, str) else None
        report.error(
            "wrong_value",
            f"expected {expected}, found {kind_of(value)} {shown(value)}",
            at,
            found=shown(value),
            expected=expected,
            nearest=near,
        )
        return BAD


def flag(report: Report, value: JSON, at: Path) -> Any:
    """True or false."""
    if isinstance(value, bool):
        return value
    report.wrong(at, value, "true or false")
    return BAD


@dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds."""

    least: float
    most: float
    whole: bool = True

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        fits = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        expected = f"a {'whole ' if self.whole else ''}number from {self.least:g} to {self.most:,g}"
        if fits and self.least <= value <= self.most:
            return value
        if fits:
            report.error("out_of_range", f"expected {expected}, found {shown(value)}", at, found=shown(value), expected=expected)
        else:
            report.wrong(at, value, expected)
        return BAD


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds, from a number or a duration text."""

    zero: bool = False

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        try:
            found = seconds(value)
        except ValueError as exc:
            report.error("wrong_duration", f"{exc}, found {shown(value)}", at, found=shown(value), expected=EXPECTED)
            return BAD
        if found == 0 and not self.zero:
            report.error("out_of_range", "a limit of no time at all can never be kept", at, found=shown(value), expected="more than 0")
            return BAD
        return found


@dataclass(frozen=True, slots=True)
class Many:
    """A list; with `single` one item may stand without a list around it."""

    item: Check
    least: int = 0
    what: str = "a list"
    single: bool = False

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        if self.single and not isinstance(value, list | dict) and value is not None:
            part = self.item(report, value, at)
            return BAD if part is BAD else [part]
        if not isinstance(value, list):
            report.wrong(at, value, self.what)
            return BAD
        if len(value) < self.least:
            report.error("empty_list", f"expected {self.what} that is not empty", at, found="[]", expected=f"at least {self.least}")
            return BAD
        return [self.item(report, part, (*at, index)) for index, part in enumerate(value)]


@dataclass(frozen=True, slots=True)
class Named:
    """An object whose keys are chosen by the author."""

    item: Check
    key: str | None = None
    key_words: str = ""
    least: int = 0

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        if not isinstance(value, dict):
            report.wrong(at, value, "an object")
            return BAD
        if len(value) < self.least:
            report.error("empty_list", "expected an object that is not empty", at, found="{}", expected="at least one key")
            return BAD
        out: dict[str, Any] = {}
        for name, part in value.items():
            if self.key is not None and re.fullmatch(self.key, name) is None:
                report.error(
                    "wrong_form",
                    f"the key {shown(name)} is not {self.key_words}",
                    (*at, name),
                    key=True,
                    found=name,
                    expected=self.key_words,
                )
                continue
            found = self.item(report, part, (*at, name))
            if found is not BAD:
                out[name] = found
        return out


@dataclass(frozen=True, slots=True)
class Record:
    """An object with known keys; `later` are keys that this version does not carry out yet, `elsewhere` says of a key where it belongs."""

    what: str
    keys: Mapping[str, Check]
    required: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        if not isinstance(value, dict):
            report.wrong(at, value, f"an object ({self.what})")
            return BAD
        out: dict[str, Any] = {}
        for name, part in value.items():
            check = self.keys.get(name)
            if check is not None:
                found = check(report, part, (*at, name))
                if found is not BAD:
                    out[name] = found
            elif name in self.later:
                not_supported(report, (*at, name), f"`{name}`", key=True)
            elif name in self.elsewhere:
                report.error(
                    "misplaced_key", f"`{name}` does not belong to {self.what}: {self.elsewhere[name]}", (*at, name), key=True, found=name
                )
            else:
                self._unknown(report, name, (*at, name))
        for name in self.required:
            if name not in value:
                report.error("missing_key", f"{self.what} needs `{name}`", (*at, name), expected=name)
        return out

    def _unknown(self, report: Report, name: str, at: Path) -> None:
        expected = "one of " + ", ".join(sorted(self.keys))
        near = report.nearest(name, [*self.keys, *self.later])
        report.error("unknown_key", f"{self.what} has no key `{name[:80]}`", at, key=True, found=name[:80], expected=expected, nearest=near)


@dataclass(frozen=True, slots=True)
class ByKind:
    """Different checks for different JSON types; the names are those of JSON Schema."""

    expected: str
    kinds: Mapping[str, Check]

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        kind = kind_of(value)
        check = self.kinds.get("number" if kind == "integer" and "integer" not in self.kinds else kind)
        if check is None:
            report.wrong(at, value, self.expected)
            return BAD
        return check(report, value, at)


def anything(report: Report, value: JSON, at: Path) -> Any:
    """Any value; templates in it are compiled later."""
    return value


def schema(report: Report, value: JSON, at: Path) -> Any:
    """A JSON Schema, compiled."""
    if not isinstance(value, dict):
        report.wrong(at, value, "a JSON Schema (an object)")
        return BAD
    try:
        return Schema.compile(value)
    except InvalidInput as exc:
        for problem in exc.problems:
            inside = tuple(p.replace("~1", "/").replace("~0", "~") for p in problem.pointer.split("/")[1:])
            report.error(
                problem.code, f"not a usable JSON Schema: {problem.message}", (*at, *inside), found=problem.found, expected=problem.expected
            )
        return BAD


def expression(report: Report, value: JSON, at: Path) -> Any:
    """The text of an expression; true and false stand for themselves."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.strip():
        return value
    report.wrong(at, value, "an expression, bare or as exactly one {{ }}")
    return BAD


def not_supported(report: Report, at: Path, what: str, *, key: bool = False) -> _Bad:
    """Say that a thing of the language is known and not carried out yet, so that nobody takes it for working."""
    report.error("not_supported", f"this version of Agiwo does not carry out {what} yet", at, key=key, found=what.strip("`"))
    return BAD


@dataclass(frozen=True, slots=True)
class Only:
    """A key whose usual value is taken and whose others are not carried out yet."""

    value: JSON

    def __call__(self, report: Report, value: JSON, at: Path) -> Any:
        return value if value == self.value else not_supported(report, at, f"`{at[-1]}: {shown(value)}`")
