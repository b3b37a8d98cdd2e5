"""Following an instance live: what was recorded so far, then what is recorded from now on, without a gap and without holding anybody up.

An instance of this process tells its news itself; one of another process is looked at in growing pauses, or when news of it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol
from uuid import UUID

from agiwo.engine.watching import Watch
from agiwo.machine.state import ENDED_INSTANCE, INTERRUPT, InstanceStatus
from agiwo.ports.progress import Follower, Progress
from agiwo.ports.queries import Queries
from agiwo.service.callers import Caller
from agiwo.service.instances import PAGE, Instances, not_found
from agiwo.service.view import row_status

SHORTEST, LONGEST = 0.1, 2.0  # seconds between looks at an instance that is elsewhere

_PEOPLE = frozenset({"step.approval_asked", "step.unknown", "instance.interrupted"})


def _asks(record: Mapping[str, Any]) -> bool:
    """Whether something now waits for a person."""
    return record["type"] in _PEOPLE or (record["type"] == "step.queued" and record["data"]["reason"] == INTERRUPT)


class Watching(Protocol):
    """The part of the engine that tells news."""

    def watch(self, id: UUID) -> Watch: ...


class Unheard:
    """A Follower where nobody tells anything."""

    async def beyond(self, seq: int, longest: float) -> None:
        await asyncio.sleep(longest)

    def close(self) -> None:
        pass


class Following:
    """Streams of records, and waiting for an instance to end or to stop at a person."""

    def __init__(self, queries: Queries, instances: Instances, engine: Watching, progress: Progress | None = None) -> None:
        self._queries = queries
        self._instances = instances
        self._engine = engine
        self._progress = progress

    async def records(self, caller: Caller, id: UUID, after: int) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Batches of the records numbered above `after`, as they come; ends after the end of the instance. Raises NotFound.

        An empty batch says that there was nothing new for a while.
        """
        with closing(self._follower(id)) as elsewhere:
            pause = SHORTEST
            while True:
                watch = self._engine.watch(id)
                try:
                    # First listening, then reading: what comes between the two is seen twice and passed on once.
                    while True:
                        stored = await self._queries.history(caller.tenant, id, after, PAGE)
                        if stored is None:
                            raise not_found()
                        if not stored:
                            break
                        pause = SHORTEST
                        after = stored[-1]["seq"]
                        yield stored
                        if stored[-1]["type"] == "instance.ended":
                            return
                    async for batch in watch:
                        fresh = [record.to_json() for record in batch if record.seq > after]
                        if not fresh:
                            continue
                        pause = SHORTEST
                        after = fresh[-1]["seq"]
                        yield fresh
                        if fresh[-1]["type"] == "instance.ended":
                            return
                finally:
                    watch.close()
                if not await self._more(caller, id, after):
                    return
                yield ()
                await elsewhere.beyond(after, pause)
                pause = min(pause * 2, LONGEST)

    def _follower(self, id: UUID) -> Follower:
        return Unheard() if self._progress is None else self._progress.follow(id)

    async def _more(self, caller: Caller, id: UUID, after: int) -> bool:
        """Whether records above `after` can still come."""
        row = await self._instances.row(caller, id)
        return row.status not in ENDED_INSTANCE or bool(await self._queries.history(caller.tenant, id, after, 1))

    async def settled(self, caller: Caller, id: UUID, seconds: float) -> None:
        """Wait up to `seconds` until the instance has ended or waits for a person."""
        try:
            async with asyncio.timeout(seconds):
                asked = False
                async for batch in self.records(caller, id, 0):
                    asked = asked or any(_asks(record) for record in batch)
                    if asked and await self._interrupted(caller, id):
                        return
        except TimeoutError:
            return

    async def _interrupted(self, caller: Caller, id: UUID) -> bool:
        return row_status(await self._instances.row(caller, id)) == InstanceStatus.WAITING
