"""The convention of every change: why it is made, and whether it is only tried.

A verb that is tried checks everything that it would check and then writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Change:
    """`reason` goes into the audit row; a `dry` change is checked and not made."""

    reason: str | None = None
    dry: bool = False


#: A change that is made, for no reason that anybody gave.
PLAIN = Change()
