"""Any order of calls returning, nodes dying, leases lost, answers lost and storage going away: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from agiwo.definition.compiled import Retry
from agiwo.engine.events import Happening
from agiwo.engine.node import Engine
from agiwo.errors import AgiwoError, Failure
from agiwo.machine.reports import Failed, Succeeded
from kit.engine import Calls, ShelfStore, World, pause, row, tool

FAULTS = st.lists(
    st.sampled_from(
        ["begin", "begin", "give", "give", "give", "fail", "declare dead", "restart", "cut", "heal", "lose answer", "cancel", "tick"]
    ),
    min_size=5,
    max_size=40,
)


class Fated(Calls):
    """Calls of which each third one waits for the test."""

    async def perform(self, call: Any, where: Any) -> Any:
        key = f"{where.instance_id}/{call.path}/{call.attempt}"
        self.made.append((key, call.attempt, call.idempotency_key))
        if len(self.made) % 3:
            return Succeeded(len(self.made))
        future = self.open[key] = asyncio.get_running_loop().create_future()
        return await future

    def settle(self, outcome: Any) -> None:
        if self.open:
            self.give(next(iter(self.open)), outcome)


class Play:
    """Two nodes that faults happen to, in turn."""

    def __init__(self) -> None:
        self.calls = Fated()
        self.w = World(row(tool("a", retry=Retry(3, 1.0)), pause("p", 5.0), tool("b"), tool("c")), self.calls)
        self.nodes: list[tuple[Engine, ShelfStore]] = []
        self.begun: list[UUID] = []
        self.happen: dict[str, Callable[[int], Awaitable[None]]] = {
            "begin": self.begin,
            "give": self.give,
            "fail": self.fail,
            "declare dead": self.declare_dead,
            "restart": self.restart,
            "cut": self.cut,
            "heal": self.mend,
            "lose answer": self.lose_answer,
            "cancel": self.cancel,
            "tick": self.tick,
        }

    async def node(self, name: str) -> tuple[Engine, ShelfStore]:
        return await self.w.node(name), self.w.stores[-1]

    async def begin(self, at: int) -> None:
        try:
            async with asyncio.timeout(0.05):
                self.begun.append((await self.w.begin(self.nodes[at][0]))[0])
        except (AgiwoError, TimeoutError):
            pass  # refused, or nobody knows; only what was accepted is promised

    async def give(self, at: int) -> None:
        self.calls.settle(Succeeded(at))

    async def fail(self, at: int) -> None:
        self.calls.settle(Failed(Failure("NetworkError", "no route", not_done=True)))

    async def declare_dead(self, at: int) -> None:
        self.w.shelf.free(self.nodes[at][1].me)

    async def restart(self, at: int) -> None:
        # The old process lives on as a zombie beside the new one.
        self.nodes[at] = await self.node(self.nodes[at][0].name)

    async def cut(self, at: int) -> None:
        self.nodes[at][1].down = True

    async def mend(self, at: int) -> None:
        self.nodes[at][1].down = False

    async def lose_answer(self, at: int) -> None:
        self.nodes[at][1].lose_answer = True

    async def cancel(self, at: int) -> None:
        if self.begun and self.begun[-1] in self.w.shelf.rows:
            self.w.shelf.send(self.begun[-1], "cancel", {"by": "user:a"})

    async def tick(self, at: int) -> None:
        self.w.clock.advance(3.0)
        self.nodes[at][0].tick()


async def play(faults: list[str]) -> None:
    play = Play()
    play.nodes = [await play.node("a"), await play.node("b")]
    try:
        for n, fault in enumerate(faults):
            await play.happen[fault](n % 2)
            for _ in range(n % 7):
                await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await heal(play.w, play.calls)
        check(play.w, play.calls, play.begun)
    finally:
        await play.w.close()
    for engine in play.w.nodes:
        assert (engine.load, engine.attempts.uncommitted) == (0, 0), "a place was never given back"


async def heal(w: World, calls: Fated) -> None:
    for store in w.stores:
        store.down = store.lose_answer = False
    await w.node("healer")
    while w.shelf.rows:
        w.clock.advance(4.0)
        for engine in w.nodes:
            engine.tick()
            engine._beats.hurry()
            engine._reaps.hurry()
        calls.settle(Succeeded("healed"))
        await asyncio.sleep(0.001)


def check(w: World, calls: Fated, begun: list[UUID]) -> None:
    assert set(begun) <= w.shelf.ended.keys()
    keys = [key for key, _, _ in calls.made]
    assert len(keys) == len(set(keys)), "one attempt was made twice"
    for id in w.shelf.ended:
        records = w.shelf.records(id)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        done = [record.path for record in records if record.type == "step.succeeded"]
        assert done == sorted(set(done), key=["a", "p", "b", "c"].index)
        assert w.shelf.ended[id] in ("SUCCESS", "CANCELLED", "FAILED")
    assert not w.moments.all(Happening.LOOP_FAILED)
    assert not w.moments.all(Happening.SET_ASIDE)


@settings(max_examples=25)
@given(faults=FAULTS)
def test_whatever_happens_every_accepted_instance_ends_once_with_a_gapless_history(faults: list[str]) -> None:
    asyncio.run(play(faults))
