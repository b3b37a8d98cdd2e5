"""What every storage of answered calls promises: on a real Postgres, and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from agiwo.clock import SystemClock
from agiwo.errors import Conflict
from agiwo.ports.answered import AnsweredCalls, CallKey, KeptAnswer, Standing
from agiwo.service.repeats import LARGEST, Repeats
from agiwo.store.answered import PostgresAnsweredCalls
from agiwo.store.memory_answered import MemoryAnsweredCalls
from agiwo.store.pool import service_engine

ANSWER = KeptAnswer(201, {"location": "/v1/x"}, b'{"a": "\xff"}')


@pytest.fixture(params=["postgres", "memory"])
async def calls(request: pytest.FixtureRequest) -> AsyncIterator[AnsweredCalls]:
    if request.param == "memory":
        yield MemoryAnsweredCalls()
        return
    engine = service_engine(request.getfixturevalue("module_database"))
    yield PostgresAnsweredCalls(engine)
    await engine.dispose()


@pytest.fixture
def key() -> CallKey:
    return CallKey("acme", "key:ops", uuid4().hex)


async def test_a_key_is_held_by_one_call_and_then_stands_for_its_answer(calls: AnsweredCalls, key: CallKey) -> None:
    first, second = uuid4(), uuid4()
    assert await calls.hold(key, "d1", first, 60) is None
    assert await calls.hold(key, "d2", second, 60) == Standing("d1")
    await calls.keep(key, second, ANSWER, 60)
    assert await calls.hold(key, "d1", second, 60) == Standing("d1"), "only the claim that holds it says what the answer is"
    await calls.keep(key, first, ANSWER, 60)
    assert await calls.hold(key, "d1", second, 60) == Standing("d1", ANSWER)
    await calls.free(key, first)
    assert await calls.hold(key, "d1", second, 60) == Standing("d1", ANSWER), "an answer is not taken back"


async def test_a_key_belongs_to_one_principal_of_one_tenant(calls: AnsweredCalls, key: CallKey) -> None:
    for other in (key, CallKey("other", key.principal, key.key), CallKey(key.tenant, "key:else", key.key)):
        assert await calls.hold(other, "d1", uuid4(), 60) is None


async def test_a_refused_call_and_one_whose_process_died_give_the_key_back(calls: AnsweredCalls, key: CallKey) -> None:
    refused, died, next = uuid4(), uuid4(), uuid4()
    assert await calls.hold(key, "d1", refused, 60) is None
    await calls.free(key, refused)
    assert await calls.hold(key, "d2", died, 0) is None, "this one shows no sign of life"
    assert await calls.hold(key, "d3", next, 60) is None
    await calls.renew(key, died, 60)
    await calls.keep(key, died, ANSWER, 60)
    await calls.free(key, died)
    assert await calls.hold(key, "d3", died, 60) == Standing("d3"), "a call that lost its hold changes nothing"


async def test_of_many_at_once_one_holds_the_key(calls: AnsweredCalls, key: CallKey) -> None:
    got = await asyncio.gather(*(calls.hold(key, "d1", uuid4(), 60) for _ in range(20)))
    assert got.count(None) == 1


async def test_of_twenty_parallel_calls_one_is_made_and_all_get_its_answer(calls: AnsweredCalls, key: CallKey) -> None:
    """REQ-07, for every change: two processes are two of these over one storage."""
    made: list[UUID] = []
    replicas = [Repeats(calls, SystemClock()) for _ in range(2)]
    all_wait = asyncio.Event()

    async def call() -> KeptAnswer:
        made.append(uuid4())
        await all_wait.wait()
        return KeptAnswer(200, {}, made[-1].bytes)

    waiting = [asyncio.create_task(replicas[n % 2].once(key, "d", call, lambda answer: answer)) for n in range(20)]
    all_wait.set()
    answers = await asyncio.gather(*waiting)
    assert len(made) == 1
    assert {answer.body for answer in answers} == {made[0].bytes}
    with pytest.raises(Conflict) as refused:
        await replicas[0].once(key, "another", call, lambda answer: answer)
    assert refused.value.code == "idempotency_key_reused"


async def test_who_waits_too_long_for_the_call_before_is_told_so(calls: AnsweredCalls, key: CallKey) -> None:
    assert await calls.hold(key, "d", uuid4(), 60) is None
    with pytest.raises(Conflict) as refused:
        await Repeats(calls, SystemClock(), patience=0.05).once(key, "d", lambda: asyncio.sleep(0, ANSWER), lambda answer: answer)
    assert refused.value.code == "in_progress"


@pytest.mark.parametrize("kept", [None, KeptAnswer(200, {}, b"x" * (LARGEST + 1))], ids=["refused", "too large"])
async def test_what_is_not_kept_is_made_again(calls: AnsweredCalls, key: CallKey, kept: KeptAnswer | None) -> None:
    made: list[int] = []

    async def call() -> int:
        made.append(len(made))
        return made[-1]

    for expected in range(3):
        assert await Repeats(calls, SystemClock()).once(key, "d", call, lambda _: kept) == expected


async def test_a_call_that_lasts_longer_than_its_hold_keeps_it(calls: AnsweredCalls, key: CallKey, monkeypatch: pytest.MonkeyPatch) -> None:
    renew, renewals, enough = calls.renew, 0, asyncio.Event()

    async def counted(key: CallKey, claim: UUID, lease: float) -> None:
        nonlocal renewals
        await renew(key, claim, lease)
        assert await calls.hold(key, "d", uuid4(), 60) == Standing("d")
        renewals += 1
        if renewals == 6:  # twice as long as the hold
            enough.set()

    async def outlasting() -> KeptAnswer:
        await enough.wait()
        return ANSWER

    monkeypatch.setattr(calls, "renew", counted)
    assert await Repeats(calls, SystemClock(), lease=2.0).once(key, "d", outlasting, lambda answer: answer) == ANSWER


async def test_a_call_that_raises_or_is_cancelled_frees_the_key(calls: AnsweredCalls, key: CallKey) -> None:
    repeats = Repeats(calls, SystemClock())
    begun = asyncio.Event()

    async def raises() -> KeptAnswer:
        raise LookupError

    async def hangs() -> KeptAnswer:
        begun.set()
        await asyncio.Event().wait()
        return ANSWER

    with pytest.raises(LookupError):
        await repeats.once(key, "d", raises, lambda answer: answer)
    hanging = asyncio.create_task(repeats.once(key, "d", hangs, lambda answer: answer))
    await begun.wait()
    hanging.cancel()
    await asyncio.wait((hanging,))
    assert await repeats.once(key, "d", lambda: asyncio.sleep(0, ANSWER), lambda answer: answer) == ANSWER
