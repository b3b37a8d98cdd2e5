"""Circuit breakers: after some failures in a row the calls of a target are refused for a while, then one of them probes it.

pybreaker is the state machine of each circuit, and is told outcomes, never given a call: it would take the making of a coroutine for its
success. What lets calls in, and the one probe, is here. Nothing waits, and nothing is kept of a circuit at rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from itertools import chain
from typing import Any

import pybreaker

from agiwo.clock import Clock
from agiwo.definition.contract import Breaker
from agiwo.errors import Failure, is_a
from agiwo.ports.breakers import CLOSED, HALF_OPEN, OPEN, BreakerChange, BreakerNews, BreakerState, Circuit

#: Circuits of one node; beyond, the one is forgotten that was used longest ago by the tenant that has the most, so that no tenant takes
#: another's room.
MOST = 10_000
#: Seconds, at most, after which a call that was refused beside a probe may ask again.
PROBE_PAUSE = 1.0
_WORDS = {pybreaker.STATE_CLOSED: CLOSED, pybreaker.STATE_OPEN: OPEN, pybreaker.STATE_HALF_OPEN: HALF_OPEN}


class Verdict(Enum):
    """What an outcome says of the other side."""

    WORKS = "works"
    FAILS = "fails"
    NOTHING = "nothing"


def verdict_of(failure: Failure | None, counts: Sequence[str] = ()) -> Verdict:
    """What a call's end says: None is a result. Who refuses by a status has answered; who limits the rate lives.

    Types in `counts` say that the other side fails, whatever they say otherwise.
    """
    if failure is None:
        return Verdict.WORKS
    if any(is_a(failure.type, name) for name in counts):
        return Verdict.FAILS
    if is_a(failure.type, "RateLimited"):
        return Verdict.NOTHING
    if is_a(failure.type, "Transient"):
        return Verdict.FAILS
    return Verdict.WORKS if failure.status is not None else Verdict.NOTHING


class Pass:
    """Leave for one call. It must be given back, by `ended` or `gave_nothing`."""

    __slots__ = ("circuit", "number", "over", "policy")

    def __init__(self, circuit: Circuit, policy: Breaker, number: int) -> None:
        self.circuit = circuit
        self.policy = policy
        self.number = number
        self.over = False


class _Failed(Exception):
    """What the state machine is told of a failure."""


class _Held:
    """A circuit that is not at rest. `since` is the number of its last change: what was let in before says nothing any more."""

    __slots__ = ("error", "machine", "opened_at", "probe", "since", "until")

    def __init__(self, policy: Breaker) -> None:
        self.machine = pybreaker.CircuitBreaker(
            policy.failures,
            policy.open_for,
            state_storage=pybreaker.CircuitMemoryStorage(pybreaker.STATE_CLOSED),
            throw_new_error_on_trip=False,
        )
        self.since = 0
        self.until = 0.0
        self.opened_at = 0.0
        self.probe: Pass | None = None
        self.error: Mapping[str, Any] | None = None

    @property
    def state(self) -> str:
        return _WORDS[self.machine.current_state]


class Breakers:
    """All circuits of one node.

    `policies` are the operator's own, by name; they win over what a tool declares. `news` tells other nodes; without it each counts for
    itself.
    """

    def __init__(
        self, clock: Clock, *, policies: Mapping[str, Mapping[str, Any]] | None = None, news: BreakerNews | None = None, most: int = MOST
    ) -> None:
        self._clock = clock
        self._policies = policies or {}
        self._news = news
        self._most = most
        self._tenants: dict[str, OrderedDict[Circuit, _Held]] = {}
        self._count = 0

    # ------------------------------------------------------------ calls

    def policy(self, name: str, declared: Breaker) -> Breaker:
        """What counts for the circuits of this name."""
        own = self._policies.get(name)
        if own is None:
            return declared
        return replace(declared, **own)

    def admit(self, circuit: Circuit, policy: Breaker) -> Pass | Failure:
        """Leave for a call, or the failure that it gets instead, with the seconds after which it may ask again."""
        self._count += 1
        leave = Pass(circuit, policy, self._count)
        held = self._find(circuit)
        if held is None or held.state == CLOSED:
            return leave
        self._tenants[circuit.tenant].move_to_end(circuit)
        left = held.until - self._clock.monotonic()
        if left > 0:
            return _refusal(circuit, held, left, "open")
        if held.probe is not None:
            return _refusal(circuit, held, min(policy.open_for, PROBE_PAUSE), "being probed")
        if held.state == OPEN:
            held.machine.half_open()
            held.since = self._count
        held.probe = leave
        return leave

    def ended(self, leave: Pass, failure: Failure | None) -> None:
        """The call has ended with a result (None) or this failure. A second time it says nothing."""
        self._learn(leave, verdict_of(failure, leave.policy.counts), failure)

    def gave_nothing(self, leave: Pass) -> None:
        """The call was stopped: nothing was learned, and another may probe."""
        self._learn(leave, Verdict.NOTHING, None)

    def _learn(self, leave: Pass, verdict: Verdict, failure: Failure | None) -> None:
        if leave.over:
            return
        leave.over = True
        held = self._find(leave.circuit)
        probe = held is not None and held.probe is leave
        if held is not None and not probe and (held.since > leave.number or held.state != CLOSED):
            return
        if held is not None and probe:
            held.probe = None
        if verdict is Verdict.WORKS and held is not None:
            held.machine.call(lambda: None)
            self._forget(leave.circuit)
            if probe:
                self._tell(BreakerChange(leave.circuit, CLOSED))
        elif verdict is Verdict.FAILS and failure is not None:
            self._failed(leave, held or self._hold(leave.circuit, leave.policy), failure)

    def _failed(self, leave: Pass, held: _Held, failure: Failure) -> None:
        def fail() -> None:
            raise _Failed

        held.error = {"type": failure.type, "message": failure.message, **({} if failure.status is None else {"status": failure.status})}
        held.machine.fail_max = leave.policy.failures
        with suppress(_Failed):
            held.machine.call(fail)
        if held.state == OPEN:
            self._opened(leave.circuit, held, leave.policy.open_for)
            self._tell(BreakerChange(leave.circuit, OPEN, leave.policy.open_for, held.error))

    # ------------------------------------------------------------ circuits

    def _find(self, circuit: Circuit) -> _Held | None:
        circuits = self._tenants.get(circuit.tenant)
        return None if circuits is None else circuits.get(circuit)

    def _hold(self, circuit: Circuit, policy: Breaker) -> _Held:
        held = self._tenants.setdefault(circuit.tenant, OrderedDict())[circuit] = _Held(policy)
        if sum(len(circuits) for circuits in self._tenants.values()) > self._most:
            most = max(self._tenants, key=lambda tenant: len(self._tenants[tenant]))
            self._forget(next(iter(self._tenants[most])))
        return held

    def _forget(self, circuit: Circuit) -> None:
        del self._tenants[circuit.tenant][circuit]
        if not self._tenants[circuit.tenant]:
            del self._tenants[circuit.tenant]

    def _all(self) -> Iterator[tuple[Circuit, _Held]]:
        return chain.from_iterable(circuits.items() for circuits in self._tenants.values())

    def _opened(self, circuit: Circuit, held: _Held, seconds: float) -> None:
        held.since = self._count = self._count + 1
        held.until = self._clock.monotonic() + seconds
        held.opened_at = self._clock.now()
        held.probe = None

    def _open(self, circuit: Circuit, seconds: float, error: Mapping[str, Any] | None) -> None:
        held = self._find(circuit) or self._hold(circuit, self.policy(circuit.name, Breaker()))
        held.machine.open()
        held.error = error or held.error
        self._opened(circuit, held, seconds)

    def _tell(self, change: BreakerChange) -> None:
        if self._news is not None:
            self._news.tell(change)

    # ------------------------------------------------------------ other nodes

    async def listen(self) -> None:
        """Follow what other nodes tell, for ever; returns at once without news."""
        if self._news is not None:
            async for change in self._news.hear():
                self.heard(change)

    def heard(self, change: BreakerChange) -> None:
        """Another node has learned something; it is not told on. Our own news, heard again, changes nothing."""
        held = self._find(change.circuit)
        if change.state == CLOSED:
            if held is not None and held.state != CLOSED:
                self._forget(change.circuit)
        elif held is None or held.state == CLOSED:
            self._open(change.circuit, change.seconds, change.error)

    # ------------------------------------------------------------ people

    def snapshot(self, tenant: str | None = None) -> list[BreakerState]:
        shift = self._clock.now() - self._clock.monotonic()
        found = [
            BreakerState(
                circuit,
                held.state,
                held.machine.fail_counter,
                held.machine.fail_max,
                None if held.state == CLOSED else held.opened_at,
                None if held.state == CLOSED else held.until + shift,
                held.probe is not None,
                held.error,
            )
            for circuit, held in self._all()
            if tenant is None or circuit.tenant == tenant
        ]
        return sorted(found, key=lambda state: (state.circuit.tenant, state.circuit.name, state.circuit.key))

    def reset(self, circuit: Circuit) -> bool:
        self._tell(BreakerChange(circuit, CLOSED))
        if self._find(circuit) is None:
            return False
        self._forget(circuit)
        return True

    def trip(self, circuit: Circuit, seconds: float, reason: str) -> None:
        error = {"type": "CircuitOpen", "message": reason}
        self._open(circuit, seconds, error)
        self._tell(BreakerChange(circuit, OPEN, seconds, error))

    def standing(self) -> int:
        """How many circuits are not closed."""
        return sum(held.state != CLOSED for _, held in self._all())


def _refusal(circuit: Circuit, held: _Held, seconds: float, how: str) -> Failure:
    of = f"{circuit.name} ({circuit.key})" if circuit.key else circuit.name
    error = held.error
    last = f"; last failure: {error['type']}: {error['message']}" if error is not None else ""
    return Failure(
        "CircuitOpen",
        f"the circuit of {of} is {how}, and the call was not made{last}",
        not_done=True,
        retry_after=seconds,
        details={"name": circuit.name, "key": circuit.key, "failures": held.machine.fail_counter},
        cause=error,
    )
