"""Signals from outside: to one instance, or to all live ones of a correlation key.

It stores them where the instance's owner finds them, whether anybody waits for them yet or not; which step takes one the machine decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from agiwo.clock import Clock
from agiwo.errors import InvalidInput, NotFound, Overloaded, Problem, TooLarge, ValueRefused
from agiwo.machine.signals import longest_kept
from agiwo.machine.state import ENDED_INSTANCE
from agiwo.ports.queries import Queries
from agiwo.ports.records import Posted, Records
from agiwo.service.callers import OPERATOR, Caller
from agiwo.service.changes import PLAIN, Change
from agiwo.service.instances import Instances, not_found
from agiwo.service.steering import conflict
from agiwo.values import check, encode

#: Signals that nobody has taken yet, an instance; characters of a payload as JSON; instances that one call may reach.
MOST_KEPT = 1000
LONGEST_PAYLOAD = 256_000
MOST_RECEIVERS = 1000
LONGEST_EVENT, LONGEST_ID = 200, 200


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a signal at one instance: accepted (now or before, under the same id), ended, or full."""

    instance: UUID
    result: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal and what became of it, by instance in the order in which they were started."""

    id: str
    event: str
    receipts: tuple[Receipt, ...]


class Signalling:
    """The verb `send`; `poke` tells the engine of this process that an inbox has something."""

    def __init__(self, queries: Queries, records: Records, instances: Instances, clock: Clock, poke: Callable[[UUID], None]) -> None:
        self._queries = queries
        self._records = records
        self._instances = instances
        self._clock = clock
        self._poke = poke

    async def send(
        self,
        caller: Caller,
        *,
        event: str,
        payload: Any = None,
        instance: UUID | None = None,
        correlation_key: str | None = None,
        id: str | None = None,
        channel: str = "api",
        change: Change = PLAIN,
    ) -> Sent:
        """Send a signal to `instance`, or to every live instance of the tenant that has `correlation_key`; exactly one of them is given.

        The same `id` counts once for an instance and gets the same answer. Raises Denied for a caller who is no operator, InvalidInput and
        TooLarge for a signal that cannot be kept, NotFound for an unknown instance or where nobody has the key (`no_receiver`); for one
        instance also Conflict if it has ended and Overloaded if it keeps too many signals.
        """
        caller.need(OPERATOR)
        _check(event, payload, id)
        id = id or str(uuid4())
        body = {"id": id, "event": event, "payload": payload, "by": caller.principal, "channel": channel}
        if instance is not None:
            receipt = await self._put(caller, instance, body, change)
            if receipt.result == "ended":
                raise conflict(await self._instances.load(caller, instance), "the instance has ended", "ended")
            if receipt.result == "full":
                raise Overloaded(f"the instance keeps {MOST_KEPT} signals that nobody has taken", code="too_many_signals")
            return Sent(id, event, (receipt,))
        assert correlation_key is not None
        found = await self._queries.live_with(caller.tenant, correlation_key, MOST_RECEIVERS + 1)
        if not found:
            raise NotFound("no live instance has this correlation key", code="no_receiver")
        if len(found) > MOST_RECEIVERS:
            raise InvalidInput(f"more than {MOST_RECEIVERS} live instances have this correlation key", code="too_many_receivers")
        return Sent(id, event, tuple([await self._put(caller, one, body, change) for one in found]))

    async def _put(self, caller: Caller, instance: UUID, body: dict[str, Any], change: Change) -> Receipt:
        name = f"signal/{body['id']}"
        if (await self._instances.row(caller, instance)).status in ENDED_INSTANCE:
            return await self._ended(caller, instance, body["id"])
        if await self._is_full(caller, instance):
            known = await self._records.posted(caller.tenant, instance, name) is not None
            return Receipt(instance, "accepted" if known else "full")
        if change.dry:
            return Receipt(instance, "accepted")
        posted = await self._records.put_inbox(instance, caller.tenant, "signal", body, name)
        if posted is Posted.UNKNOWN:
            raise not_found()
        if posted is Posted.ENDED:
            return await self._ended(caller, instance, body["id"])
        if posted is Posted.ACCEPTED:
            said = {"event": body["event"], "id": body["id"], "reason": change.reason, "channel": body["channel"]}
            await self._records.audit(caller.tenant, caller.principal, "signal", f"instance/{instance}", said)
            self._poke(instance)
        return Receipt(instance, "accepted")

    async def _ended(self, caller: Caller, instance: UUID, id: str) -> Receipt:
        """A repetition is answered as before, though the instance may have ended by that very signal."""
        held = await self._instances.load(caller, instance)
        return Receipt(instance, "accepted" if id in held.signals or id in held.signals_used else "ended")

    async def _is_full(self, caller: Caller, instance: UUID) -> bool:
        """Whether too many signals wait there. Only an instance that was ever sent so many is loaded to be counted."""
        if await self._records.count_inbox(caller.tenant, instance, "signal", MOST_KEPT) < MOST_KEPT:
            return False
        # First what waits, then what is kept: one that is taken up in between is rather counted twice than not at all.
        waiting = await self._records.count_inbox(caller.tenant, instance, "signal", MOST_KEPT, waiting=True)
        held = await self._instances.load(caller, instance)
        since = self._clock.now() - longest_kept(held)
        return waiting + sum(signal.at >= since for signal in held.signals.values()) >= MOST_KEPT


def _check(event: str, payload: Any, id: str | None) -> None:
    problems: list[Problem] = []
    for name, value, longest in (("event", event, LONGEST_EVENT), ("id", id, LONGEST_ID)):
        if value is not None and not 1 <= len(value) <= longest:
            problems.append(Problem("wrong_value", f"expected 1 to {longest} characters", f"/{name}", found=value[:80]))
    try:
        check({"event": event, "id": id, "payload": payload})
    except ValueRefused as exc:
        problems.append(Problem(exc.code, exc.message, exc.pointer))
    if problems:
        raise InvalidInput("the signal cannot be kept", problems=problems)
    if len(encode(payload)) > LONGEST_PAYLOAD:
        raise TooLarge(f"a payload may have at most {LONGEST_PAYLOAD} characters as JSON", limit=LONGEST_PAYLOAD)
