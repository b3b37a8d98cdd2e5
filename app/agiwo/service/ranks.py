"""A version's rank as text that sorts, byte by byte, as versions compare, so that a database can order them.

Equal ranks are one version spelled twice.
"""

from __future__ import annotations

from agiwo.definition.versions import version_key


def rank(version: str) -> str:
    """The rank of a version. Raises ValueError if it is none."""
    parts, plain, words = version_key(version)
    # `!` sorts before every character of a part, so that a shorter version stands before the longer ones that begin with it.
    numbers = ".".join(_number(part) for part in parts)
    label = "!".join(f"1{word}" if kind else f"0{_number(number)}" for kind, number, word in words)
    return f"{numbers}!1" if plain else f"{numbers}!0{label}"


def label_of(version: str) -> str:
    """What follows the dash in a version, "" if nothing does."""
    return version.partition("-")[2]


def _number(value: int) -> str:
    digits = str(value)
    return f"{len(digits):02d}{digits}"
