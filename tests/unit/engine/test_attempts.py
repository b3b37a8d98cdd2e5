"""Calls under way: their time, their stopping, and how many may stand between effect and commit."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from agiwo.definition.compiled import Retry
from agiwo.engine import attempts
from agiwo.engine.events import Event, Happening
from kit.engine import Calls, World, row, tool, until

Make = Callable[..., World]


async def test_a_timeout_stops_the_call_before_the_next_one_begins(world: Make) -> None:
    w = world(row(tool("a", timeout=0.01, retry=Retry(2, 0.0))), Calls(held=["a"]))
    order: list[str] = []
    w.moments.hooks = {
        Happening.ATTEMPT_STARTED: lambda event: order.append(f"start {event.attempt}, cancelled {w.calls.cancelled}"),
    }
    engine = await w.node()
    _, ended = await w.begin(engine)
    instance = await ended
    assert order == ["start 1, cancelled []", "start 2, cancelled [('a', 1)]"]
    assert instance.runs["a"].error["type"] == "Timeout"


async def test_a_call_that_does_not_stop_is_fenced_and_what_it_gives_is_only_told(world: Make) -> None:
    w = world(row(tool("a", timeout=0.01)), Calls(held=["a"]))
    w.calls.stubborn = True
    engine = await w.node()
    _, ended = await w.begin(engine)
    instance = await ended
    assert instance.status.value == "FAILED"
    assert instance.runs["a"].error["details"] == {"stopped": False}
    assert len(engine.attempts.stragglers) == 1
    w.calls.give("a")
    event = await w.moments.until(Happening.STRAGGLER_RETURNED)
    assert event.data["outcome"].result == {"of": "a"}
    assert not engine.attempts.stragglers
    assert engine.attempts.uncommitted == 0


async def test_a_call_that_was_quicker_than_its_stop_keeps_its_result(world: Make) -> None:
    w = world(row(tool("a")), Calls(held=["a"]))
    w.calls.stubborn = True
    engine = await w.node(cancel_grace=30.0)
    id, ended = await w.begin(engine)
    await w.calls.begun("a")
    w.shelf.send(id, "cancel", {"by": "user:a"})
    engine.poke(id)
    await until(lambda: w.calls.cancelled)
    w.calls.give("a")
    assert (await ended).status.value == "CANCELLED"
    event = await w.moments.until(Happening.ATTEMPT_RETURNED)
    assert event.data["outcome"].result == {"of": "a"}


async def test_no_more_than_the_limit_stand_between_effect_and_commit(world: Make) -> None:
    w = world(row(tool("a"), tool("b")))
    most = 0
    open_: set[tuple[object, str | None]] = set()

    def started(event: Event) -> None:
        nonlocal most
        assert event.where is not None
        open_.add((event.where.instance_id, event.path))
        most = max(most, len(open_))

    def committed(event: Event) -> None:
        assert event.where is not None
        for record in event.data["records"]:
            if record.type == "step.succeeded":
                open_.discard((event.where.instance_id, record.path))

    w.moments.hooks = {Happening.ATTEMPT_STARTED: started, Happening.COMMITTED: committed}
    engine = await w.node(max_uncommitted_steps=4)
    endings = [ended for _, ended in await asyncio.gather(*(w.begin(engine) for _ in range(40)))]
    await asyncio.gather(*endings)
    assert 1 < most <= 4
    assert engine.attempts.uncommitted == 0


async def test_slow_calls_give_their_place_to_others(world: Make) -> None:
    w = world(row(tool("slow")), Calls(held=["slow"]))
    engine = await w.node(max_uncommitted_steps=1)
    _, first = await w.begin(engine)
    await w.calls.begun("slow")
    w.calls.open["first"] = w.calls.open.pop("slow")
    _, second = await w.begin(engine)
    await w.calls.begun("slow")  # after PATIENCE, though the first has not returned
    assert engine.attempts.uncommitted == 1
    w.calls.give("slow")
    w.calls.give("first")
    await asyncio.gather(first, second)
    assert engine.attempts.uncommitted == 0
    assert attempts.PATIENCE < 1


class Mute(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "raised", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), BaseException("x"), Mute()]
)
async def test_whatever_a_call_raises_fails_its_own_step_and_ends_nothing_else(world: Make, raised: BaseException) -> None:
    w = world(row(tool("a")), Calls(lambda call: raised))
    engine = await w.node()
    for _ in range(2):
        _, ended = await w.begin(engine)
        instance = await ended
        assert instance.status.value == "FAILED"
        assert instance.runs["a"].error["type"] == "ToolError"
    assert engine.attempts.uncommitted == 0
    assert engine.running


async def test_nothing_of_a_call_that_has_ended_stays_in_memory(world: Make) -> None:
    w = world(row(tool("a")))
    engine = await w.node()
    for _ in range(3):
        _, ended = await w.begin(engine)
        await ended
    gc.collect()
    assert not [kept for kept in gc.get_objects() if isinstance(kept, attempts.Attempt)]
