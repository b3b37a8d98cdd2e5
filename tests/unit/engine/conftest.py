"""A world for each test, and its nodes stopped after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from agiwo.definition.compiled import Workflow
from kit.engine import Calls, World


@pytest.fixture
async def world() -> AsyncIterator[Callable[..., World]]:
    """Makes worlds: `world(workflow, calls)`."""
    made: list[World] = []

    def make(workflow: Workflow, calls: Calls | None = None) -> World:
        made.append(World(workflow, calls or Calls()))
        return made[-1]

    yield make
    for one in made:
        await one.close()
