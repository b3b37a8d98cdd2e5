"""A limit as people see it: what is allowed, what is taken of it, what waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LimitState:
    """`scope` is node or model (all nodes together, where Redis counts); `in_use` and `queued` are None where nobody counts them."""

    name: str
    scope: str
    limit: int
    in_use: int | None = None
    queued: int | None = None


#: Gives the limits of one part of the service as they stand.
LimitSource = Callable[[], Iterable[LimitState]]
