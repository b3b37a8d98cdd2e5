"""What a wrong name was most likely meant to be.

It guesses and corrects nothing; whoever found the name wrong tells the guess.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST_NAME = 128


def nearest(name: str, among: Iterable[str]) -> str | None:
    """The name that `name` was most likely meant to be, if one is near; of what is longer than names are it guesses nothing."""
    names = list(among)
    wanted = name.lower()
    same = next((n for n in names if len(n) == len(name) and n.lower() == wanted), None)
    if same is not None or len(name) > _LONGEST_NAME:
        return same
    close = difflib.get_close_matches(name, [n for n in names if len(n) <= _LONGEST_NAME], 1, 0.6)
    return close[0] if close else None
