"""When a snapshot is due, so that taking over is bounded and all snapshots of an instance together stay linear in its history.

It writes none itself; it only counts.
"""

from __future__ import annotations

from dataclasses import dataclass

RECORDS = 100
CHARACTERS = 32_768


@dataclass(slots=True)
class SinceSnapshot:
    """How much of the history stands after the last snapshot; `size` is that snapshot's length in characters (0: there is none)."""

    records: int = 0
    characters: int = 0
    size: int = 0

    def due(self, records: int, characters: int) -> bool:
        """Whether a write of that much more should carry a snapshot.

        A large state is written again only after half its size in new records, or the snapshots of a long life would grow with its square.
        """
        after = self.characters + characters
        return (self.records + records > RECORDS or after > CHARACTERS) and after > self.size // 2

    def written(self, records: int, characters: int, snapshot: str | None) -> None:
        """A write was committed."""
        if snapshot is None:
            self.records += records
            self.characters += characters
        else:
            self.records, self.characters, self.size = 0, 0, len(snapshot)
