"""An instance from its trigger to its end on one node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from kit.engine import Calls, World, row, tool

from agiwo.definition.compiled import Workflow
from agiwo.ports.store import WriteKind

Make = Callable[..., World]


@pytest.fixture
async def world() -> AsyncIterator[Make]:
    made: list[World] = []

    def make(workflow: Workflow, calls: Calls | None = None) -> World:
        made.append(World(workflow, calls or Calls()))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def test_three_steps_take_four_commits(world: Make) -> None:
    w = world(row(tool("a"), tool("b"), tool("c")))
    engine = await w.node()
    id, ended = await w.begin(engine)
    instance = await ended
    assert instance.status.value == "SUCCESS"
    assert w.calls.paths == ["a", "b", "c"]
    assert w.shelf.commits == 4
    kinds = [write.kind for batch in w.stores[0].writes for write in batch]
    assert kinds == [WriteKind.NEW, WriteKind.STEP, WriteKind.STEP, WriteKind.END]
    assert w.shelf.ended == {id: "SUCCESS"}
    assert engine.load == 0
