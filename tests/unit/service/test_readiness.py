"""Readiness tells the truth in time, also where the storage is stuck."""

from __future__ import annotations

import asyncio

from agiwo.service.readiness import Readiness


async def test_a_storage_that_neither_answers_nor_refuses_is_not_ready_and_is_asked_once() -> None:
    asked: list[asyncio.Future[bool]] = []

    def ask() -> asyncio.Future[bool]:
        asked.append(asyncio.get_running_loop().create_future())
        return asked[-1]

    readiness = Readiness(ask, within=0.0)
    assert [await readiness.now() for _ in range(3)] == [False, False, False]
    assert len(asked) == 1
    asked[0].set_result(True)
    assert await Readiness(lambda: asked[0]).now()
    assert not await readiness.now()  # a new question, since the old one has its answer
    assert len(asked) == 2
