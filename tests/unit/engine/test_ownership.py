"""Who drives an instance when nodes die, stall, or lose their lease; and what a taken-over instance does next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from agiwo.definition.compiled import Retry
from agiwo.definition.contract import Effect
from agiwo.engine.events import Happening
from agiwo.machine.reports import Begin
from agiwo.ports.executor import ProbeAnswer
from kit.engine import Calls, Library, World, pause, row, signal, tool, until

Make = Callable[..., World]


def numbers(w: World, id: UUID) -> list[int]:
    return [record.seq for record in w.shelf.records(id)]


async def test_a_new_incarnation_takes_over_at_once_and_the_old_one_is_fenced(world: Make) -> None:
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    old = await w.node("a", heartbeat=1000.0)
    id, ended = await w.begin(old)
    await w.calls.begun("a")
    fresh = Calls()
    await w.node("a", fresh)
    await w.moments.until(Happening.ENDED)
    assert fresh.made == [("a", 2, w.calls.made[0][2]), ("b", 1, fresh.made[1][2])]
    w.calls.give("a")  # the old node has a result too, and nobody takes it
    assert await ended is None
    await w.moments.until(Happening.LET_GO, reason="fenced")
    assert numbers(w, id) == list(range(1, len(numbers(w, id)) + 1))
    assert w.calls.paths == ["a"]


async def test_a_node_that_was_declared_dead_drops_all_and_comes_back_anew(world: Make) -> None:
    w = world(row(tool("a")), Calls(held=["a"]))
    engine = await w.node("a")
    id, ended = await w.begin(engine)
    await w.calls.begun("a")
    w.calls.held.clear()
    w.shelf.free(w.stores[0].me)
    await w.moments.until(Happening.DECLARED_DEAD)
    assert await ended is None
    await w.moments.until(Happening.ENDED)
    assert w.calls.cancelled == [("a", 1)]
    assert [(path, attempt) for path, attempt, _ in w.calls.made] == [("a", 1), ("a", 2)]
    assert w.shelf.ended[id] == "SUCCESS"


async def test_two_processes_of_one_name_do_not_declare_each_other_dead_for_ever(world: Make) -> None:
    w = world(row(tool("a")))
    await w.node("a")
    await w.node("a")
    await w.moments.until(Happening.DECLARED_DEAD)
    await until(lambda: len(w.moments.all(Happening.JOINED)) == 3)
    for engine in w.nodes:
        beat = engine._beat_at
        w.clock.advance(1)
        engine._beats.hurry()
        await until(lambda engine=engine, beat=beat: engine._beat_at > beat)
    assert len(w.moments.all(Happening.DECLARED_DEAD)) == 1
    assert len(w.shelf.alive) == 2


async def test_an_unsafe_call_whose_node_died_is_not_made_again(world: Make) -> None:
    w = world(row(tool("a", Effect.WRITE), tool("b")), Calls(held=["a"]))
    old = await w.node("a", heartbeat=1000.0)
    id, _ = await w.begin(old)
    await w.calls.begun("a")
    fresh = Calls()
    await w.node("a", fresh)
    await w.moments.until(Happening.LET_GO, reason="parked")
    assert fresh.made == []
    assert w.shelf.rows[id].waiting_for == "outcome of a"


async def test_a_tool_that_can_be_asked_is_asked(world: Make) -> None:
    w = world(row(tool("a", Effect.WRITE, reconcile=True), tool("b")), Calls(held=["a"]))
    old = await w.node("a", heartbeat=1000.0)
    id, _ = await w.begin(old)
    await w.calls.begun("a")
    fresh = Calls()
    fresh.probe_answer = ProbeAnswer("done", {"id": 7})
    await w.node("a", fresh)
    await w.moments.until(Happening.ENDED)
    assert (fresh.probed, fresh.paths) == (["a"], ["b"])
    assert w.shelf.ended[id] == "SUCCESS"


async def test_draining_lets_calls_finish_and_hands_the_rest_back_as_not_begun(world: Make) -> None:
    w = world(row(tool("a"), tool("b", effect=Effect.WRITE), tool("c")), Calls(held=["a"]))
    engine = await w.node("a")
    id, ended = await w.begin(engine)
    await w.calls.begun("a")
    draining = asyncio.create_task(engine.drain(60.0))
    await asyncio.sleep(0)
    w.calls.give("a")
    await draining
    assert await ended is None
    assert w.calls.paths == ["a"]
    assert w.types(id)[-2:] == ["step.started", "step.retrying"]
    fresh = Calls()
    await w.node("b", fresh)
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"
    assert fresh.paths == ["b", "c"], "an unsafe call that nobody made is made, not put before a person"


async def test_a_drain_that_runs_out_of_time_records_no_failure_and_another_node_goes_on(world: Make) -> None:
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    engine = await w.node("a")
    id, ended = await w.begin(engine)
    await w.calls.begun("a")
    await engine.drain(0.0)
    assert await ended is None
    assert w.calls.cancelled == [("a", 1)]
    assert "step.failed" not in w.types(id)
    assert w.shelf.rows[id].deaths == 0
    fresh = Calls()
    await w.node("b", fresh)
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"
    assert fresh.paths == ["a", "b"]


async def test_retries_and_waits_survive_a_drain(world: Make) -> None:
    w = world(row(pause("p", 1.0), tool("a", retry=Retry(2, 5.0))))
    engine = await w.node("a")
    id, _ = await w.begin(engine)
    await engine.drain(0.0)
    w.clock.advance(2.0)
    await w.node("b")
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"


async def test_what_was_claimed_but_never_heard_of_is_released_by_the_sweep(world: Make) -> None:
    w = world(row(pause("p", 100), tool("a")))
    engine = await w.node("a")
    id, _ = await w.begin(engine)
    w.stores[0].lose_answer = True
    w.clock.advance(100)
    engine.tick()
    await w.moments.until(Happening.STORE_LOST, place="claims")
    assert w.shelf.rows[id].owner == w.stores[0].me
    for _ in range(3):
        w.clock.advance(11)
        while engine._swept_at < w.clock.now():
            engine._beats.hurry()
            engine._reaps.hurry()
            await asyncio.sleep(0)
    await w.moments.until(Happening.ORPHANS_RELEASED)
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"


async def test_an_instance_that_kills_nodes_is_set_aside_until_a_person_acts(world: Make) -> None:
    w = world(row(pause("p", 100), tool("a")))
    engine = await w.node("a")
    id, _ = await w.begin(engine)
    w.shelf.rows[id].deaths = 6
    w.clock.advance(100)
    engine.tick()
    await w.moments.until(Happening.SET_ASIDE)
    await w.moments.until(Happening.LET_GO, reason="set aside")
    assert w.shelf.rows[id].waiting_for == "set aside: 6 nodes died while they drove it"
    assert w.shelf.rows[id].due_at is None
    assert w.calls.made == []
    w.shelf.send(id, "cancel", {"by": "user:a"})
    engine.poke(id)
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "CANCELLED"


async def test_an_instance_whose_history_cannot_be_read_keeps_nobody_from_the_others(world: Make) -> None:
    w = world(row(pause("p", 100), tool("a")))
    engine = await w.node("a")
    broken, _ = await w.begin(engine)
    sound, _ = await w.begin(engine)
    w.shelf.history[broken] = ['[{"seq":9,"type":"nonsense","at":1}]']
    w.clock.advance(100)
    engine.tick()
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended == {sound: "SUCCESS"}
    await until(lambda: w.shelf.rows[broken].owner is None)
    assert w.shelf.rows[broken].waiting_for == "set aside: its history cannot be read"


async def test_a_missing_definition_sets_the_instance_aside(world: Make) -> None:
    w = world(row(pause("p", 100), tool("a")))
    engine = await w.node("a")
    id, _ = await w.begin(engine)
    engine._definitions = Library()
    w.clock.advance(100)
    engine.tick()
    event = await w.moments.until(Happening.SET_ASIDE)
    assert event.data["reason"] == "its definition is missing: flow 1 was never published"
    await until(lambda: w.shelf.rows[id].owner is None)


async def test_an_instance_that_one_node_cannot_read_goes_on_where_another_can(world: Make) -> None:
    w = world(row(pause("p", 100), tool("a")))
    engine = await w.node("a")
    id, _ = await w.begin(engine)
    able, engine._definitions = engine._definitions, Library()
    w.clock.advance(100)
    engine.tick()
    await w.moments.until(Happening.SET_ASIDE)
    await until(lambda: w.shelf.rows[id].owner is None)
    assert w.shelf.rows[id].waiting_for is not None
    engine._definitions = able
    w.clock.advance(31)
    engine.tick()
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"


async def test_nothing_new_is_started_while_the_lease_is_in_doubt(world: Make) -> None:
    """REQ-04: a holder whose renewal fails stops at the next border of a step."""
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    engine = await w.node("a", heartbeat=1000.0, lease=10.0)
    _, ended = await w.begin(engine)
    await w.calls.begun("a")
    w.clock.advance(8.0)
    assert not engine.has_room()
    w.calls.give("a")
    await w.moments.until(Happening.ATTEMPT_RETURNED)
    await until(lambda: engine.attempts._waiting)
    assert w.calls.paths == ["a"]
    engine._beats.hurry()
    assert (await ended).status.value == "SUCCESS"
    assert w.calls.paths == ["a", "b"]


async def test_a_snapshot_and_the_records_after_it_give_the_instance_again(world: Make) -> None:
    steps = [tool(f"s{n}") for n in range(120)]
    w = world(row(*steps, pause("p", 3600), tool("last")))
    engine = await w.node("a")
    id, _ = await w.begin(engine)
    await w.moments.until(Happening.LET_GO, reason="parked")
    seq, _ = w.shelf.snapshots[id]
    assert 0 < seq < w.shelf.rows[id].seq
    w.clock.advance(3600)
    engine.tick()
    await w.moments.until(Happening.ENDED)
    assert w.calls.paths == [f"s{n}" for n in range(120)] + ["last"]


async def test_an_instance_begun_by_nobody_keeps_its_place_through_deaths_of_nodes(world: Make) -> None:
    w = world(row(tool("a")))
    engine = await w.node("a", capacity=0)
    id = w.new_id()
    await engine.entrust(id, w.workflow, "default", Begin(w.clock.now(), {"x": 1}), w.new())
    assert w.shelf.rows[id].owner is None
    await engine.stop()
    await w.node("b")
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"


async def test_what_is_said_to_an_instance_that_no_node_has_begun_yet_counts_once_it_begins(world: Make) -> None:
    """A trigger is acknowledged before a node begins what it asked for: a signal or a cancellation may be there first."""
    w = world(row(signal("paid"), tool("a")))
    engine = await w.node("a", capacity=0)
    paid, stopped = w.new_id(), w.new_id()
    for id in (paid, stopped):
        await engine.entrust(id, w.workflow, "default", Begin(w.clock.now(), {}), w.new())
    w.shelf.send(paid, "signal", {"id": "1", "event": "paid", "payload": {"amount": 5}, "by": "key:shop", "channel": "api"})
    w.shelf.send(stopped, "cancel", {"by": "key:shop", "reason": None})
    await w.node("b")
    await w.moments.until(Happening.ENDED)
    await until(lambda: len(w.shelf.ended) == 2)
    assert (w.shelf.ended[paid], w.shelf.ended[stopped]) == ("SUCCESS", "CANCELLED")
    assert [record.type for record in w.shelf.records(paid)][:2] == ["instance.started", "step.waiting"]
    assert w.calls.paths == ["a"]
