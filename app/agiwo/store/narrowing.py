"""How a list of instances is narrowed so that it costs its page and not the table.

One condition that an index serves leads; what no index serves is looked for within a window of the newest rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, literal_column, or_

from agiwo.machine.state import InstanceStatus
from agiwo.ports.queries import InstanceFilter
from agiwo.store import schema

#: Rows that one page looks at, at most, where a condition has no index of its own.
WINDOW = 20_000

_i = schema.instance.c

#: A condition over whichever columns it is put to: of the table itself, or of a window of it.
Condition = Callable[[Any], ColumnElement[bool]]


@dataclass(frozen=True, slots=True)
class Narrowed:
    """`leading` is served by an index in the order of ids; `rest` is not."""

    leading: tuple[ColumnElement[bool], ...]
    rest: tuple[Condition, ...]


def narrowed(tenant: str, wanted: InstanceFilter, before: UUID | None) -> Narrowed:
    """The conditions for instances of a tenant with an id below `before`."""
    bounds: list[ColumnElement[bool]] = [_i.tenant == tenant]
    if before is not None:
        bounds.append(_i.id < before)
    if wanted.since is not None:
        bounds.append(_i.id >= first_id(wanted.since))
    if wanted.until is not None:
        bounds.append(_i.id < first_id(wanted.until))
    indexed, rest = _conditions(wanted)
    return Narrowed((*bounds, *(make(_i) for make in indexed[:1])), (*indexed[1:], *rest))


def _conditions(wanted: InstanceFilter) -> tuple[list[Condition], list[Condition]]:
    """Those with an index, the one that leaves the fewest first; and those without."""
    indexed: list[Condition] = []
    if wanted.trace_id is not None:
        indexed.append(lambda c: c.trace_id == wanted.trace_id)
    if wanted.correlation_key is not None:
        indexed.append(lambda c: c.correlation_key == wanted.correlation_key)
    if wanted.error is not None:
        indexed.append(lambda c: and_(c.error.is_not(None), error_type(c) == wanted.error))
    if wanted.workflow is not None:
        indexed.append(lambda c: c.workflow == wanted.workflow)
    rest: list[Condition] = []
    if wanted.status in LIVE:
        indexed.append(lambda c: c.status.in_(LIVE))
        rest.append(_waiting if wanted.status == InstanceStatus.WAITING else _running)
    elif wanted.status is not None:
        indexed.append(lambda c: c.status == wanted.status)
    if wanted.version is not None:
        rest.append(lambda c: c.version == wanted.version)
    if wanted.starter is not None:
        rest.append(lambda c: c.starter == wanted.starter)
    if wanted.labels:
        rest.append(lambda c: c.labels.contains(dict(wanted.labels or {})))
    return indexed, rest


#: What waits is running for the engine; the row says for what it waits.
LIVE = (InstanceStatus.RUNNING.value, InstanceStatus.WAITING.value)


def _waiting(c: Any) -> ColumnElement[bool]:
    return or_(c.status == InstanceStatus.WAITING.value, c.waiting_for.is_not(None))


def _running(c: Any) -> ColumnElement[bool]:
    return and_(c.status == InstanceStatus.RUNNING.value, c.waiting_for.is_(None))


def error_type(c: Any) -> Any:
    """The type of the error, as the index on it has it."""
    return c.error.op("->>")(literal_column("'type'"))


def first_id(at: float) -> UUID:
    """The lowest id of that moment (seconds since 1970): ids begin with their time in milliseconds."""
    return UUID(int=max(0, min(int(at * 1000), (1 << 48) - 1)) << 80)
