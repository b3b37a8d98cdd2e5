"""Whatever way an instance leaves a node, its calls give their places back, and nothing that people said is slept over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agiwo.definition.compiled import Kind
from agiwo.engine.events import Happening
from agiwo.machine.reports import Succeeded
from agiwo.ports.store import Answer, Verdict, Write
from kit.engine import Calls, ShelfStore, World, row, tool, until

Make = Callable[..., World]


def refuse(store: ShelfStore, refused: Callable[[Write], bool]) -> None:
    """Have the storage refuse some writes for their data."""
    ask = store._one
    store._one = lambda write: Verdict(Answer.REFUSED, message="no") if refused(write) else ask(write)  # type: ignore[method-assign]


async def test_a_fenced_outcome_gives_its_place_back(world: Make) -> None:
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
        beat = w.clock.now()
        await until(lambda beat=beat: engine._beat_at >= beat)
    await until(lambda: id in w.shelf.ended)
    assert w.shelf.ended[id] == "SUCCESS"
