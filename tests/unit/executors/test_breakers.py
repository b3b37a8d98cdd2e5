"""Circuit breakers of one node: what counts, what is refused, the one probe, and the news of other nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agiwo.definition.contract import Breaker
from agiwo.errors import Failure
from agiwo.executors.breakers import PROBE_PAUSE, Breakers, Pass
from agiwo.ports.breakers import BreakerChange, Circuit
from kit.engine import TestClock

CRM = Circuit("acme", "http.request", "crm.example.com")
OTHER = Circuit("acme", "http.request", "erp.example.com")
POLICY = Breaker(failures=3, open_for=10.0)
AWAY = Failure("NetworkError", "away")


class Told:
    """News that nobody carries."""

    def __init__(self) -> None:
        self.changes: list[BreakerChange] = []

    def tell(self, change: BreakerChange) -> None:
        self.changes.append(change)

    async def hear(self) -> AsyncIterator[BreakerChange]:
        for change in list(self.changes):
            yield change


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def breakers(clock: TestClock) -> Breakers:
    return Breakers(clock)


def let_in(breakers: Breakers, circuit: Circuit = CRM) -> Pass:
    leave = breakers.admit(circuit, POLICY)
    assert isinstance(leave, Pass)
    return leave


def refused(breakers: Breakers, circuit: Circuit = CRM) -> Failure:
    failure = breakers.admit(circuit, POLICY)
    assert isinstance(failure, Failure)
    return failure


def fail(breakers: Breakers, times: int, circuit: Circuit = CRM, failure: Failure = AWAY) -> None:
    for _ in range(times):
        breakers.ended(let_in(breakers, circuit), failure)


def test_a_row_of_failures_opens_the_circuit_and_the_last_failure_stays_visible(breakers: Breakers) -> None:
    """REQ-14."""
    fail(breakers, 3)
    failure = refused(breakers)
    assert failure.type == "CircuitOpen"
    assert failure.not_done
    assert failure.retry_after == 10
    assert failure.cause == {"type": "NetworkError", "message": "away"}
    assert "crm.example.com" in failure.message and "away" in failure.message
    let_in(breakers, OTHER)
    let_in(breakers, Circuit("other", CRM.name, CRM.key))


def test_a_result_ends_the_row(breakers: Breakers) -> None:
    fail(breakers, 2)
    breakers.ended(let_in(breakers), None)
    fail(breakers, 2)
    let_in(breakers)


@pytest.mark.parametrize("type", ["NetworkError", "Timeout", "Unavailable", "NodeLost"])
def test_transient_failures_count(breakers: Breakers, type: str) -> None:
    fail(breakers, 3, failure=Failure(type, "no"))
    refused(breakers)


@pytest.mark.parametrize("type", ["NotFound", "ToolError", "ValidationError", "PermissionDenied", "RateLimited", "CircuitOpen", "Own"])
def test_what_is_not_the_fault_of_the_other_side_does_not_count(breakers: Breakers, type: str) -> None:
    fail(breakers, 9, failure=Failure(type, "no"))
    let_in(breakers)


@pytest.mark.parametrize(("counts", "type"), [("ToolError", "Own"), ("RateLimited", "RateLimited"), ("NotFound", "NotFound")])
def test_a_breaker_may_count_more(breakers: Breakers, counts: str, type: str) -> None:
    policy = Breaker(failures=3, counts=(counts,))
    for _ in range(3):
        leave = breakers.admit(CRM, policy)
        assert isinstance(leave, Pass)
        breakers.ended(leave, Failure(type, "no", status=404))
    refused(breakers)


def test_a_permanent_failure_with_a_status_is_an_answer_and_one_without_says_nothing(breakers: Breakers) -> None:
    fail(breakers, 2)
    breakers.ended(let_in(breakers), Failure("ToolError", "no"))
    assert breakers.snapshot()[0].failures == 2
    breakers.ended(let_in(breakers), Failure("NotFound", "no", status=404))
    assert breakers.snapshot() == []


def test_half_open_lets_exactly_one_probe_through(breakers: Breakers, clock: TestClock) -> None:
    """REQ-14."""
    fail(breakers, 3)
    clock.advance(10)
    probe = let_in(breakers)
    for _ in range(4):
        failure = refused(breakers)
        assert failure.retry_after == PROBE_PAUSE
        assert failure.cause == {"type": "NetworkError", "message": "away"}
    assert breakers.snapshot()[0].probing
    breakers.ended(probe, None)
    for _ in range(4):
        let_in(breakers)
    assert breakers.snapshot() == []


def test_a_probe_that_fails_opens_the_circuit_for_as_long_again(breakers: Breakers, clock: TestClock) -> None:
    fail(breakers, 3)
    clock.advance(10)
    breakers.ended(let_in(breakers), Failure("Timeout", "slow"))
    assert refused(breakers).retry_after == 10
    assert refused(breakers).cause == {"type": "Timeout", "message": "slow"}
    clock.advance(10)
    breakers.ended(let_in(breakers), None)
    let_in(breakers)


def test_a_stopped_probe_says_nothing_and_frees_its_place(breakers: Breakers, clock: TestClock) -> None:
    fail(breakers, 3)
    clock.advance(10)
    breakers.gave_nothing(let_in(breakers))
    probe = let_in(breakers)
    refused(breakers)
    breakers.ended(probe, Failure("ValidationError", "nothing was sent"))
    breakers.ended(let_in(breakers), None)
    let_in(breakers)


def test_what_was_let_in_before_the_circuit_changed_says_nothing_any_more(breakers: Breakers, clock: TestClock) -> None:
    early = [let_in(breakers) for _ in range(3)]
    fail(breakers, 3)
    breakers.ended(early[0], None)
    refused(breakers)
    clock.advance(10)
    probe = let_in(breakers)
    breakers.ended(early[1], None)
    refused(breakers)
    breakers.ended(probe, None)
    breakers.ended(early[2], AWAY)
    breakers.ended(early[2], AWAY)
    assert breakers.snapshot()[0].failures == 1
    let_in(breakers)


def test_an_operator_sees_closes_and_opens_circuits_of_one_tenant(breakers: Breakers, clock: TestClock) -> None:
    fail(breakers, 3)
    fail(breakers, 1, OTHER)
    fail(breakers, 1, Circuit("other", "x"))
    first, second = breakers.snapshot("acme")
    assert (first.circuit, first.state, first.failures, first.most) == (CRM, "open", 3, 3)
    assert first.until == clock.now() + 10
    assert first.opened_at == clock.now()
    assert (second.circuit, second.state, second.failures, second.until) == (OTHER, "closed", 1, None)
    assert len(breakers.snapshot()) == 3
    assert breakers.standing() == 1
    assert breakers.reset(CRM)
    assert not breakers.reset(CRM)
    let_in(breakers)
    breakers.trip(CRM, 60, "maintenance")
    assert "maintenance" in refused(breakers).message
    assert refused(breakers).retry_after == 60
    clock.advance(60)
    breakers.ended(let_in(breakers), None)
    let_in(breakers)


def test_an_opening_and_a_closing_are_told_once_and_what_is_heard_is_not_told_on(clock: TestClock) -> None:
    here, there = Told(), Told()
    one, two = Breakers(clock, news=here), Breakers(clock, news=there)
    fail(one, 4 - 1)
    assert here.changes == [BreakerChange(CRM, "open", 10.0, {"type": "NetworkError", "message": "away"})]
    two.heard(here.changes[0])
    one.heard(here.changes[0])
    assert refused(two).cause == {"type": "NetworkError", "message": "away"}
    clock.advance(10)
    one.ended(let_in(one), None)
    assert [change.state for change in here.changes] == ["open", "closed"]
    two.heard(here.changes[1])
    let_in(two)
    assert there.changes == []


async def test_a_node_follows_the_news(clock: TestClock) -> None:
    news = Told()
    news.changes.append(BreakerChange(CRM, "open", 5.0))
    breakers = Breakers(clock, news=news)
    await breakers.listen()
    assert refused(breakers).retry_after == 5
    await Breakers(clock).listen()


def test_the_policy_of_the_operator_wins_in_what_it_says(clock: TestClock) -> None:
    breakers = Breakers(clock, policies={"http.request": {"failures": 1}})
    assert breakers.policy("http.request", POLICY) == Breaker(1, 10.0)
    assert breakers.policy("other", POLICY) == POLICY


def test_circuits_at_rest_take_no_room_and_the_others_are_bounded(clock: TestClock) -> None:
    breakers = Breakers(clock, most=10)
    for n in range(1000):
        breakers.ended(let_in(breakers, Circuit("acme", "http.request", f"ok{n}")), None)
    assert breakers.snapshot() == []
    fail(breakers, 3, CRM)
    for n in range(1000):
        fail(breakers, 1, Circuit("acme", "http.request", f"bad{n}"))
        refused(breakers)
    assert len(breakers.snapshot()) == 10


def test_a_tenant_with_very_many_circuits_takes_nobody_elses_room(clock: TestClock) -> None:
    """Hosts may come from the input of instances: whoever makes up a thousand of them forgets only circuits of its own."""
    breakers = Breakers(clock, most=10)
    other = Circuit("other", "http.request", "crm")
    fail(breakers, 3, other)
    for n in range(1000):
        fail(breakers, 3, Circuit("acme", "http.request", f"bad{n}"))
    refused(breakers, other)
    assert [state.circuit.tenant for state in breakers.snapshot()].count("acme") == 9
    assert breakers.reset(other)
    assert not breakers.reset(other)
    assert breakers.snapshot("other") == []
