"""A batch of writes as arrays, one a column, in the order in which the statements take them.

Pure; one pass a column and nothing else, since the hot path pays for every object made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

from agiwo.ports.store import NewInstance, UsageRow, Write, WriteKind
from agiwo.values import encode

#: The kinds as `write_batch` numbers them; 1 is a step that changes what lists show.
NUMBERS: Mapping[WriteKind, int] = {WriteKind.NEW: 0, WriteKind.STEP: 0, WriteKind.PARK: 2, WriteKind.END: 3}

#: The fields of a row of the ledger, in the order in which `insert_usage` takes them.
USAGE = tuple(field.name for field in fields(UsageRow))

Columns = tuple[Sequence[Any], ...]


def by_id(writes: Sequence[Write]) -> list[Write]:
    """Sorted by id, as the rows will be locked: a stale owner and the new one can then not wait for each other."""
    return sorted(writes, key=lambda w: w.id.int)


def steps(writes: Sequence[Write]) -> Columns:
    """The columns of `write_steps` after the node."""
    return (
        [w.id for w in writes],
        [w.epoch for w in writes],
        [w.prev_seq for w in writes],
        [w.seq for w in writes],
        [w.records for w in writes],
        [w.at for w in writes],
        [w.inbox_seen if w.guard_inbox else None for w in writes],
    )


def batch(old: Sequence[Write], new: Sequence[Write], shown: Callable[[UUID], str | None]) -> Columns:
    """The columns of `write_batch` after the node; `shown` tells the status that lists show of an instance at present."""
    made: list[tuple[Write, NewInstance]] = [(w, w.new) for w in new if w.new is not None]
    return (
        [w.id for w in old],
        [1 if w.kind is WriteKind.STEP and shown(w.id) != w.status else NUMBERS[w.kind] for w in old],
        [w.epoch for w in old],
        [w.prev_seq for w in old],
        [w.seq for w in old],
        [w.records for w in old],
        [w.at for w in old],
        [w.inbox_seen if w.guard_inbox else None for w in old],
        [w.status for w in old],
        [w.due_at for w in old],
        [_json(w.error) for w in old],
        [w.waiting_for for w in old],
        [w.snapshot for w in old],
        [w.id for w in new],
        [NUMBERS[w.kind] for w in new],
        [w.epoch for w in new],
        [w.seq for w in new],
        [w.records for w in new],
        [w.at for w in new],
        [w.status for w in new],
        [w.due_at for w in new],
        [_json(w.error) for w in new],
        [w.waiting_for for w in new],
        [w.snapshot for w in new],
        [w.tenant for w in new],
        [n.workflow for _, n in made],
        [n.version for _, n in made],
        [n.content_hash for _, n in made],
        [n.trace_id for _, n in made],
        [n.starter for _, n in made],
        [encode(dict(n.labels)) if n.labels else "{}" for _, n in made],
        [n.correlation_key for _, n in made],
        [n.priority for _, n in made],
        [n.idempotency_key for _, n in made],
        [n.request_digest for _, n in made],
        [n.key_expires_at for _, n in made],
        [n.callback_url for _, n in made],
    )


def approvals(writes: Sequence[Write]) -> Columns:
    """The columns of `insert_approvals`."""
    rows = [(w, a) for w in writes for a in w.approvals]
    return (
        [a.id for _, a in rows],
        [w.id for w, _ in rows],
        [w.tenant for w, _ in rows],
        [a.path for _, a in rows],
        [a.step for _, a in rows],
        [a.digest for _, a in rows],
        [a.title for _, a in rows],
        [encode(dict(a.body)) for _, a in rows],
        [encode(list(a.approvers)) for _, a in rows],
        [a.asked_at for _, a in rows],
        [a.expires_at for _, a in rows],
    )


def closed(writes: Sequence[Write]) -> Columns:
    """The columns of `close_pending_approvals`, sorted as they will be locked."""
    rows = sorted(((c.id, c.state) for w in writes for c in w.closed), key=lambda row: row[0].int)
    return [id for id, _ in rows], [state for _, state in rows]


def outbox(writes: Sequence[Write]) -> Columns:
    """The columns of `insert_outbox`."""
    rows = [(w, position, o) for w in writes for position, o in enumerate(w.outbox)]
    return (
        [o.id for _, _, o in rows],
        [w.id for w, _, _ in rows],
        [w.tenant for w, _, _ in rows],
        [w.seq if o.seq is None else o.seq for w, _, o in rows],
        [position if o.seq is None else 0 for _, position, o in rows],
        [o.kind for _, _, o in rows],
        [o.target for _, _, o in rows],
        [encode(dict(o.body)) for _, _, o in rows],
    )


def usage(writes: Sequence[Write]) -> Columns:
    """The columns of `insert_usage`."""
    rows = [(w, u) for w in writes for u in w.usage]
    return (
        [w.id for w, _ in rows],
        [w.tenant for w, _ in rows],
        *([getattr(u, name) for _, u in rows] for name in USAGE),
    )


def inbox_done(writes: Sequence[Write]) -> Columns:
    """The columns of `take_inbox`."""
    rows = [(w.id, item) for w in writes for item in w.inbox_done]
    return [id for id, _ in rows], [item for _, item in rows]


def judged(writes: Sequence[Write]) -> Columns:
    """The columns of `judge_misses` after the node."""
    return (
        [w.id for w in writes],
        [w.epoch for w in writes],
        [w.seq for w in writes],
        [w.records for w in writes],
        [w.tenant for w in writes],
        [w.new.idempotency_key if w.new is not None else None for w in writes],
        [w.new.workflow if w.new is not None else None for w in writes],
        [w.new.version if w.new is not None else None for w in writes],
    )


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else encode(dict(value))
