"""Whatever way an instance leaves a node, its calls give their places back, and nothing that people said is slept over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from agiwo.definition.compiled import Kind
from agiwo.definition.contract import Effect
from agiwo.engine.events import Happening
from agiwo.engine.held import ASIDE_AGAIN, Entry
from agiwo.errors import Unavailable
from agiwo.machine.reports import Begin, Succeeded
from agiwo.ports.store import Answer, Claimed, Inbox, StoreUnavailable, Verdict, Write
from kit.engine import Calls, ShelfStore, TestClock, World, pause, row, tool, until

Make = Callable[..., World]


def refuse(store: ShelfStore, refused: Callable[[Write], bool]) -> None:
    """Have the storage refuse some writes for their data."""
    ask = store._one
    store._one = lambda write: Verdict(Answer.REFUSED, message="no") if refused(write) else ask(write)  # type: ignore[method-assign]


async def test_a_fenced_outcome_gives_its_place_back(world: Make) -> None:
    """REQ-31."""
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    old = await w.node("a", heartbeat=1000.0, max_uncommitted_steps=1)
    await w.begin(old)
    await w.calls.begun("a")
    await w.node("a", Calls())
    await w.moments.until(Happening.ENDED)
    w.calls.give("a")
    await w.moments.until(Happening.LET_GO, reason="fenced")
    assert old.attempts.uncommitted == 0


async def test_what_is_set_aside_gives_its_place_back(world: Make) -> None:
    """REQ-31."""
    w = world(row(tool("a"), tool("b")))
    engine = await w.node(max_uncommitted_steps=1)
    refuse(w.stores[0], lambda write: "step.succeeded" in write.records or "step.failed" in write.records)
    await w.begin(engine)
    await w.moments.until(Happening.LET_GO, reason="set aside")
    assert engine.attempts.uncommitted == 0
    assert w.moments.all(Happening.SET_ASIDE)


async def test_a_machine_that_fails_gives_the_place_back(world: Make, monkeypatch: Any) -> None:
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    engine = await w.node()
    await w.begin(engine)
    await w.calls.begun("a")

    def fails(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr("agiwo.engine.held.decide", fails)
    w.calls.give("a")
    await w.moments.until(Happening.LET_GO, reason="set aside")
    assert engine.attempts.uncommitted == 0


async def test_of_outcomes_in_one_write_only_the_one_that_cannot_be_kept_fails(world: Make) -> None:
    line = row(tool("a"), tool("b", after=-1), tool("c", after=-1))
    w = world(replace(line, body=replace(line.body, start=(0, 1, 2))), Calls(held=["a", "b", "c"]))
    engine = await w.node()
    w.stores[0].poison = "POISON"
    _, ended = await w.begin(engine)
    for path in ("a", "b", "c"):
        await w.calls.begun(path)
    w.stores[0].gate = asyncio.Event()
    w.calls.give("a")
    await until(lambda: len(w.moments.all(Happening.ATTEMPT_RETURNED)) == 1)
    w.calls.give("b", Succeeded("POISON"))
    w.calls.give("c")
    await until(lambda: len(w.moments.all(Happening.ATTEMPT_RETURNED)) == 3)
    w.stores[0].gate.set()
    instance = await ended
    assert {path: run.status.value for path, run in instance.runs.items()} == {"a": "SUCCESS", "b": "FAILED", "c": "SUCCESS"}


async def test_a_cancel_that_comes_while_an_instance_is_set_aside_is_not_slept_over(world: Make) -> None:
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    engine = await w.node(heartbeat=1000.0)
    id, _ = await w.begin(engine)
    await w.calls.begun("a")
    refuse(w.stores[0], lambda write: "step.succeeded" in write.records or "step.failed" in write.records)
    w.moments.hooks[Happening.SET_ASIDE] = lambda event: w.shelf.send(id, "cancel", {"by": "user:a"})
    w.calls.give("a")
    await w.moments.until(Happening.SET_ASIDE)
    async with asyncio.timeout(5):
        await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "CANCELLED"


async def test_a_kind_that_nobody_carries_out_fails_its_step_and_no_loop(world: Make) -> None:
    w = world(row(tool("a")))
    engine = await w.node()
    known = engine.attempts._executor_for

    def unknown(kind: Kind) -> Any:
        raise KeyError(kind)

    engine.attempts._executor_for = unknown
    _, ended = await w.begin(engine)
    assert (await ended).status.value == "FAILED"
    assert engine.attempts.uncommitted == 0
    engine.attempts._executor_for = known
    _, ended = await w.begin(engine)
    assert (await ended).status.value == "SUCCESS"


async def test_a_mistake_after_a_commit_ends_neither_the_writer_nor_the_instance(world: Make, monkeypatch: Any) -> None:
    w = world(row(tool("a"), tool("b")))
    engine = await w.node()
    start = engine.attempts.start

    def fails(attempt: Any) -> None:
        monkeypatch.setattr(engine.attempts, "start", start)
        raise RuntimeError("a bug")

    monkeypatch.setattr(engine.attempts, "start", fails)
    id, ended = await w.begin(engine)
    assert await ended is None
    assert w.moments.all(Happening.LOOP_FAILED)[0].data["loop"] == "writer"
    _, other = await w.begin(engine)
    assert (await other).status.value == "SUCCESS"
    for _ in range(3):
        w.clock.advance(11)
        engine._beats.hurry()
        engine._reaps.hurry()
        now = w.clock.now()
        await until(lambda now=now: engine._beat_at >= now and engine._swept_at >= now)
    await until(lambda: id in w.shelf.ended)
    assert w.shelf.ended[id] == "SUCCESS"


async def test_a_drain_waits_for_an_outcome_whose_write_waits_for_the_inbox(world: Make) -> None:
    w = world(row(tool("a", Effect.WRITE), tool("b")), Calls(held=["a"]))
    engine = await w.node()
    id, _ = await w.begin(engine)
    await w.calls.begun("a")
    read, ask = asyncio.Event(), w.stores[0].inbox

    async def slow(ids: Sequence[UUID]) -> dict[UUID, Inbox]:
        await read.wait()
        return await ask(ids)

    w.stores[0].inbox = slow  # type: ignore[method-assign]
    engine._held[id].reading = True
    engine.ask_inbox(engine._held[id])
    w.calls.give("a")
    await w.moments.until(Happening.ATTEMPT_RETURNED)
    draining = asyncio.create_task(engine.drain(60.0))
    for _ in range(5):
        await asyncio.sleep(0)
    read.set()
    await draining
    assert "step.succeeded" in w.types(id)


async def test_what_is_claimed_before_the_answer_to_its_park_has_come_is_taken_over(world: Make) -> None:
    w = world(row(pause("p", 100), tool("a")))
    engine = await w.node()
    id, _ = await w.begin(engine)
    w.shelf.send(id, "odd", {})
    heard, write = asyncio.Event(), w.stores[0].write

    async def late(batch: Sequence[Write]) -> list[Verdict]:
        verdicts = await write(batch)
        w.stores[0].write = write  # type: ignore[method-assign]
        await heard.wait()
        return verdicts

    w.stores[0].write = late  # type: ignore[method-assign]
    engine.poke(id)
    await until(lambda: w.shelf.rows[id].owner is None and len(w.stores[0].writes) == 2)
    w.shelf.send(id, "cancel", {"by": "user:a"})
    engine.poke(id)
    engine._claims.hurry()
    await w.moments.until(Happening.LET_GO, reason="claimed anew")
    heard.set()
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "CANCELLED"


async def test_nobody_waits_for_ever_for_what_a_stopping_node_could_not_write_down(world: Make) -> None:
    w = world(row(tool("a")))
    engine = await w.node()
    w.stores[0].down = True
    asked = asyncio.create_task(engine.entrust(w.new_id(), w.workflow, "default", Begin(w.clock.now()), w.new()))
    await until(lambda: engine.writer.down)
    w.stores[0].down = False
    w.stores[0].gate = asyncio.Event()
    await engine.stop()
    with pytest.raises(Unavailable):
        await asked


async def test_an_inbox_that_could_not_be_read_is_read_again(world: Make) -> None:
    w = world(row(tool("a")), Calls(held=["a"]))
    engine = await w.node()
    id, ended = await w.begin(engine)
    await w.calls.begun("a")
    ask = w.stores[0].inbox

    async def fails(ids: Sequence[UUID]) -> dict[UUID, Inbox]:
        w.stores[0].inbox = ask  # type: ignore[method-assign]
        raise ValueError("a bug")

    w.stores[0].inbox = fails  # type: ignore[method-assign]
    engine._held[id].reading = True
    engine.ask_inbox(engine._held[id])
    await w.moments.until(Happening.LOOP_FAILED)
    w.calls.give("a")
    engine._inboxes.hurry()
    assert (await ended).status.value == "SUCCESS"


async def test_news_of_all_is_looked_for_however_often_one_is_asked_for(world: Make) -> None:
    w = world(row(tool("a")), Calls(held=["a"]))
    engine = await w.node()
    id, _ = await w.begin(engine)
    await w.calls.begun("a")
    other, ended = await w.begin(engine)
    w.shelf.send(other, "cancel", {"by": "user:a"})

    async def ask_for_ever() -> None:
        while True:
            engine.poke(id)
            w.clock.advance(0.1)
            await asyncio.sleep(0)

    asking = asyncio.create_task(ask_for_ever())
    assert (await ended).status.value == "CANCELLED"
    asking.cancel()


async def test_a_clock_behind_that_of_the_database_does_not_claim_and_park_without_end(world: Make) -> None:
    w = world(row(pause("p", 100), tool("a")))
    engine = await w.node()
    id, _ = await w.begin(engine)
    w.shelf.clock = TestClock(w.clock.now() + 3600)
    engine._claims.hurry()
    await until(lambda: engine.load)
    for _ in range(20):
        await asyncio.sleep(0)
    assert engine.load == 1 and w.shelf.rows[id].owner == w.stores[0].me
    w.clock.advance(100)
    engine.tick()
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"


async def test_states_too_large_to_be_read_together_are_claimed_a_few_at_a_time(world: Make) -> None:
    w = world(row(pause("p", 100), tool("a")))
    engine = await w.node()
    begun = [(await w.begin(engine))[0] for _ in range(20)]
    ask = w.stores[0].claim

    async def narrow(limit: int, *where: Any) -> list[Claimed]:
        if limit > 7:
            raise StoreUnavailable("it took too long")
        return await ask(limit, *where)

    w.stores[0].claim = narrow  # type: ignore[method-assign]
    w.clock.advance(100)
    engine.tick()
    while not w.shelf.ended.keys() >= set(begun):
        engine._claims.hurry()
        await asyncio.sleep(0)


async def test_hints_are_heard_again_after_a_mistake_in_hearing_them(world: Make) -> None:
    class Mistaken:
        tries = 0

        def tell(self, instance: UUID) -> None: ...

        async def hear(self) -> AsyncIterator[UUID]:
            self.tries += 1
            if self.tries == 1:
                raise RuntimeError("a bug")
            yield uuid4()
            await asyncio.Event().wait()

        async def close(self) -> None: ...

    w, wakeup = world(row(tool("a"))), Mistaken()
    await w.node(wakeup=wakeup)
    await w.moments.until(Happening.LOOP_FAILED, loop="hints")
    await until(lambda: wakeup.tries == 2)


async def test_nothing_is_begun_under_a_lease_that_is_gone(world: Make) -> None:
    w = world(row(tool("a")))
    engine = await w.node()
    rooms: list[bool] = []
    w.moments.hooks[Happening.DECLARED_DEAD] = lambda event: asyncio.get_running_loop().call_soon(lambda: rooms.append(engine.has_room()))
    join, joining = w.stores[0].join, asyncio.Event()

    async def slow(name: str) -> None:
        await joining.wait()
        await join(name)

    w.stores[0].join = slow  # type: ignore[method-assign]
    w.shelf.free(w.stores[0].me)
    engine._beats.hurry()
    await until(lambda: rooms)
    assert rooms == [False]
    joining.set()
    await until(engine.has_room)


async def test_what_a_node_entrusted_and_lost_its_lease_over_is_not_called_refused(world: Make) -> None:
    w = world(row(tool("a")))
    engine = await w.node()
    w.stores[0]._one = lambda write: Verdict(Answer.FENCED)  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await engine.entrust(w.new_id(), w.workflow, "default", Begin(w.clock.now()), w.new())


async def test_a_cancel_that_waits_behind_what_cannot_be_kept_is_looked_at_once_more(world: Make) -> None:
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    engine = await w.node(heartbeat=1000.0)
    id, _ = await w.begin(engine)
    await w.calls.begun("a")
    refuse(w.stores[0], lambda write: "step.succeeded" in write.records or "step.failed" in write.records)
    w.moments.hooks[Happening.REFUSED] = lambda event: engine._held[id].mailbox.append(Entry(None, UUID(int=1)))
    w.calls.give("a")
    await w.moments.until(Happening.LET_GO, reason="set aside")
    assert w.shelf.rows[id].due_at == w.clock.now() + ASIDE_AGAIN
