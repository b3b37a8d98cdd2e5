"""What holds calls of models back: so many a minute, so many tokens a minute, so many at one time, and a pause that an endpoint asked for.

A node may keep count for itself, or share the count with others; whoever calls sees no difference.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

#: Seconds, at most, that one node may ask of all.
LONGEST_PAUSE = 86_400.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a profile allows: calls and tokens in a minute, calls at one time; None: any number."""

    rpm: int | None = None
    tpm: int | None = None
    max_concurrency: int | None = None


@dataclass(slots=True)
class Permit:
    """A call that may be made; `tokens` is what it was let in for, and is set to what it took when that is known."""

    tokens: int


class ModelLimits(Protocol):
    """Admits calls by key (a profile's name and a model)."""

    def call(self, key: str, allowance: Allowance, tokens: int, patience: float) -> AbstractAsyncContextManager[Permit]:
        """Hold one place for the length of the context, after waiting for it up to `patience` seconds.

        Raises RateLimited (not done, with the wait that is left) on entry if that is not enough; nothing was counted then.
        """
        ...

    def cool_down(self, key: str, seconds: float) -> None:
        """The endpoint asks for a pause: no call of this key is let in for so long, and those that wait come spread over a while after."""
        ...


class PauseNews(Protocol):
    """Carries between nodes what an endpoint asked of one of them. It may lose some."""

    def tell(self, key: str, seconds: float) -> None:
        """Let the other nodes know soon. Never raises, never blocks."""
        ...

    def hear(self) -> AsyncIterator[tuple[str, float]]:
        """Key and seconds, as told by all, this node too, for ever."""
        ...
