"""An instance from its trigger to its end on one node: what is written, when, and what goes first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agiwo.definition.compiled import Gate, Retry
from agiwo.definition.contract import Effect
from agiwo.engine.events import Event, Happening
from agiwo.errors import Failure, Overloaded, Unavailable
from agiwo.machine.reports import Begin, Failed, Succeeded
from agiwo.ports.store import Answer, WriteKind
from agiwo.values import MAX_VALUE
from kit.engine import Calls, World, pause, row, signal, tool, until

Make = Callable[..., World]


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


async def test_many_instances_share_commits_and_each_stands_once_in_a_batch(world: Make) -> None:
    w = world(row(tool("a"), tool("b"), tool("c")))
    engine = await w.node()
    endings = [ended for _, ended in await asyncio.gather(*(w.begin(engine) for _ in range(50)))]
    await asyncio.gather(*endings)
    assert len(w.shelf.ended) == 50
    assert w.shelf.commits < 50
    assert sum(len(batch) for batch in w.stores[0].writes) == 200


async def test_nothing_is_called_before_its_decision_is_committed(world: Make) -> None:
    w = world(row(tool("a"), tool("b")))
    committed_starts: set[tuple[str, int]] = set()

    def committed(event: Event) -> None:
        committed_starts.update((r.path, r.attempt) for r in event.data["records"] if r.type == "step.started")

    def started(event: Event) -> None:
        assert (event.path, event.attempt) in committed_starts

    w.moments.hooks = {Happening.COMMITTED: committed, Happening.ATTEMPT_STARTED: started}
    engine = await w.node()
    _, ended = await w.begin(engine)
    await ended
    assert committed_starts == {("a", 1), ("b", 1)}


async def test_reports_that_come_during_a_write_are_decided_together_after_it(world: Make) -> None:
    w = world(row(tool("a")), Calls(held=["a"]))
    engine = await w.node()
    id, ended = await w.begin(engine)
    await w.calls.begun("a")
    w.stores[0].gate = asyncio.Event()
    w.calls.give("a")
    await w.moments.until(Happening.ATTEMPT_RETURNED)
    w.shelf.send(id, "cancel", {"by": "user:a"})
    engine.poke(id)
    w.stores[0].gate.set()
    instance = await ended
    assert instance.status.value in ("SUCCESS", "CANCELLED")
    assert w.shelf.ended[id] == instance.status.value


async def test_a_repeated_trigger_is_told_of_the_first(world: Make) -> None:
    w = world(row(tool("a")))
    engine = await w.node()
    id, ended = await w.begin(engine, idempotency_key="k", request_digest="d")
    await ended
    verdict = await engine.begin(w.new_id(), w.workflow, "default", Begin(1.0), w.new(idempotency_key="k", request_digest="d"))
    assert (verdict.answer, verdict.existing, verdict.existing_digest) == (Answer.DUPLICATE, id, "d")
    assert w.calls.paths == ["a"]
    assert engine.load == 0


async def test_an_instance_that_rests_from_the_start_is_written_once_and_leaves_memory(world: Make) -> None:
    w = world(row(pause("p", 3600), tool("a")))
    engine = await w.node()
    id, ended = await w.begin(engine)
    assert await ended is None
    assert w.shelf.commits == 1
    assert engine.load == 0
    parked = w.shelf.rows[id]
    assert (parked.owner, parked.due_at, parked.waiting_for) == (None, w.clock.now() + 3600, "timer of p")


async def test_a_parked_timer_fires_when_it_is_due(world: Make) -> None:
    w = world(row(pause("p", 3600), tool("a")))
    engine = await w.node()
    id, _ = await w.begin(engine)
    w.clock.advance(3601)
    engine.tick()
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"
    assert w.calls.paths == ["a"]


async def test_a_short_timer_keeps_the_instance_in_memory(world: Make) -> None:
    w = world(row(pause("p", 1.5), tool("a")))
    engine = await w.node()
    id, ended = await w.begin(engine)
    assert engine.load == 1
    w.clock.advance(1.5)
    engine.tick()
    assert (await ended).status.value == "SUCCESS"
    assert w.shelf.rows == {}
    assert id in w.shelf.ended


async def test_a_retry_waits_in_the_storage_and_uses_the_same_key(world: Make) -> None:
    answers = [Failed(Failure("NetworkError", "no route")), Succeeded(1)]
    w = world(row(tool("a", retry=Retry(3, 60.0))), Calls(lambda call: answers.pop(0)))
    engine = await w.node()
    id, ended = await w.begin(engine)
    assert await ended is None
    assert w.shelf.rows[id].waiting_for == "retry of a"
    w.clock.advance(61)
    engine.tick()
    await w.moments.until(Happening.ENDED)
    assert [(path, attempt) for path, attempt, _ in w.calls.made] == [("a", 1), ("a", 2)]
    assert len({key for _, _, key in w.calls.made}) == 1


async def test_an_approval_is_asked_in_one_write_with_its_notices_and_parks(world: Make) -> None:
    twice = ("user:x@example.org", "role:boss", "user:x@example.org")
    gate = Gate("before", approvers=twice, notify=("mail", "mail"), timeout=600.0)
    w = world(row(tool("a", gate=gate)))
    engine = await w.node()
    id, ended = await w.begin(engine)
    assert await ended is None
    (write,) = (write for batch in w.stores[0].writes for write in batch)
    assert [row.body["to"] for row in write.outbox] == ["user:x@example.org", "role:boss"]
    assert {row.target for row in write.outbox} == {"mail"}
    assert len({row.id for row in write.outbox}) == 2
    (approval,) = write.approvals
    assert w.shelf.rows[id].waiting_for == "approval of a"
    decision = {"approval": str(approval.id), "action": "approve", "by": "user:x@example.org", "channel": "api"}
    w.shelf.send(id, "decision", decision)
    engine.poke(id)
    await w.moments.until(Happening.ENDED)
    assert w.calls.paths == ["a"]
    assert w.shelf.inbox[id] == []


@pytest.mark.parametrize("read_meanwhile", [False, True])
async def test_a_decision_that_stands_in_the_inbox_goes_before_its_expiry(world: Make, read_meanwhile: bool) -> None:
    gate = Gate("before", approvers=("user:x",), timeout=1.0)
    w = world(row(tool("a", gate=gate)))
    engine = await w.node()
    id, _ = await w.begin(engine)
    (approval,) = w.stores[0].writes[0][0].approvals
    w.stores[0].gate = asyncio.Event()
    w.clock.advance(1.0)
    engine.tick()  # the expiry is decided and on its way
    await until(lambda: not engine.writer._idle.is_set())
    decision = {"approval": str(approval.id), "action": "approve", "by": "user:x", "channel": "api"}
    w.shelf.send(id, "decision", decision)
    if read_meanwhile:
        engine.poke(id)
        await until(lambda: engine._held[id].mailbox)
    w.stores[0].gate.set()
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"
    assert w.calls.paths == ["a"]


@pytest.mark.parametrize("read_meanwhile", [False, True])
async def test_a_signal_that_stands_in_the_inbox_goes_before_the_end_of_its_wait(world: Make, read_meanwhile: bool) -> None:
    """REQ-03: the wait has run out, and that is on its way to the storage, when the signal arrives there."""
    w = world(row(signal("paid", 1.0), tool("a")))
    engine = await w.node()
    id, _ = await w.begin(engine)
    w.stores[0].gate = asyncio.Event()
    w.clock.advance(1.0)
    engine.tick()
    await until(lambda: not engine.writer._idle.is_set())
    w.shelf.send(id, "signal", {"id": "s1", "event": "paid", "payload": {"amount": 5}, "by": "key:x", "channel": "api"})
    if read_meanwhile:
        engine.poke(id)
        await until(lambda: engine._held[id].mailbox)
    w.stores[0].gate.set()
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"
    assert w.calls.paths == ["a"]


async def test_a_wait_for_a_signal_parks_and_the_inbox_wakes_it(world: Make) -> None:
    w = world(row(signal("paid"), tool("a")))
    engine = await w.node()
    id, _ = await w.begin(engine)
    await w.moments.until(Happening.LET_GO)
    assert w.shelf.rows[id].waiting_for == "signal of paid"
    for _ in range(2):
        w.shelf.send(id, "signal", {"id": "s1", "event": "paid", "payload": 1, "by": "key:x", "channel": "api"})
    engine.poke(id)
    await w.moments.until(Happening.ENDED)
    assert (w.shelf.ended[id], w.shelf.inbox[id], w.types(id).count("signal.received")) == ("SUCCESS", [], 1)


async def test_a_call_that_returns_together_with_its_callback_is_followed_by_the_next_step(world: Make) -> None:
    """REQ-03: both are decided in one write; there is then nothing left to stop, and the next call has not begun yet."""
    made = tool("a")
    w = world(row(lambda index: replace(made(index), callback=3600.0), tool("b")), Calls(held=["a"]))
    engine = await w.node()
    id, _ = await w.begin(engine)
    await w.calls.begun("a")
    w.stores[0].gate = asyncio.Event()
    w.shelf.send(id, "signal", {"id": "s1", "event": "other", "payload": 1, "by": "key:x", "channel": "api"})
    engine.poke(id)
    await until(lambda: not engine.writer._idle.is_set())
    w.calls.give("a")
    await until(lambda: engine._held[id].mailbox)
    w.shelf.send(id, "callback", {"path": "a", "kind": "result", "result": 7})
    engine.poke(id)
    await until(lambda: len(engine._held[id].mailbox) == 2)
    w.stores[0].gate.set()
    await w.moments.until(Happening.ENDED)
    assert (w.shelf.ended[id], w.calls.paths) == ("SUCCESS", ["a", "b"])


async def test_an_interrupted_instance_parks_and_goes_on_elsewhere_by_resume(world: Make) -> None:
    w = world(row(tool("a"), tool("b")))
    engine = await w.node()
    id, _ = await w.begin(engine, interrupt_after=["a"])
    await w.moments.until(Happening.LET_GO)
    assert w.shelf.rows[id].waiting_for == "interrupt after a"
    await engine.stop()
    await w.node("b")
    w.shelf.send(id, "resume", {"by": "user:a", "reason": None, "paths": ["a"]})
    await w.moments.until(Happening.ENDED)
    assert (w.shelf.ended[id], w.calls.paths) == ("SUCCESS", ["a", "b"])


async def test_a_park_does_not_miss_what_came_meanwhile(world: Make) -> None:
    w = world(row(tool("a"), pause("p", 3600)))
    engine = await w.node()
    w.calls.held = {"a"}
    id, _ = await w.begin(engine)
    await w.calls.begun("a")
    w.stores[0].gate = asyncio.Event()
    w.calls.give("a")
    await w.moments.until(Happening.ATTEMPT_RETURNED)
    w.shelf.send(id, "cancel", {"by": "user:a", "reason": "no more"})
    w.stores[0].gate.set()
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "CANCELLED"
    assert w.shelf.inbox[id] == []


async def test_an_item_that_changes_nothing_is_consumed_all_the_same(world: Make) -> None:
    w = world(row(tool("a")), Calls(held=["a"]))
    engine = await w.node()
    id, ended = await w.begin(engine)
    await w.calls.begun("a")
    w.shelf.send(id, "outcome", {"path": "a", "by": "user:a", "done": True})
    w.shelf.send(id, "strange", {})
    engine.poke(id)
    await w.moments.until(Happening.ITEM_REFUSED)
    await until(lambda: not w.shelf.inbox[id])
    w.calls.give("a")
    assert (await ended).status.value == "SUCCESS"


async def test_cancel_stops_the_call_and_ends_the_instance(world: Make) -> None:
    """REQ-15."""
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    engine = await w.node()
    id, ended = await w.begin(engine)
    await w.calls.begun("a")
    w.shelf.send(id, "cancel", {"by": "user:a"})
    engine.poke(id)
    assert (await ended).status.value == "CANCELLED"
    assert w.calls.cancelled == [("a", 1)]
    assert w.calls.paths == ["a"]


async def test_progress_can_be_followed_batch_by_batch(world: Make) -> None:
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    engine = await w.node()
    id, _ = await w.begin(engine)
    await w.calls.begun("a")
    watch = engine.watch(id)
    w.calls.give("a")
    seen = [record.seq async for batch in watch for record in batch]
    assert seen == list(range(seen[0], w.shelf.records(id)[-1].seq + 1))
    assert not watch.lagged
    assert [batch async for batch in engine.watch(id)] == []


async def test_a_follower_that_falls_behind_is_cut_off_and_holds_nobody_up(world: Make) -> None:
    w = world(row(*(tool(f"s{n}") for n in range(300))), Calls(held=["s0"]))
    engine = await w.node()
    id, ended = await w.begin(engine)
    await w.calls.begun("s0")
    watch = engine.watch(id)
    w.calls.give("s0")
    await ended
    assert watch.lagged
    assert len([batch async for batch in watch]) == 256


async def test_no_room_is_refused_and_what_is_entrusted_is_begun_by_any_node(world: Make) -> None:
    w = world(row(tool("a")), Calls(held=["a"]))
    engine = await w.node(capacity=1)
    await w.begin(engine)
    with pytest.raises(Overloaded):
        await w.begin(engine)
    other = w.new_id()
    begin = Begin(w.clock.now(), {"n": 1}, {}, "user:a", {"k": "v"}, "f" * 32)
    verdict = await engine.entrust(other, w.workflow, "default", begin, w.new())
    assert verdict.answer is Answer.APPLIED
    free = Calls()
    await w.node("b", free)
    await w.moments.until(Happening.ENDED)
    assert free.paths == ["a"]
    started = w.shelf.records(other)[0]
    assert (started.data or {})["input"] == {"n": 1}
    assert started.by == "user:a"


async def test_a_long_life_has_few_snapshots_and_short_lives_none(world: Make) -> None:
    w = world(row(*(tool(f"s{n}") for n in range(400))))
    engine = await w.node()
    _, ended = await w.begin(engine)
    await ended
    writes = [write for batch in w.stores[0].writes for write in batch]
    snapshots = [len(write.snapshot) for write in writes if write.snapshot is not None]
    text = sum(len(write.records) for write in writes)
    assert snapshots
    assert sum(snapshots) < 3 * text


@pytest.mark.parametrize("poisoned", ["a", "b"])
async def test_a_poisoned_result_fails_its_own_step_alone(world: Make, poisoned: str) -> None:
    bad: Any = Succeeded({"text": "POISON"})
    w = world(row(tool("a"), tool("b")), Calls(lambda call: bad if call.path == poisoned and where["n"] == 0 else Succeeded(1)))
    where = {"n": 0}
    engine = await w.node()
    w.stores[0].poison = "POISON"
    first, ended = await w.begin(engine)
    instance = await ended
    assert instance.status.value == "FAILED"
    run = instance.runs[poisoned]
    assert run.error["type"] == "ValidationError"
    assert "cannot be stored" in run.error["message"]
    where["n"] = 1
    _, ended = await w.begin(engine)
    assert (await ended).status.value == "SUCCESS"
    assert w.moments.all(Happening.REFUSED)


@pytest.mark.parametrize(("more", "status"), [(0, "SUCCESS"), (1, "FAILED")])
async def test_a_result_of_more_bytes_than_a_value_may_have_fails_its_step_once(world: Make, more: int, status: str) -> None:
    calls = Calls(lambda call: Succeeded("x" * (MAX_VALUE - 2 + more)))
    w = world(row(tool("a")), calls)
    engine = await w.node()
    _, ended = await w.begin(engine)
    instance = await ended
    assert instance.status.value == status and len(calls.paths) == 1
    if more:
        error = instance.runs["a"].error
        assert error["type"] == "PayloadTooLarge" and "32,000,001 bytes" in error["message"] and "details" not in error


async def test_what_cannot_be_written_at_all_is_set_aside_and_the_node_goes_on(world: Make) -> None:
    w = world(row(tool("POISON"), tool("b")))
    engine = await w.node()
    w.stores[0].poison = "POISON"
    verdict = await engine.begin(w.new_id(), w.workflow, "default", Begin(1.0), w.new())
    assert verdict.answer is Answer.REFUSED
    assert engine.load == 0


async def test_a_result_that_is_no_json_fails_the_step_by_name(world: Make) -> None:
    answers: dict[str, Any] = {"nan": Succeeded(float("nan")), "nul": Succeeded({"k": "a\x00b"}), "none": None, "raises": KeyError("x\x00")}
    for name, answer in answers.items():
        w = world(row(tool(name)), Calls(lambda call, answer=answer: answer))
        engine = await w.node()
        _, ended = await w.begin(engine)
        instance = await ended
        assert instance.status.value == "FAILED", name
        assert instance.runs[name].error["type"] in ("ValidationError", "ToolError"), name


async def test_the_storage_may_go_away_and_come_back(world: Make) -> None:
    w = world(row(tool("a"), tool("b")), Calls(held=["a"]))
    engine = await w.node()
    _, ended = await w.begin(engine)
    await w.calls.begun("a")
    w.stores[0].down = True
    w.calls.give("a")
    await w.moments.until(Happening.STORE_LOST, place="writer")
    with pytest.raises(Unavailable):
        await w.begin(engine)
    w.stores[0].down = False
    assert (await ended).status.value == "SUCCESS"
    assert w.calls.paths == ["a", "b"]
    await w.moments.until(Happening.STORE_BACK, place="writer")


async def test_an_observer_that_fails_stops_nothing(world: Make) -> None:
    w = world(row(tool("a")))
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: told.append(context["message"]))

    def fail(event: Event) -> None:
        raise RuntimeError("no")

    w.moments.hooks = {Happening.COMMITTED: fail}
    try:
        engine = await w.node()
        _, ended = await w.begin(engine)
        assert (await ended).status.value == "SUCCESS"
    finally:
        loop.set_exception_handler(None)
    assert told == ["an observer failed on the event committed"] * 2


async def test_an_unsafe_call_that_timed_out_waits_for_a_person_who_then_decides(world: Make) -> None:
    w = world(row(tool("a", Effect.WRITE, timeout=0.01), tool("b")), Calls(held=["a"]))
    engine = await w.node()
    id, ended = await w.begin(engine)
    assert await ended is None
    assert w.shelf.rows[id].waiting_for == "outcome of a"
    w.shelf.send(id, "outcome", {"path": "a", "by": "user:a", "done": True, "result": {"sent": 1}, "reason": "the bank says so"})
    engine.poke(id)
    await w.moments.until(Happening.ENDED)
    assert w.shelf.ended[id] == "SUCCESS"
    assert w.calls.paths == ["a", "b"]
