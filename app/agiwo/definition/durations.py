"""Durations and times as authors write them: seconds, or digits with ms, s, m, h and d; timestamps with a zone.

Knows no clock and rounds nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

MAX_SECONDS = 3650 * 86_400.0
EXPECTED = "a number of seconds, or digits with ms, s, m, h or d as in 30s, 1h30m, 5d"
_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_FORM = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m(?!s))?(?:([0-9]{1,9})s)?(?:([0-9]{1,12})ms)?")


def seconds(value: Any) -> float:
    """The seconds that a duration stands for.

    Raises ValueError that says what is expected: for another form or type, a negative number, or more than ten years.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected {EXPECTED}")
    if isinstance(value, str):
        match = _FORM.fullmatch(value)
        if not value or match is None:
            raise ValueError(f"expected {EXPECTED}")
        total = sum(int(digits) * unit for digits, unit in zip(match.groups(), _UNITS.values(), strict=True) if digits)
    else:
        total = float(value) if abs(value) <= MAX_SECONDS else MAX_SECONDS * (2 if value > 0 else -1)
    if total != total or total < 0:
        raise ValueError("a duration cannot be negative")
    if total > MAX_SECONDS:
        raise ValueError("a duration cannot be longer than 3650 days")
    return total


def worded(value: float) -> str:
    """Seconds in the form that authors write: 5400 is 1h30m."""
    left, parts = round(value * 1000), []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def moment(value: object) -> float:
    """The time, in seconds since 1970, that a timestamp with zone stands for. Raises ValueError for anything else."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError("expected a timestamp with zone such as 2026-12-01T09:00:00Z")
    return found.timestamp()
