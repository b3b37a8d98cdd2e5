"""What the engine tells whoever observes it: one value for everything that happened, from which logs and metrics are made.

Nobody's answer changes what the engine does; it goes on only after the observer has returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agiwo.ports.executor import Circumstances


class Happening(StrEnum):
    """The names of events; `data` holds what is said in brackets."""

    # an instance
    COMMITTED = "committed"  # a decision is durable, its commands are not yet carried out [records, kind, status]
    ATTEMPT_STARTED = "attempt_started"  # the call is about to be made [step, kind]
    ATTEMPT_RETURNED = "attempt_returned"  # the call has an outcome, which is not yet committed [step, kind, tool, outcome, seconds]
    ATTEMPT_FENCED = "attempt_fenced"  # it did not stop within its grace and goes on by itself [step, reason]
    STRAGGLER_RETURNED = "straggler_returned"  # what a fenced attempt gave at last, and nobody takes [outcome]
    ENDED = "ended"  # [status, seconds, error]
    LET_GO = "let_go"  # it leaves this node's memory [reason]
    SET_ASIDE = "set_aside"  # nobody drives it until a person acts [reason]
    ITEM_REFUSED = "item_refused"  # the inbox held something that makes no sense; it is taken out [kind, message]
    REFUSED = "refused"  # the database cannot hold what was to be written [message]
    # a node
    JOINED = "joined"  # a new incarnation began [node]
    DECLARED_DEAD = "declared_dead"  # others took over, all was dropped [held]
    CLAIMED = "claimed"  # [count]
    ORPHANS_RELEASED = "orphans_released"  # owned by the database's word, but not in memory [count]
    BATCH_WRITTEN = "batch_written"  # [writes, seconds]
    STORE_LOST = "store_lost"  # the storage does not answer [place, message]
    STORE_BACK = "store_back"  # it answers again [place]
    LOOP_FAILED = "loop_failed"  # a mistake in our own code [loop, traceback]
    LEFT = "left"  # [node]
    # the outbox
    DELIVERED = "delivered"  # [kind, target, tries]
    NOT_DELIVERED = "not_delivered"  # [kind, target, tries, message, gave_up]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened at `at` (seconds since 1970); `where` says to which instance, `path` and `attempt` to which call."""

    name: Happening
    at: float
    where: Circumstances | None = None
    path: str | None = None
    attempt: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


Observe = Callable[[Event], None]


def to_all(*observers: Observe) -> Observe:
    """One observer that passes every event on, in the order given."""

    def observe(event: Event) -> None:
        for observer in observers:
            observer(event)

    return observe


def guarded(observe: Observe | None) -> Observe | None:
    """An observer whose mistakes go to the event loop's exception handler and stop nothing."""
    if observe is None:
        return None
    told = observe

    def careful(event: Event) -> None:
        try:
            told(event)
        except Exception as exc:
            context = {"message": f"an observer failed on the event {event.name}", "exception": exc}
            asyncio.get_running_loop().call_exception_handler(context)

    return careful
