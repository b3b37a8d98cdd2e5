"""Following an instance that another node drives: looked at when that node tells of a commit, without waiting for the next poll."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID, uuid4

from agiwo.engine.watching import Watch
from agiwo.ports.queries import Queries
from agiwo.service.callers import Caller
from agiwo.service.following import Following
from agiwo.service.instances import Instances

CALLER = Caller("default", "key:x", frozenset())


class Elsewhere:
    """Storage, list and engine of a node that does not hold the instance."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []
        self.status = "RUNNING"

    async def history(self, tenant: str, id: UUID, after: int, limit: int) -> list[Mapping[str, Any]]:
        return [record for record in self.records if record["seq"] > after]

    async def row(self, caller: Caller, id: UUID) -> Elsewhere:
        return self

    def watch(self, id: UUID) -> Watch:
        return Watch(None)


class Told:
    """A Progress in which only the test tells; nobody's wait ends by itself."""

    def __init__(self) -> None:
        self.seq = 0
        self.moved = asyncio.Event()
        self.open = 0
        self.waiting = asyncio.Event()

    def tell(self, instance: UUID, seq: int) -> None:
        self.seq = seq
        self.moved.set()

    def follow(self, instance: UUID) -> Told:
        self.open += 1
        return self

    async def beyond(self, seq: int, longest: float) -> None:
        while self.seq <= seq:
            self.moved.clear()
            self.waiting.set()
            await self.moved.wait()

    def close(self) -> None:
        self.open -= 1


async def test_news_of_another_node_end_the_wait_and_none_is_left_behind() -> None:
    there, progress, id = Elsewhere(), Told(), uuid4()
    following = Following(cast(Queries, there), cast(Instances, there), there, progress)
    seen: list[Any] = []

    async def follow() -> None:
        async for batch in following.records(CALLER, id, 0):
            seen.extend(record["seq"] for record in batch)

    task = asyncio.create_task(follow())
    for seq in (1, 2, 3):
        await progress.waiting.wait()
        progress.waiting.clear()
        assert seen == list(range(1, seq))
        there.records.append({"seq": seq, "type": "instance.ended" if seq == 3 else "step.started"})
        progress.tell(id, seq)
    await task
    assert seen == [1, 2, 3]
    assert progress.open == 0


async def test_a_follower_that_hangs_up_is_forgotten() -> None:
    there, progress = Elsewhere(), Told()
    following = Following(cast(Queries, there), cast(Instances, there), there, progress)
    stream = following.records(CALLER, uuid4(), 0)
    assert await anext(stream) == ()
    assert progress.open == 1
    await stream.aclose()  # type: ignore[attr-defined]
    assert progress.open == 0
