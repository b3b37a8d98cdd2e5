"""What an operator sees of circuits and does with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from agiwo.definition.contract import Breaker
from agiwo.errors import Denied, Failure, InvalidInput, NotFound
from agiwo.executors.breakers import Breakers, Pass
from agiwo.ports.breakers import Circuit
from agiwo.ports.records import Records
from agiwo.service.callers import OPERATOR, Caller
from agiwo.service.changes import PLAIN, Change
from agiwo.service.circuits import Circuits, circuit_view
from kit.engine import TestClock

OPS = Caller("acme", "user:ann@example.com", frozenset({OPERATOR}))
WATCH = Caller("acme", "key:watch", frozenset({"viewer"}))
ELSE = Caller("else", "user:eve@example.com", frozenset({OPERATOR}))


class Journal:
    """The part of the records that is written to."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    async def audit(self, tenant: str, actor: str, action: str, object: str, data: Mapping[str, Any] | None = None) -> None:
        self.rows.append((tenant, actor, action, object, data))


@pytest.fixture
def breakers() -> Breakers:
    made = Breakers(TestClock())
    for key in ("b", "a", "c"):
        for _ in range(5):
            leave = made.admit(Circuit("acme", "http.request", key), Breaker())
            assert isinstance(leave, Pass)
            made.ended(leave, Failure("Unavailable", "no", status=503))
    return made


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def circuits(breakers: Breakers, journal: Journal) -> Circuits:
    return Circuits(breakers, cast("Records", journal), lambda: ["http.request", "mail.send"])


def keys(circuits: Circuits, caller: Caller, after: tuple[str, str] | None = None, limit: int = 10) -> list[str]:
    return [state.circuit.key for state in circuits.listed(caller, after, limit)]


def test_circuits_are_listed_page_by_page_and_by_tenant(circuits: Circuits) -> None:
    assert keys(circuits, WATCH, limit=2) == ["a", "b"]
    assert keys(circuits, WATCH, ("http.request", "b"), 2) == ["c"]
    assert keys(circuits, ELSE) == []


def test_a_circuit_is_shown_with_its_last_failure_and_its_next_probe(circuits: Circuits) -> None:
    assert circuit_view(circuits.listed(OPS, None, 1)[0]) == {
        "name": "http.request",
        "key": "a",
        "state": "open",
        "failures": 5,
        "opens_at": 5,
        "opened_at": "2027-01-15T08:00:00.000000Z",
        "next_probe_at": "2027-01-15T08:00:30.000000Z",
        "probing": False,
        "last_error": {"type": "Unavailable", "message": "no", "status": 503},
        "actions": ["reset", "open"],
    }


async def test_a_reset_closes_the_circuit_and_is_noted(circuits: Circuits, breakers: Breakers, journal: Journal) -> None:
    await circuits.reset(OPS, "http.request", "a", Change("mended", dry=True))
    assert keys(circuits, OPS) == ["a", "b", "c"]
    await circuits.reset(OPS, "http.request", "a", Change("mended"))
    assert keys(circuits, OPS) == ["b", "c"]
    assert isinstance(breakers.admit(Circuit("acme", "http.request", "a"), Breaker()), Pass)
    assert journal.rows == [("acme", OPS.principal, "circuit_reset", "circuit/http.request/a", {"reason": "mended"})]


async def test_a_circuit_is_held_open_with_the_reason_in_every_refusal(circuits: Circuits, breakers: Breakers, journal: Journal) -> None:
    await circuits.hold_open(OPS, "mail.send", "", 60, Change("moving", dry=True))
    assert isinstance(breakers.admit(Circuit("acme", "mail.send"), Breaker()), Pass)
    await circuits.hold_open(OPS, "mail.send", "", 60, Change("moving"))
    refused = breakers.admit(Circuit("acme", "mail.send"), Breaker())
    assert isinstance(refused, Failure)
    assert "held open by user:ann@example.com: moving" in refused.message
    assert journal.rows[0][2:] == ("circuit_open", "circuit/mail.send/", {"reason": "moving", "seconds": 60})


@pytest.mark.parametrize("dry", [False, True])
async def test_what_is_not_there_and_what_is_not_allowed_is_refused(circuits: Circuits, dry: bool) -> None:
    change = Change(dry=dry)
    for caller, name, key in ((OPS, "http.request", "z"), (OPS, "nothing", "a"), (ELSE, "http.request", "a")):
        with pytest.raises(NotFound):
            await circuits.reset(caller, name, key, change)
    with pytest.raises(Denied):
        await circuits.reset(WATCH, "http.request", "a", change)
    with pytest.raises(Denied):
        await circuits.hold_open(WATCH, "http.request", "a", 5, change)
    for seconds in (0, -1, 1e9, float("nan")):
        with pytest.raises(InvalidInput):
            await circuits.hold_open(OPS, "http.request", "a", seconds, PLAIN)
