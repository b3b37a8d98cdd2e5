"""Versions as text: which form they have and which of two is higher.

A version is never turned into a number; 1.10 stays "1.10" and is higher than 1.9.
"""

from __future__ import annotations

import re

VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:-[a-z0-9.]+)?")
MAX_LENGTH = 64

VersionKey = tuple[tuple[int, ...], bool, tuple[tuple[int, int, str], ...]]


def version_key(text: str) -> VersionKey:
    """A key that orders versions and is equal for versions of equal rank (1.0 and 1.00 and 1).

    Parts compare as numbers. A version with a label is lower than the one without; labels compare part by part, numbers before words.
    Raises ValueError if `text` is no version.
    """
    if len(text) > MAX_LENGTH or VERSION.fullmatch(text) is None:
        raise ValueError(f"{text[:80]!r} is no version: digits with dots, and a label of small letters after a hyphen if wanted")
    numbers, _, label = text.partition("-")
    parts = [int(part) for part in numbers.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    words = tuple((0, int(w), "") if w.isdigit() else (1, 0, w) for w in label.split(".")) if label else ()
    return tuple(parts), not label, words


def labelled(text: str) -> bool:
    """Whether a version carries a label, so that a trigger takes it only when it is named."""
    return "-" in text
