"""What every store promises, in one suite: on a real Postgres, and in memory."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from agiwo.clock import SystemClock
from agiwo.errors import ValueRefused
from agiwo.ids import derived_uuid, uuid7
from agiwo.ports.records import DecisionAnswer, NewVersion, Posted, Published, Records, RejectedTrigger
from agiwo.ports.store import (
    Answer,
    ApprovalClose,
    ApprovalRow,
    Claimed,
    InstanceStore,
    NewInstance,
    OutboxRow,
    StoreUnavailable,
    Verdict,
    Write,
    WriteKind,
)
from agiwo.store.memory import MemoryDatabase, MemoryStore
from agiwo.store.memory_records import MemoryRecords
from agiwo.store.pool import service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.records import PostgresRecords
from agiwo.store.schema import SCHEMA, metadata

LONG_AGO = 1_000_000_000.0
FAR_OFF = 9_000_000_000.0
TENANT = "acme"


class World:
    """Several nodes on one set of tables, and the services beside them."""

    def __init__(self, make: Callable[[], InstanceStore], records: Records) -> None:
        self._make = make
        self._made: list[Any] = []
        self.records = records

    async def node(self, name: str = "n1") -> InstanceStore:
        store = self._make()
        self._made.append(store)
        await store.join(name)
        return store

    async def close(self) -> None:
        for store in self._made:
            await store.close()


@pytest.fixture(params=["postgres", "memory"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        shared = MemoryDatabase()
        made = World(lambda: MemoryStore(shared), MemoryRecords(shared))
        yield made
        await made.close()
        return
    url = request.getfixturevalue("module_database")
    connection = await asyncpg.connect(url)
    await connection.execute("TRUNCATE " + ", ".join(f"{SCHEMA}.{table.name}" for table in metadata.sorted_tables))
    await connection.close()
    engine = service_engine(url)
    made = World(lambda: PostgresStore(url), PostgresRecords(engine))
    yield made
    await made.close()
    await engine.dispose()


def fresh_id(shard: int = 7) -> UUID:
    return uuid7(SystemClock().now(), secrets.randbits(66), shard)


def new_instance(**changes: Any) -> NewInstance:
    return replace(NewInstance("weekly", "1.10", "hash", "trace", starter="alice", labels={"team": "ops"}), **changes)


def first(id: UUID | None = None, *, kind: WriteKind = WriteKind.NEW, new: NewInstance | None = None, **changes: Any) -> Write:
    at = SystemClock().now()
    records = '[{"seq":1},{"seq":2}]'
    write = Write(kind, id or fresh_id(), TENANT, epoch=1, prev_seq=0, seq=2, records=records, at=at, status="RUNNING")
    write = replace(write, new=new or new_instance())
    return replace(write, **changes)


def later(before: Write, kind: WriteKind = WriteKind.STEP, **changes: Any) -> Write:
    """The next write of the same instance, by the same owner."""
    status = {WriteKind.STEP: "RUNNING", WriteKind.PARK: "WAITING", WriteKind.END: "SUCCESS"}[kind]
    seq = before.seq + 1
    write = Write(kind, before.id, TENANT, before.epoch, before.seq, seq, f'[{{"seq":{seq}}}]', SystemClock().now(), status)
    return replace(write, **changes)


async def one(store: InstanceStore, write: Write) -> Verdict:
    (verdict,) = await store.write([write])
    return verdict


async def applied(store: InstanceStore, *writes: Write) -> None:
    for write in writes:
        assert await one(store, write) == Verdict(Answer.APPLIED)


async def parked(store: InstanceStore, **changes: Any) -> Write:
    """A new instance that waits, for ever if nothing else is said."""
    write = first(kind=WriteKind.PARK, status="WAITING", **changes)
    await applied(store, write)
    return write


async def the_only(store: InstanceStore) -> Claimed:
    (claimed,) = await store.claim(10)
    return claimed


# --- the fence -------------------------------------------------------------------------------------------------------


async def test_a_life_from_trigger_to_end_is_three_writes(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun)
    assert await node.owned() == [begun.id]
    step = later(begun)
    await applied(node, step, later(step, WriteKind.END, snapshot='{"done":true}'))
    assert await node.owned() == []
    assert await node.claim(10) == []


@pytest.mark.parametrize("wrong", [{"epoch": 0}, {"epoch": 2}, {"prev_seq": 1}, {"prev_seq": 3}], ids=str)
@pytest.mark.parametrize("kind", [WriteKind.STEP, WriteKind.PARK, WriteKind.END])
async def test_a_write_with_another_epoch_or_number_is_fenced(world: World, kind: WriteKind, wrong: dict[str, int]) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun)
    stale = replace(later(begun, kind, snapshot='{"stale":1}', waiting_for="x" if kind is WriteKind.PARK else None), **wrong)
    assert await one(node, stale) == Verdict(Answer.FENCED)
    await applied(node, later(begun, WriteKind.PARK, due_at=LONG_AGO))
    claimed = await the_only(node)
    assert (claimed.epoch, claimed.seq, claimed.snapshot) == (2, 3, None)
    assert claimed.records == (begun.records, '[{"seq":3}]')


async def test_a_write_by_another_owner_is_fenced(world: World) -> None:
    mine, other = await world.node("a"), await world.node("b")
    begun = first()
    await applied(mine, begun)
    assert await one(other, later(begun)) == Verdict(Answer.FENCED)
    await applied(mine, later(begun))


async def test_a_write_sent_twice_is_applied_once(world: World) -> None:
    node = await world.node()
    begun = first(new=new_instance(idempotency_key="k"))
    step = later(begun)
    park = later(step, WriteKind.PARK, due_at=LONG_AGO)
    for write in (begun, begun, step, step, park, park):
        await applied(node, write)
    claimed = await the_only(node)
    assert claimed.records == (begun.records, step.records, park.records)
    end = replace(later(park, WriteKind.END), epoch=claimed.epoch)
    await applied(node, end, end)


async def test_another_write_under_a_number_that_was_used_is_fenced(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun, later(begun))
    assert await one(node, later(begun, records='[{"seq":3,"other":1}]')) == Verdict(Answer.FENCED)


async def test_an_ended_instance_takes_no_write(world: World) -> None:
    node = await world.node()
    begun = first()
    end = later(begun, WriteKind.END)
    await applied(node, begun, end)
    assert await one(node, later(end)) == Verdict(Answer.FENCED)
    assert await one(node, replace(begun, records="[]")) == Verdict(Answer.FENCED)


async def test_an_instance_can_end_or_park_with_its_first_write(world: World) -> None:
    node = await world.node()
    await applied(node, first(kind=WriteKind.END, status="FAILED", error={"type": "ValidationError", "at": 0.1}, snapshot="{}"))
    waiting = await parked(node, due_at=LONG_AGO, snapshot='{"n":-0.0}')
    assert await node.owned() == []
    claimed = await the_only(node)
    assert (claimed.id, claimed.seq, claimed.snapshot, claimed.records) == (waiting.id, 2, '{"n":-0.0}', ())
    assert (claimed.tenant, claimed.workflow, claimed.version, claimed.deaths) == (TENANT, "weekly", "1.10", 0)


async def test_a_write_without_records_leaves_no_history_and_can_follow_another(world: World) -> None:
    node = await world.node()
    write = first()
    empty = later(write, WriteKind.STEP, seq=write.seq, records="[]")
    moved_on = later(write, WriteKind.PARK, seq=write.seq, records="[]", due_at=LONG_AGO, guard_inbox=True)
    await applied(node, write, empty, empty)
    assert await world.records.put_inbox(write.id, TENANT, "cancel", {}) is Posted.ACCEPTED
    assert (await one(node, moved_on)).answer is Answer.INBOX_MOVED
    await applied(node, replace(moved_on, inbox_seen=1))
    claimed = await the_only(node)
    assert (claimed.seq, claimed.records) == (write.seq, (write.records,))
    await applied(node, replace(moved_on, epoch=claimed.epoch, inbox_seen=1))


async def test_a_batch_answers_in_the_order_in_which_it_was_given(world: World) -> None:
    node = await world.node()
    begun = [first(fresh_id(shard)) for shard in (200, 3, 90, 3, 17)]
    await node.write(begun)
    batch = [later(w) if n != 2 else replace(later(w), epoch=9) for n, w in enumerate(begun)]
    batch.append(first(kind=WriteKind.END, status="SUCCESS"))
    answers = [v.answer for v in await node.write(batch)]
    assert answers == [Answer.APPLIED, Answer.APPLIED, Answer.FENCED, Answer.APPLIED, Answer.APPLIED, Answer.APPLIED]
    assert await node.write([]) == []


async def test_records_come_back_as_the_text_that_was_written(world: World) -> None:
    node = await world.node()
    text = '[ {"seq":1, "data":{"b":-0.0,"a":1e400,"i":' + "9" * 100 + ',"t":"\\u0000 ü 😀"}},{"seq":2}]'
    await parked(node, records=text, due_at=LONG_AGO)
    assert (await the_only(node)).records == (text,)


async def test_an_instance_can_be_parked_again_without_records(world: World) -> None:
    node = await world.node()
    waiting = await parked(node, due_at=LONG_AGO)
    for _ in range(3):
        claimed = await the_only(node)
        assert (claimed.seq, claimed.records) == (2, (waiting.records,))
        again = later(waiting, WriteKind.PARK, epoch=claimed.epoch, seq=2, records="[]", due_at=LONG_AGO)
        await applied(node, again, again)
    claimed = await the_only(node)
    assert await one(node, again) == Verdict(Answer.FENCED)
    step = later(waiting, epoch=claimed.epoch, seq=2, records="[]")
    await applied(node, step, step, later(waiting, epoch=claimed.epoch))


async def test_an_instance_can_be_new_without_records(world: World) -> None:
    node = await world.node()
    entrusted = await parked(node, epoch=0, seq=0, records="[]", snapshot='{"begin":1}', due_at=LONG_AGO)
    await applied(node, entrusted)
    claimed = await the_only(node)
    assert (claimed.seq, claimed.epoch, claimed.snapshot, claimed.records) == (0, 1, '{"begin":1}', ())
    again = Write(WriteKind.PARK, claimed.id, TENANT, 1, 0, 0, "[]", entrusted.at, "WAITING")
    await applied(node, again)


# --- poison ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison",
    [
        {"records": '[{"seq":3,"t":"\x00"}]'},
        {"records": "[{"},
        {"records": '["\ud800"]'},
        {"snapshot": "no json"},
        {"seq": 2**31},
        {"status": "ENDED"},
        {"approvals": (ApprovalRow(fresh_id(), "a", "a", "d", "bad \x00 title", {}, (), LONG_AGO, FAR_OFF),)},
        {"outbox": (OutboxRow(fresh_id(), "notice", "to \x00", {}),)},
    ],
    ids=lambda p: next(iter(p)),
)
async def test_what_cannot_be_kept_is_refused_alone(world: World, poison: dict[str, Any]) -> None:
    node = await world.node()
    begun = [first() for _ in range(9)]
    await node.write(begun)
    batch = [later(w, **(poison if n == 4 else {})) for n, w in enumerate(begun)]
    verdicts = await node.write(batch)
    assert [v.answer for v in verdicts] == [Answer.REFUSED if n == 4 else Answer.APPLIED for n in range(9)]
    assert verdicts[4].message
    await applied(node, later(begun[4]))


# --- triggers --------------------------------------------------------------------------------------------------------


async def test_of_twenty_equal_triggers_on_two_nodes_one_starts(world: World) -> None:
    nodes = [await world.node("a"), await world.node("b")]
    triggers = [first(new=new_instance(idempotency_key="k1", request_digest="d")) for _ in range(20)]
    verdicts = await asyncio.gather(*(one(nodes[n % 2], trigger) for n, trigger in enumerate(triggers)))
    started = [t.id for t, v in zip(triggers, verdicts, strict=True) if v.answer is Answer.APPLIED]
    assert len(started) == 1
    refused = [v for v in verdicts if v.answer is not Answer.APPLIED]
    assert refused == [Verdict(Answer.DUPLICATE, existing=started[0], existing_digest="d")] * 19
    assert await nodes[0].owned() + await nodes[1].owned() == started


async def test_equal_triggers_in_one_batch_start_one(world: World) -> None:
    node = await world.node()
    batch = [first(new=new_instance(idempotency_key="k", request_digest="d")) for _ in range(4)]
    verdicts = await node.write([*batch, first()])
    assert sorted(v.answer for v in verdicts) == [Answer.APPLIED] * 2 + [Answer.DUPLICATE] * 3
    assert len(await node.owned()) == 2


async def test_a_key_belongs_to_its_tenant(world: World) -> None:
    node = await world.node()
    trigger = first(new=new_instance(idempotency_key="k", request_digest="d"))
    await applied(node, trigger, replace(trigger, id=fresh_id(), tenant="other"))
    promise = await world.records.promise(TENANT, "k")
    assert promise is not None and (promise.instance_id, promise.request_digest) == (trigger.id, "d")
    assert await world.records.promise("third", "k") is None


async def test_a_key_outlives_its_instance_and_is_free_when_its_time_is_over(world: World) -> None:
    node = await world.node()
    trigger = first(kind=WriteKind.END, status="FAILED", new=new_instance(idempotency_key="k", key_expires_at=FAR_OFF))
    old = first(new=new_instance(idempotency_key="old", key_expires_at=LONG_AGO))
    await applied(node, trigger, old)
    assert (await one(node, replace(trigger, id=fresh_id()))).answer is Answer.DUPLICATE
    assert await world.records.promise(TENANT, "old") is None
    again = replace(old, id=fresh_id(), new=new_instance(idempotency_key="old", key_expires_at=FAR_OFF))
    await applied(node, again)
    assert (await one(node, replace(old, id=fresh_id()))).existing == again.id


# --- waiting and the inbox ---------------------------------------------------------------------------------------------


async def test_what_waits_for_ever_is_not_claimed_and_what_is_due_is(world: World) -> None:
    node = await world.node()
    await parked(node)
    assert await node.next_due() is None
    await parked(node, due_at=FAR_OFF)
    assert await node.next_due() == FAR_OFF
    due = [await parked(node, due_at=LONG_AGO + n) for n in (5, 1, 3)]
    assert [c.id for c in await node.claim(2)] and len(await node.claim(10)) == 1
    assert {*await node.owned()} == {w.id for w in due}


async def test_something_in_the_inbox_wakes_what_waits(world: World) -> None:
    node = await world.node()
    waiting = await parked(node)
    assert await world.records.put_inbox(waiting.id, TENANT, "signal", {"amount": 5}) is Posted.ACCEPTED
    assert await world.records.put_inbox(waiting.id, TENANT, "cancel", {}) is Posted.ACCEPTED
    claimed = await the_only(node)
    box = (await node.inbox([claimed.id, fresh_id()]))[claimed.id]
    assert claimed.inbox_seq == box.seq == 2
    assert [(item.kind, item.body) for item in box.items] == [("signal", {"amount": 5}), ("cancel", {})]
    step = replace(later(waiting), epoch=claimed.epoch, inbox_done=(box.items[0].id,))
    await applied(node, step)
    left = (await node.inbox([claimed.id]))[claimed.id]
    assert left.items == box.items[1:]


async def test_what_came_under_a_name_is_counted_taken_or_not_and_no_further_than_asked(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun)
    for n in range(3):
        assert await world.records.put_inbox(begun.id, TENANT, "signal", {}, f"signal/{n}") is Posted.ACCEPTED
    await world.records.put_inbox(begun.id, TENANT, "cancel", {})
    item = (await node.inbox([begun.id]))[begun.id].items[0]
    await applied(node, replace(later(begun), inbox_done=(item.id,)))
    counted = world.records.count_inbox
    assert [await counted(TENANT, begun.id, "signal", most) for most in (2, 9)] == [2, 3]
    assert await counted(TENANT, begun.id, "signal", 9, waiting=True) == 2
    assert [await counted("other", begun.id, "signal", 9), await counted(TENANT, fresh_id(), "signal", 9)] == [0, 0]


async def test_a_park_does_not_miss_what_came_meanwhile(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun)
    assert await node.moved() == []
    await world.records.put_inbox(begun.id, TENANT, "signal", {})
    assert await node.moved() == [begun.id]
    park = later(begun, WriteKind.PARK, guard_inbox=True)
    for kind in WriteKind.PARK, WriteKind.STEP, WriteKind.END:
        assert await one(node, later(begun, kind, guard_inbox=True)) == Verdict(Answer.INBOX_MOVED)
    (item,) = (await node.inbox([begun.id]))[begun.id].items
    await applied(node, replace(park, inbox_seen=1, inbox_done=(item.id,)))
    assert await node.moved() == []
    assert await node.claim(10) == []


async def test_no_signal_is_stranded_when_it_races_a_park(world: World) -> None:
    node = await world.node()
    begun = [first() for _ in range(60)]
    await node.write(begun)

    async def owner() -> None:
        waiting = {w.id: w for w in begun}
        seen = dict.fromkeys(waiting, 0)
        while waiting:
            parks = [later(w, WriteKind.PARK, guard_inbox=True, inbox_seen=seen[w.id]) for w in waiting.values()]
            for park, verdict in zip(parks, await node.write(parks), strict=True):
                if verdict.answer is Answer.APPLIED:
                    del waiting[park.id]
                else:
                    assert verdict.answer is Answer.INBOX_MOVED
            # An owner that was told reads the inbox and consumes it.
            for id, box in (await node.inbox(list(waiting))).items():
                seen[id] = box.seq
                if box.items:
                    step = later(waiting[id], inbox_done=tuple(item.id for item in box.items))
                    await applied(node, step)
                    waiting[id] = step

    async def sender() -> None:
        for w in begun:
            assert await world.records.put_inbox(w.id, TENANT, "signal", {}) is Posted.ACCEPTED

    await asyncio.gather(owner(), sender())
    claimed = await node.claim(100)
    left = await node.inbox([c.id for c in claimed])
    woken = {id for id, box in left.items() if box.items}
    assert woken == {c.id for c in claimed}
    answered = sum(1 for box in left.values() if box.items)
    consumed = sum(1 for w in begun if w.id not in woken)
    assert answered + consumed == 60


async def test_a_named_item_is_taken_once_also_after_it_was_consumed(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun)
    answers = await asyncio.gather(*(world.records.put_inbox(begun.id, TENANT, "signal", {}, "pay-1") for _ in range(5)))
    assert sorted(answers) == [Posted.ACCEPTED] + [Posted.DUPLICATE] * 4
    (item,) = (await node.inbox([begun.id]))[begun.id].items
    step = later(begun, inbox_done=(item.id,))
    await applied(node, step)
    assert (await node.inbox([begun.id]))[begun.id].items == ()
    assert await world.records.put_inbox(begun.id, TENANT, "signal", {}, "pay-1") is Posted.DUPLICATE
    await applied(node, later(step, WriteKind.END))
    assert await world.records.put_inbox(begun.id, TENANT, "signal", {}) is Posted.ENDED


async def test_the_inbox_of_another_tenant_is_unknown(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun)
    assert await world.records.put_inbox(begun.id, "other", "cancel", {}) is Posted.UNKNOWN
    assert await world.records.put_inbox(fresh_id(), TENANT, "cancel", {}) is Posted.UNKNOWN
    assert (await node.inbox([begun.id]))[begun.id].seq == 0


async def test_the_inbox_of_what_another_node_owns_is_not_read(world: World) -> None:
    mine, other = await world.node("a"), await world.node("b")
    begun = first()
    await applied(mine, begun)
    await world.records.put_inbox(begun.id, TENANT, "cancel", {})
    assert await other.inbox([begun.id]) == {}
    assert await other.moved() == []


async def test_data_that_cannot_be_kept_is_refused_by_the_inbox(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun)
    with pytest.raises(ValueRefused):
        await world.records.put_inbox(begun.id, TENANT, "bad\x00kind", {})
    assert (await node.inbox([begun.id]))[begun.id].seq == 0


# --- nodes -----------------------------------------------------------------------------------------------------------


async def test_an_older_incarnation_of_the_same_name_is_taken_over_at_once(world: World) -> None:
    old = await world.node("n1")
    begun = first()
    await applied(old, begun)
    new = await world.node("n1")
    claimed = await the_only(new)
    assert (claimed.id, claimed.deaths, claimed.records) == (begun.id, 1, (begun.records,))
    assert claimed.epoch > begun.epoch
    assert await one(old, later(begun)) == Verdict(Answer.FENCED)
    assert not await old.beat(10)
    await applied(new, replace(later(begun), epoch=claimed.epoch))


async def test_deaths_are_counted_in_a_row_and_forgotten_when_an_owner_gets_further(world: World) -> None:
    write = first()
    await applied(await world.node("n1"), write)
    for deaths in (1, 2, 3):
        node = await world.node("n1")
        claimed = await the_only(node)
        assert claimed.deaths == deaths
        if deaths > 1:
            # What was taken up is written, and nothing came of it.
            write = replace(later(write), epoch=claimed.epoch)
            await applied(node, write)
    write = later(write)
    await applied(node, write)
    for deaths in (1, 2):
        node = await world.node("n1")
        claimed = await the_only(node)
        assert claimed.deaths == deaths
    write = replace(later(write, WriteKind.PARK, due_at=LONG_AGO), epoch=claimed.epoch)
    await applied(node, write)
    assert (await the_only(node)).deaths == 2
    assert (await the_only(await world.node("n1"))).deaths == 1, "the owner before let go by itself"
    assert (await the_only(await world.node("n1"))).deaths == 2


async def test_of_other_shards_only_what_is_overdue_is_claimed(world: World) -> None:
    node = await world.node("n1")
    now = SystemClock().now()
    old, fresh, own = (uuid7(now, secrets.randbits(66), shard) for shard in (1, 2, 3))
    for id, due in ((old, LONG_AGO), (fresh, now - 1.0), (own, now - 1.0)):
        await parked(node, id=id, due_at=due)
    assert {one.id for one in await node.claim(10, {3, 4}, 3600.0)} == {old, own}
    assert await node.claim(10, (), 3600.0) == []
    assert (await the_only(node)).id == fresh


async def test_a_node_that_was_declared_dead_claims_nothing(world: World) -> None:
    old = await world.node("n1")
    await parked(old, due_at=LONG_AGO)
    new = await world.node("n1")
    assert await old.claim(10) == []
    assert len(await new.claim(10)) == 1


async def test_an_expired_lease_frees_what_the_node_owned(world: World) -> None:
    slow, quick = await world.node("slow"), await world.node("quick")
    begun = first()
    await applied(slow, begun)
    assert await slow.beat(-1.0)
    assert await quick.beat(10)
    await quick.reap()
    assert not await slow.beat(10)
    assert (await the_only(quick)).deaths == 1
    assert await slow.owned() == []


async def test_a_node_can_come_back_after_it_was_declared_dead(world: World) -> None:
    node, other = await world.node("a"), await world.node("b")
    await parked(node, due_at=LONG_AGO)
    await node.beat(-1.0)
    await other.reap()
    await node.join("a")
    assert await node.beat(10)
    assert len(await node.claim(10)) == 1


async def test_a_node_that_leaves_gives_back_what_it_owned_and_nobody_died(world: World) -> None:
    leaving, staying = await world.node("a"), await world.node("b")
    begun = first()
    await applied(leaving, begun)
    await leaving.leave()
    assert (await the_only(staying)).deaths == 0
    assert await leaving.claim(10) == []


async def test_what_is_released_is_due_at_once_under_a_new_epoch(world: World) -> None:
    node = await world.node()
    begun, kept = first(), first()
    await applied(node, begun, kept)
    await node.release([begun.id])
    assert await node.owned() == [kept.id]
    assert await one(node, later(begun)) == Verdict(Answer.FENCED)
    claimed = await the_only(node)
    assert (claimed.id, claimed.deaths) == (begun.id, 0) and claimed.epoch > begun.epoch + 1


async def test_two_nodes_never_claim_the_same_instance(world: World) -> None:
    nodes = [await world.node(name) for name in "abcd"]
    waiting = [(await parked(nodes[0], due_at=LONG_AGO)).id for _ in range(40)]
    found = await asyncio.gather(*(node.claim(25) for node in nodes))
    ids = [claimed.id for part in found for claimed in part]
    for node in nodes:
        ids += [claimed.id for claimed in await node.claim(40)]
    assert sorted(ids) == sorted(waiting)


# --- approvals -------------------------------------------------------------------------------------------------------


async def asked(node: InstanceStore, **changes: Any) -> tuple[Write, ApprovalRow]:
    id = fresh_id()
    row = ApprovalRow(derived_uuid(id, "ok"), "ok", "ok", "digest", "May it go?", {"x": -0.0}, ("bob", "eve"), SystemClock().now(), FAR_OFF)
    row = replace(row, **changes)
    return await parked(node, id=id, approvals=(row,), waiting_for="approval"), row


def decision(**changes: Any) -> dict[str, Any]:
    return {"action": "approve", "by": "bob", "channel": "page", "digest": "digest", "comment": "fine", "answer": {"n": 10**30}, **changes}


async def test_a_decision_is_stored_and_wakes_the_instance(world: World) -> None:
    node = await world.node()
    write, row = await asked(node)
    result = await world.records.decide_approval(TENANT, row.id, **decision())
    assert result.answer is DecisionAnswer.DECIDED
    assert result.approval is not None and result.approval.state == "approved" and result.approval.decided_by == "bob"
    assert result.approval.answer == {"n": 10**30} and result.approval.approvers == ("bob", "eve")
    claimed = await the_only(node)
    (item,) = (await node.inbox([claimed.id]))[write.id].items
    assert item.kind == "decision"
    assert item.body == {
        "approval": str(row.id), "path": "ok", "action": "approve", "by": "bob", "channel": "page", "comment": "fine",
        "answer": {"n": 10**30},
    }  # fmt: skip


async def test_of_many_decisions_one_counts(world: World) -> None:
    node = await world.node()
    write, row = await asked(node)
    people = [decision(by=f"p{n}", action="approve" if n % 2 else "reject") for n in range(12)]
    results = await asyncio.gather(*(world.records.decide_approval(TENANT, row.id, **d) for d in people))
    assert sorted(r.answer for r in results) == [DecisionAnswer.CONFLICT] * 11 + [DecisionAnswer.DECIDED]
    await the_only(node)
    assert len((await node.inbox([write.id]))[write.id].items) == 1
    winner = people[[r.answer for r in results].index(DecisionAnswer.DECIDED)]
    again = await world.records.decide_approval(TENANT, row.id, **winner)
    assert again.answer is DecisionAnswer.REPEATED
    assert again.approval is not None and again.approval.decided_by == winner["by"]
    assert len((await node.inbox([write.id]))[write.id].items) == 1


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"action": "reject"}, DecisionAnswer.CONFLICT),
        ({"by": "eve"}, DecisionAnswer.CONFLICT),
        ({"answer": None}, DecisionAnswer.CONFLICT),
        ({"comment": "again"}, DecisionAnswer.REPEATED),
    ],
)
async def test_a_second_decision_is_judged_by_the_first(world: World, changes: dict[str, Any], answer: DecisionAnswer) -> None:
    node = await world.node()
    _, row = await asked(node)
    await world.records.decide_approval(TENANT, row.id, **decision())
    second = await world.records.decide_approval(TENANT, row.id, **decision(**changes))
    assert second.answer is answer
    assert second.approval is not None and second.approval.comment == "fine"


async def test_a_decision_needs_the_digest_that_stands_now_and_its_own_tenant(world: World) -> None:
    node = await world.node()
    _, row = await asked(node)
    assert (await world.records.decide_approval(TENANT, row.id, **decision(digest="old"))).answer is DecisionAnswer.CHANGED
    other = await world.records.decide_approval("other", row.id, **decision())
    assert (other.answer, other.approval) == (DecisionAnswer.UNKNOWN, None)
    assert await world.records.get_approval("other", row.id) is None
    assert (await world.records.decide_approval(TENANT, fresh_id(), **decision())).answer is DecisionAnswer.UNKNOWN
    assert await node.claim(1) == []
    with pytest.raises(ValueError, match="approve or reject"):
        await world.records.decide_approval(TENANT, row.id, **decision(action="maybe"))


async def test_a_late_decision_and_one_for_something_over_do_not_count(world: World) -> None:
    node = await world.node()
    _, late = await asked(node, expires_at=LONG_AGO)
    assert (await world.records.decide_approval(TENANT, late.id, **decision())).answer is DecisionAnswer.EXPIRED
    for state, answer in [("expired", DecisionAnswer.EXPIRED), ("cancelled", DecisionAnswer.GONE), ("void", DecisionAnswer.GONE)]:
        write, row = await asked(node)
        await world.records.put_inbox(write.id, TENANT, "cancel", {})
        claimed = await the_only(node)
        end = later(write, WriteKind.END, epoch=claimed.epoch, closed=(ApprovalClose(row.id, state),))
        await applied(node, end)
        assert (await world.records.decide_approval(TENANT, row.id, **decision())).answer is answer


async def test_an_expiry_does_not_overtake_a_decision(world: World) -> None:
    node = await world.node()
    for _ in range(8):
        write, row = await asked(node)
        await world.records.put_inbox(write.id, TENANT, "look", {})
        claimed = await the_only(node)
        closed = (ApprovalClose(row.id, "expired"),)
        expiry = later(write, epoch=claimed.epoch, guard_inbox=True, inbox_seen=claimed.inbox_seq, closed=closed)
        verdict, result = await asyncio.gather(one(node, expiry), world.records.decide_approval(TENANT, row.id, **decision()))
        stands = await world.records.get_approval(TENANT, row.id)
        assert stands is not None
        if verdict.answer is Answer.APPLIED:
            assert (result.answer, stands.state) == (DecisionAnswer.EXPIRED, "expired")
        else:
            assert verdict.answer is Answer.INBOX_MOVED
            assert (result.answer, stands.state) == (DecisionAnswer.DECIDED, "approved")


async def test_closing_does_not_change_what_was_decided(world: World) -> None:
    node = await world.node()
    write, row = await asked(node)
    await world.records.decide_approval(TENANT, row.id, **decision())
    claimed = await the_only(node)
    await applied(node, later(write, epoch=claimed.epoch, closed=(ApprovalClose(row.id, "void"),)))
    stands = await world.records.get_approval(TENANT, row.id)
    assert stands is not None and stands.state == "approved"


async def test_an_approval_of_a_refused_write_does_not_exist(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, begun)
    row = ApprovalRow(derived_uuid(begun.id, "ok"), "ok", "ok", "d", "t", {}, (), LONG_AGO, FAR_OFF)
    assert await one(node, later(begun, epoch=5, approvals=(row,))) == Verdict(Answer.FENCED)
    assert await world.records.get_approval(TENANT, row.id) is None


# --- deliveries ------------------------------------------------------------------------------------------------------


def notice(instance: UUID, name: str, target: str | None = None) -> OutboxRow:
    return OutboxRow(derived_uuid(instance, name), "notice", target or f"mailto:{name}", {"name": name, "x": 0.1})


async def test_deliveries_of_an_instance_and_target_go_out_in_order_and_hold_up_no_other_target(world: World) -> None:
    node = await world.node()
    a, b = first(), first()
    a = replace(a, outbox=(notice(a.id, "a1", "mail"), notice(a.id, "a2", "mail"), notice(a.id, "a3", "chat")))
    b = replace(b, outbox=(notice(b.id, "b1", "mail"),))
    await applied(node, a, b)
    taken = {item.body["name"]: item for item in await node.take_outbox(10, 10)}
    assert set(taken) == {"a1", "a3", "b1"}
    assert taken["a1"].body == {"name": "a1", "x": 0.1}
    assert (taken["a1"].tries, taken["a1"].instance, taken["a1"].tenant, taken["a1"].target) == (1, a.id, TENANT, "mail")
    assert await node.take_outbox(10, 10) == []
    await node.not_delivered(taken["a1"].id, "no route\x00", LONG_AGO, 503)
    (again,) = await node.take_outbox(10, 10)
    assert (again.body["name"], again.tries) == ("a1", 2)
    await node.delivered(again.id, 204)
    (second,) = await node.take_outbox(10, 10)
    assert second.body["name"] == "a2"
    await node.not_delivered(second.id, "never", None)
    assert await node.take_outbox(10, 10) == []


async def test_what_waits_behind_a_delivery_that_is_put_off_goes_on_when_that_is_given_up(world: World) -> None:
    node = await world.node()
    a = first()
    await applied(node, replace(a, outbox=(notice(a.id, "a1", "hook"), notice(a.id, "a2", "hook"))))
    (item,) = await node.take_outbox(10, 10)
    await node.not_delivered(item.id, "later", SystemClock().now() - 1)
    await applied(node, replace(later(a), outbox=(notice(a.id, "a3", "hook"),)))
    (item,) = await node.take_outbox(10, 10)
    assert item.body["name"] == "a1"
    await node.not_delivered(item.id, "never", None)
    (item,) = await node.take_outbox(10, 10)
    assert item.body["name"] == "a2"


async def test_one_target_gets_no_more_than_its_share(world: World) -> None:
    node = await world.node()
    for n in range(6):
        begun = first()
        await applied(node, replace(begun, outbox=(notice(begun.id, f"m{n}", "down"), notice(begun.id, f"h{n}", f"up{n % 2}"))))
    taken = await node.take_outbox(10, 2)
    assert sorted(item.target for item in taken) == ["down", "down", "up0", "up0", "up1", "up1"]
    assert [item.target for item in await node.take_outbox(10, 2, {"down": 2, "up0": 2, "up1": 1})] == ["up1"]


async def test_what_is_settled_is_kept_for_a_while(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, replace(begun, outbox=(notice(begun.id, "made"), notice(begun.id, "dead"), notice(begun.id, "open"))))
    for item in await node.take_outbox(10, 10):
        if item.body["name"] == "made":
            await node.delivered(item.id)
        elif item.body["name"] == "dead":
            await node.not_delivered(item.id, "never", None)
    assert await node.forget_deliveries(3600, 3600, 10) == 0
    assert await node.forget_deliveries(-1, 3600, 10) == 1
    assert await node.forget_deliveries(-1, -1, 10) == 1
    assert await node.forget_deliveries(-1, -1, 10) == 0


async def test_a_delivery_that_is_put_off_is_not_due(world: World) -> None:
    node = await world.node()
    begun = first()
    await applied(node, replace(begun, outbox=(notice(begun.id, "x"),)))
    (item,) = await node.take_outbox(1, 10)
    await node.not_delivered(item.id, "later", FAR_OFF)
    assert await node.take_outbox(1, 10) == []


async def test_a_delivery_of_a_dead_node_is_made_by_another_and_no_longer_by_it(world: World) -> None:
    """REQ-30."""
    old = await world.node("n1")
    begun = first()
    await applied(old, replace(begun, outbox=(notice(begun.id, "x"),)))
    (item,) = await old.take_outbox(1, 10)
    new = await world.node("n1")
    await old.delivered(item.id)
    await old.not_delivered(item.id, "too late", None)
    assert await old.take_outbox(1, 10) == []
    (again,) = await new.take_outbox(1, 10)
    assert (again.id, again.tries) == (item.id, 2)


async def test_deliveries_that_are_given_back_are_due_again_for_this_node_alone(world: World) -> None:
    node, other = await world.node("n1"), await world.node("n2")
    a, b = first(), first()
    await applied(node, replace(a, outbox=(notice(a.id, "x"),)))
    (mine,) = await node.take_outbox(10, 10)
    await applied(node, replace(b, outbox=(notice(b.id, "y"),)))
    (theirs,) = await other.take_outbox(10, 10)
    await node.release_outbox()
    (again,) = await node.take_outbox(10, 10)
    assert (again.id, again.tries) == (mine.id, 2)
    await other.delivered(theirs.id)
    await node.release_outbox()
    assert [item.id for item in await other.take_outbox(10, 10)] == [mine.id]
    await other.release_outbox([mine.id])
    assert await node.take_outbox(10, 10) == []


# --- versions and the journal ----------------------------------------------------------------------------------------


def version(text: str, rank: str, content: str = "c1", **changes: Any) -> NewVersion:
    return replace(NewVersion("weekly", text, rank, "", content, f"version: {text}", {"steps": [], "n": 0.1}, "alice"), **changes)


async def test_publishing_again_changes_nothing_and_other_content_is_refused(world: World) -> None:
    records = world.records
    assert (await records.publish_version(TENANT, version("1.0", "01"))).answer is Published.CREATED
    same = await records.publish_version(TENANT, version("1.0", "01", created_by="bob"))
    assert same.answer is Published.UNCHANGED and same.existing is not None and same.existing.created_by == "alice"
    assert (await records.publish_version(TENANT, version("1.0", "01", "c2"))).answer is Published.CONFLICT
    equal = await records.publish_version(TENANT, version("1.00", "01"))
    assert equal.answer is Published.EQUAL_RANK and equal.existing is not None and equal.existing.version == "1.0"
    assert (await records.publish_version("other", version("1.00", "01", "c2"))).answer is Published.CREATED


async def test_of_parallel_uploads_one_wins(world: World) -> None:
    results = await asyncio.gather(*(world.records.publish_version(TENANT, version("1.0", "01", f"c{n % 2}")) for n in range(8)))
    answers = [r.answer for r in results]
    assert answers.count(Published.CREATED) == 1
    assert answers.count(Published.UNCHANGED) == 3 and answers.count(Published.CONFLICT) == 4


async def test_versions_are_read_back_and_the_highest_without_a_label_is_the_default(world: World) -> None:
    records = world.records
    assert await records.default_version(TENANT, "weekly") is None
    for text, rank, label in [("1.9", "0109", ""), ("1.10", "0110", ""), ("2.0-beta", "0200-beta", "beta")]:
        await records.publish_version(TENANT, version(text, rank, label=label))
    await records.publish_version(TENANT, version("7", "07", workflow="another"))
    assert await records.default_version(TENANT, "weekly") == "1.10"
    assert await records.default_version("other", "weekly") is None
    stored = await records.get_version(TENANT, "weekly", "1.10")
    assert stored is not None and stored.source == "version: 1.10" and stored.document == {"steps": [], "n": 0.1}
    assert await records.get_version("other", "weekly", "1.10") is None
    lines = await records.list_versions(TENANT)
    assert [(line.workflow, line.version) for line in lines] == [
        ("another", "7"), ("weekly", "2.0-beta"), ("weekly", "1.10"), ("weekly", "1.9"),
    ]  # fmt: skip
    page = await records.list_versions(TENANT, limit=2)
    assert page + await records.list_versions(TENANT, after=("weekly", "0200-beta")) == lines
    assert [line.version for line in await records.list_versions(TENANT, "weekly", after=("weekly", "0110"))] == ["1.9"]
    # The last line of a page may be deleted before the next one is read.
    assert [line.version for line in await records.list_versions(TENANT, "weekly", after=("weekly", "0111"))] == ["1.10", "1.9"]
    assert await records.list_versions("other") == []


async def test_refused_triggers_and_deeds_are_noted(world: World) -> None:
    await world.records.reject_trigger(TENANT, RejectedTrigger("weekly", "invalid_input", [{"pointer": "/week"}]))
    await world.records.audit(TENANT, "alice", "publish", "weekly/1.0", {"n": 1})
    await world.records.audit(TENANT, "alice", "look", "weekly/1.0")
    with pytest.raises(ValueRefused):
        await world.records.audit(TENANT, "alice\x00", "publish", "weekly/1.0")


async def test_a_closed_store_says_that_it_is_unavailable(world: World) -> None:
    node: Any = await world.node()
    await node.close()
    with pytest.raises(StoreUnavailable):
        await node.claim(1)
    with pytest.raises(StoreUnavailable):
        await node.write([first()])
