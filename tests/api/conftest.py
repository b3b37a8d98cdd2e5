"""One application for the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kit.api import World, api_world


@pytest.fixture(scope="module")
async def world(module_database: str) -> AsyncIterator[World]:
    """The application over a real database, with the workflows of `kit.api` published."""
    async with api_world(module_database) as made:
        yield made
