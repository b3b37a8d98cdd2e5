"""Commits batches of fenced writes: the one path on which instances change.

Decides nothing: a write whose fence did not hold is read up and named, one that the database cannot hold is found and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from agiwo.ports.store import Answer, StoreUnavailable, Verdict, Write, WriteKind
from agiwo.store import columns
from agiwo.store.line import Line, Say

APPLIED = Verdict(Answer.APPLIED)
FENCED = Verdict(Answer.FENCED)
INBOX_MOVED = Verdict(Answer.INBOX_MOVED)

#: Sends of one batch over lost connections before the caller is told; the loop above waits between its own tries.
SENDS = 3
#: Tries of one batch that others' locks or keys stood in the way of.
TRIES = 10

_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_DATA = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.InternalServerError,  # a value beyond what one allocation can hold
    ValueError,
    OverflowError,
    TypeError,
)


class Writer:
    """Writes for one incarnation of a node. `shown` is kept by it: the status that lists show of each instance that the node holds."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.shown: dict[UUID, str] = {}

    async def write(self, node: int, batch: Sequence[Write]) -> list[Verdict]:
        """One verdict a write, in order. Raises StoreUnavailable when the fate of the batch stays unknown: send it again."""
        if not batch:
            return []
        verdicts = await self._write(node, columns.by_id(batch))
        if verdicts is None:
            self._remember(batch)
            return [APPLIED] * len(batch)
        self._remember([w for w in batch if verdicts[w.id] is APPLIED])
        for w in batch:
            if verdicts[w.id] is FENCED:
                self.shown.pop(w.id, None)
        return [verdicts[w.id] for w in batch]

    def _remember(self, written: Sequence[Write]) -> None:
        for w in written:
            if w.kind is WriteKind.PARK or w.kind is WriteKind.END:
                self.shown.pop(w.id, None)
            else:
                self.shown[w.id] = w.status

    async def _write(self, node: int, batch: list[Write]) -> dict[UUID, Verdict] | None:
        """Verdicts by id, or None if all were applied."""
        try:
            applied = await self._send(node, batch)
        except _DATA as exc:
            if len(batch) == 1:
                return {batch[0].id: Verdict(Answer.REFUSED, message=_reason(exc))}
            half = len(batch) // 2
            verdicts: dict[UUID, Verdict] = {}
            for part in (batch[:half], batch[half:]):
                verdicts |= await self._write(node, part) or {w.id: APPLIED for w in part}
            return verdicts
        if len(applied) == len(batch):
            return None
        verdicts = dict.fromkeys(applied, APPLIED)
        await self._judge(node, [w for w in batch if w.id not in verdicts], verdicts)
        return verdicts

    async def _send(self, node: int, batch: list[Write]) -> list[UUID]:
        """The ids whose write was applied now. A batch whose answer was lost is sent again: the fence makes that safe."""
        lost = clashed = 0
        while True:
            try:
                return await self._commit(node, batch)
            except StoreUnavailable:
                lost += 1
                if lost == SENDS:
                    raise
            except _AGAIN as exc:
                clashed += 1
                if clashed == TRIES:
                    raise StoreUnavailable(f"others were in the way {TRIES} times: {exc}") from exc

    async def _commit(self, node: int, batch: list[Write]) -> list[UUID]:
        plain = True
        alone = True
        for w in batch:
            if w.kind is not WriteKind.STEP or w.snapshot is not None or self.shown.get(w.id) != w.status:
                plain = False
            if w.inbox_done or w.approvals or w.outbox or w.closed or w.usage:
                alone = False
        if plain:
            name, values = "write_steps", columns.steps(batch)
        else:
            old = [w for w in batch if w.new is None]
            new = [w for w in batch if w.new is not None]
            name, values = "write_batch", columns.batch(old, new, self.shown.get)
        if alone:
            return [row[0] for row in await self._line.fetch(name, node, *values)]
        async with self._line.transaction() as say:
            applied = [row[0] for row in await say(name, node, *values)]
            held = set(applied)
            await _write_rest(say, [w for w in batch if w.id in held])
        return applied

    async def _judge(self, node: int, missed: list[Write], verdicts: dict[UUID, Verdict]) -> None:
        """Name what became of writes that were not applied now; those that nothing stands in the way of any more are sent again."""
        for _ in range(TRIES):
            rows = {row["id"]: row for row in await self._line.fetch("judge_misses", node, *columns.judged(missed))}
            again = []
            expired = []
            for w in missed:
                row = rows[w.id]
                verdict = _verdict(node, w, row)
                if verdict is not None:
                    verdicts[w.id] = verdict
                    continue
                again.append(w)
                if row["expired"] and w.new is not None:
                    expired.append((w.tenant, w.new.idempotency_key))
            if not again:
                return
            if expired:
                await self._line.fetch("forget_expired_keys", [t for t, _ in expired], [k for _, k in expired])
            applied = set(await self._send(node, again))
            verdicts |= dict.fromkeys(applied, APPLIED)
            missed = [w for w in again if w.id not in applied]
            if not missed:
                return
        raise StoreUnavailable(f"{len(missed)} writes were neither applied nor refused in {TRIES} tries")


def _verdict(node: int, w: Write, row: asyncpg.Record) -> Verdict | None:
    """None: nothing stands in the way, send it again."""
    if row["written"]:
        # It was applied before, and the answer was lost.
        return APPLIED
    if w.new is not None:
        promised = row["promised_to"]
        if promised is not None and promised != w.id and not row["expired"]:
            return Verdict(Answer.DUPLICATE, existing=promised, existing_digest=row["request_digest"])
        if row["known"]:
            return FENCED
        return None if row["held_back"] is None else Verdict(Answer.HELD_BACK, message=row["held_back"])
    if w.kind is WriteKind.PARK and w.seq == w.prev_seq and (row["owner"], row["epoch"], row["seq"]) == (None, w.epoch, w.seq):
        # It left no history, but only its owner can let go of an instance without a new epoch.
        return APPLIED
    if (row["owner"], row["epoch"], row["seq"]) != (node, w.epoch, w.prev_seq):
        return FENCED
    return INBOX_MOVED if w.guard_inbox and row["inbox_seq"] != w.inbox_seen else None


async def _write_rest(say: Say, writes: list[Write]) -> None:
    for name, values in (
        ("take_inbox", columns.inbox_done(writes)),
        ("insert_approvals", columns.approvals(writes)),
        ("close_pending_approvals", columns.closed(writes)),
        ("insert_outbox", columns.outbox(writes)),
        ("insert_usage", columns.usage(writes)),
    ):
        if values[0]:
            await say(name, *values)


def _reason(error: Exception) -> str:
    """Why the database refused it, without the value itself (a detail line may quote it in full)."""
    return str(error).splitlines()[0][:500] if str(error) else type(error).__name__
