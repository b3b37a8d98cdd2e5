"""What the statuses and exit codes of a declared tool mean: which are errors, of which type, and what they prove.

The narrowest range that names a status counts; a status that none names is judged as everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.definition.report import Path, Report
from agiwo.errors import is_a
from agiwo.values import shown

_RETRIED, _FINAL = "Unavailable", "ToolError"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One declared error."""

    first: int
    last: int
    type: str
    message: str | None
    not_done: bool


def meanings(declared: Mapping[str, Any], at: Path, report: Report) -> tuple[Meaning, ...]:
    """The declared errors, the narrowest range first. `retry` alone says a type: one that is tried again, or one that is not."""
    out = []
    for key, one in declared.items():
        first, last = _span(key)
        if last < first:
            report.error("wrong_form", f"the range {key} ends before it begins", (*at, key), key=True, found=key)
        retry = one.get("retry")
        type = one.get("type") or (_RETRIED if retry else _FINAL)
        if retry is not None and retry != is_a(type, "Transient"):
            will = "is" if not retry else "is not"
            report.error(
                "contradiction", f"a {type} {will} tried again by itself; take a type that says what `retry: {shown(retry)}` wants, or "
                "write `retry_on` in the step's `retry_policy`", (*at, key, "retry"), found=shown(retry),
            )  # fmt: skip
        out.append(Meaning(first, last, type, one.get("message"), one.get("not_done", False)))
    return tuple(sorted(out, key=lambda meaning: meaning.last - meaning.first))


def meaning_of(declared: tuple[Meaning, ...], status: int) -> Meaning | None:
    """What is declared of a status; None if nothing is."""
    return next((meaning for meaning in declared if meaning.first <= status <= meaning.last), None)


def _span(key: str) -> tuple[int, int]:
    if key.endswith("xx"):
        return int(key[0]) * 100, int(key[0]) * 100 + 99
    first, _, last = key.partition("-")
    return int(first), int(last or first)
