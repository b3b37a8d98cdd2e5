"""Deliveries: at least once, put off when they fail, given up after about a day, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from agiwo.engine.events import Happening
from agiwo.engine.outbox import AT_ONCE, LONGEST_DELAY, TRIES, Outbox
from agiwo.errors import NetworkError, StepError
from agiwo.ports.notifier import Undeliverable
from agiwo.ports.store import NOTHING_BUSY, OutboxItem, StoreUnavailable
from kit.engine import Moments, Shelf, ShelfStore, TestClock, until


class Deliveries(ShelfStore):
    """A shelf with these deliveries on it, and what became of them."""

    def __init__(self, clock: TestClock, *items: OutboxItem) -> None:
        super().__init__(Shelf(clock))
        self.items = list(items)
        self.done: list[UUID] = []
        self.put_off: list[tuple[UUID, str, float | None]] = []

    async def take_outbox(self, limit: int, each: int, busy: Mapping[str, int] = NOTHING_BUSY) -> list[OutboxItem]:
        taken, self.items = self.items[:limit], self.items[limit:]
        return taken

    async def delivered(self, id: UUID, status: int | None = None) -> None:
        self.done.append(id)

    async def not_delivered(self, id: UUID, error: str, retry_at: float | None, status: int | None = None) -> None:
        self.put_off.append((id, error, retry_at))


class Postman:
    def __init__(self, answer: Callable[[str], None] = lambda target: None) -> None:
        self.answer = answer
        self.seen: list[str] = []

    async def deliver(self, target: str, body: Mapping[str, Any]) -> int | None:
        self.seen.append(target)
        self.answer(target)
        return None


def item(target: str, *, instance: UUID | None = None, kind: str = "notice", tries: int = 1) -> OutboxItem:
    return OutboxItem(uuid4(), "default", instance or uuid4(), kind, target, {}, tries)


async def rounds(box: Outbox) -> float:
    """A round, and the end of what it began."""
    pause = await box.round()
    await box.idle()
    return pause


def outbox(store: Deliveries, postman: Postman, moments: Moments, clock: TestClock) -> Outbox:
    return Outbox(store, {"notice": postman}, clock, Random(3), moments)


async def test_what_is_delivered_is_marked_and_one_failure_holds_up_no_other() -> None:
    def answer(target: str) -> None:
        if target == "broken":
            raise NetworkError("no route")
        if target == "wrong":
            raise KeyError("to")

    clock, moments, postman = TestClock(), Moments(), Postman(answer)
    items = [item("a"), item("broken"), item("wrong"), item("odd", kind="carrier_pigeon"), item("b")]
    store = Deliveries(clock, *items)
    assert await rounds(outbox(store, postman, moments, clock)) < 1
    assert store.done == [items[0].id, items[4].id]
    errors = {id: error for id, error, _ in store.put_off}
    assert errors[items[1].id] == "NetworkError: no route"
    assert errors[items[2].id] == "KeyError: 'to'"
    assert "carrier_pigeon" in errors[items[3].id]
    assert all(at is not None and at >= clock.now() + 1 for _, _, at in store.put_off)
    assert len(moments.all(Happening.DELIVERED)) == 2
    assert [event.data["gave_up"] for event in moments.all(Happening.NOT_DELIVERED)] == [False] * 3


class Shaken(Deliveries):
    """Rows that stay taken until they are settled or given back; the next call of the name in `lost` is done and its answer lost."""

    def __init__(self, clock: TestClock, *items: OutboxItem) -> None:
        super().__init__(clock, *items)
        self.away: dict[UUID, OutboxItem] = {}
        self.lost: str | None = None
        self.refused: str | None = None

    def _answer(self, name: str) -> None:
        if self.lost == name:
            self.lost = None
            raise StoreUnavailable("the answer was lost")

    def _ask(self, name: str) -> None:
        if self.refused == name:
            self.refused = None
            raise StoreUnavailable("nobody answers")

    async def take_outbox(self, limit: int, each: int, busy: Mapping[str, int] = NOTHING_BUSY) -> list[OutboxItem]:
        taken = await super().take_outbox(limit, each, busy)
        self.away |= {item.id: item for item in taken}
        self._answer("take")
        return taken

    async def release_outbox(self, keep: Collection[UUID] = ()) -> None:
        self.items += [item for id, item in self.away.items() if id not in keep]
        self.away = {id: item for id, item in self.away.items() if id in keep}

    async def delivered(self, id: UUID, status: int | None = None) -> None:
        self._ask("settle")
        del self.away[id]
        self.done.append(id)


async def test_a_delivery_whose_taking_was_not_heard_of_is_made_in_the_next_round() -> None:
    clock, postman = TestClock(), Postman()
    store = Shaken(clock, item("a"))
    box = outbox(store, postman, Moments(), clock)
    store.lost = "take"
    with pytest.raises(StoreUnavailable):
        await box.round()
    await rounds(box)
    assert postman.seen == ["a"]
    assert store.away == {} and len(store.done) == 1


async def test_a_delivery_that_could_not_be_marked_is_marked_later_and_not_made_again() -> None:
    clock, postman = TestClock(), Postman()
    items = [item("a"), item("b")]
    store = Shaken(clock, *items)
    box = outbox(store, postman, Moments(), clock)
    store.refused = "settle"
    await rounds(box)
    assert len(store.away) == 1
    await rounds(box)
    assert sorted(postman.seen) == ["a", "b"]
    assert store.away == {} and set(store.done) == {one.id for one in items}


async def test_the_pauses_grow_to_an_hour_and_end_after_about_a_day() -> None:
    def fail(target: str) -> None:
        raise NetworkError("no route")

    clock, total, last = TestClock(), 0.0, 0.0
    for tries in range(1, TRIES + 1):
        store = Deliveries(clock, item("a", tries=tries))
        await rounds(outbox(store, Postman(fail), Moments(), clock))
        ((_, _, at),) = store.put_off
        if at is None:
            assert tries == TRIES
            break
        pause = at - clock.now()
        assert pause >= min(last, LONGEST_DELAY)
        total, last = total + pause, min(2 ** (tries - 1), LONGEST_DELAY)
    assert 23 * 3600 < total < 27 * 3600


async def test_nothing_to_deliver_is_looked_at_less_often() -> None:
    clock = TestClock()
    assert await outbox(Deliveries(clock), Postman(), Moments(), clock).round() == 1.0


class Slow(Postman):
    """One who stands at some doors until the test lets him go on."""

    def __init__(self, *doors: str) -> None:
        super().__init__()
        self.doors = {door: asyncio.Event() for door in doors}
        self.at_once = self.most = 0

    async def deliver(self, target: str, body: Mapping[str, Any]) -> int | None:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        if target in self.doors:
            await self.doors[target].wait()
        self.at_once -= 1
        await super().deliver(target, body)
        return 204


async def test_no_round_waits_for_the_slowest_delivery() -> None:
    clock, postman = TestClock(), Slow("slow")
    store = Deliveries(clock, item("slow"), item("a"))
    box = outbox(store, postman, Moments(), clock)
    await box.round()
    store.items.append(item("b"))
    await box.round()
    await until(lambda: postman.seen == ["a", "b"])
    postman.doors["slow"].set()
    await box.idle()
    assert len(store.done) == 3


async def test_what_is_under_way_is_bounded() -> None:
    clock, postman = TestClock(), Slow("slow")
    store = Deliveries(clock, *(item("slow") for _ in range(3 * AT_ONCE)))
    box = outbox(store, postman, Moments(), clock)
    for _ in range(5):
        await box.round()
    assert len(store.items) == 2 * AT_ONCE
    await until(lambda: postman.at_once == AT_ONCE)
    postman.doors["slow"].set()
    while store.items or len(store.done) < 3 * AT_ONCE:
        await rounds(box)
    assert postman.most == AT_ONCE


async def test_what_asks_for_patience_gets_it_and_what_is_hopeless_is_given_up_at_once() -> None:
    def answer(target: str) -> None:
        if target == "later":
            raise StepError("come back", type="RateLimited", status=429, retry_after=300.0)
        raise Undeliverable("gone", status=410)

    clock, moments = TestClock(), Moments()
    store = Deliveries(clock, item("later"), item("gone"))
    await rounds(outbox(store, Postman(answer), moments, clock))
    at = {error: at for _, error, at in store.put_off}
    assert at.pop("ToolError: gone") is None
    (later,) = at.values()
    assert later is not None and 300 <= later - clock.now() <= 330
    assert {event.data["gave_up"] for event in moments.all(Happening.NOT_DELIVERED)} == {True, False}


async def test_what_is_under_way_when_the_node_stops_is_left_to_others() -> None:
    clock, postman = TestClock(), Slow("slow")
    store = Deliveries(clock, item("slow"))
    box = outbox(store, postman, Moments(), clock)
    await box.round()
    await box.stop(0.0)
    await box.idle()
    assert store.done == [] and store.put_off == []
