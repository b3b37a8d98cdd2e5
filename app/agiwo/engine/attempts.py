"""Calls under way: starts them, holds them to their time, stops them, and reports exactly one outcome of each.

It decides nothing about what follows. An attempt that does not stop is fenced: it may go on, but nobody listens to it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from agiwo.clock import Clock
from agiwo.definition.compiled import Kind
from agiwo.engine.events import Event, Happening, Observe
from agiwo.errors import Failure, ValueRefused, words_of
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, NotBegun, Outcome, Stopped, Succeeded
from agiwo.ports.executor import SILENT, TIMED_OUT, Circumstances, Executor, ProbeAnswer
from agiwo.values import JSON, MAX_VALUE, check, size

#: Seconds after which a call that has not returned is no longer counted as standing between effect and commit, until it returns: the world
#: is slow, not our commit, and a node may have far more than `max_uncommitted` slow calls under way.
PATIENCE = 0.02

_UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")

Report = Callable[["Attempt", Outcome | ProbeAnswer], None]


class Attempt:
    """One call. It waits for its place, runs, returns (or is fenced), and counts until its outcome is committed."""

    __slots__ = (
        "beat",
        "began",
        "call",
        "counted",
        "ended",
        "kill",
        "limit",
        "progress",
        "report",
        "signed",
        "stop_reason",
        "task",
        "where",
    )

    def __init__(self, call: StartAttempt | StartProbe, where: Circumstances, report: Report) -> None:
        self.call = call
        self.where = where
        self.report = report
        self.task: asyncio.Task[Any] | None = None
        self.limit: asyncio.TimerHandle | None = None
        self.kill: asyncio.TimerHandle | None = None
        self.began = 0.0
        self.counted = False
        self.ended = False  # an outcome was reported, or nobody wants one any more
        self.stop_reason: str | None = None
        self.beat: asyncio.TimerHandle | None = None
        self.signed = 0.0  # when it last gave a sign, by the loop's time
        self.progress: Any = None

    @property
    def probe(self) -> bool:
        return isinstance(self.call, StartProbe)


class Attempts:
    """All calls of a node.

    At most `max_uncommitted` of them stand between effect and commit; more wait in order. `may_start` says whether anything may be started
    at all (it may not when the lease is in doubt). `cancel_grace` is the seconds that a call has for stopping.
    """

    def __init__(
        self,
        executor_for: Callable[[Kind], Executor],
        clock: Clock,
        observe: Observe | None,
        *,
        cancel_grace: float,
        max_uncommitted: int,
        may_start: Callable[[], bool],
    ) -> None:
        self._executor_for = executor_for
        self._clock = clock
        self._observe = observe
        self._grace = cancel_grace
        self._most = max_uncommitted
        self._may_start = may_start
        self._waiting: deque[Attempt] = deque()
        self._young: dict[Attempt, None] = {}  # in the order of their beginning; nothing that has ended, for it may be large
        self._sweep: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.draining = False
        self.uncommitted = 0
        self.running: set[Attempt] = set()
        self.stragglers: set[Attempt] = set()

    # ------------------------------------------------------------ starting

    def start(self, attempt: Attempt) -> None:
        """Make the call as soon as there is a place for it."""
        if self.draining:
            self._loop.call_soon(self._answer, attempt, _not_made(attempt))
        elif self.uncommitted < self._most and not self._waiting and self._may_start():
            self._begin(attempt)
        else:
            self._waiting.append(attempt)
            self.admit()

    @property
    def most(self) -> int:
        """How many calls may stand between effect and commit."""
        return self._most

    @property
    def queued(self) -> int:
        """How many calls wait for a place."""
        return len(self._waiting)

    def drain(self) -> None:
        """Make no further call; what has not begun is handed back as such, so that nobody has to wonder what became of it."""
        self.draining = True
        while self._waiting:
            attempt = self._waiting.popleft()
            self._loop.call_soon(self._answer, attempt, _not_made(attempt))

    def _answer(self, attempt: Attempt, outcome: Outcome | ProbeAnswer) -> None:
        if not attempt.ended:
            self._settle(attempt, outcome)

    def admit(self) -> None:
        """Start what waits, as far as there is room."""
        while self._waiting and self.uncommitted < self._most and self._may_start():
            attempt = self._waiting.popleft()
            if not attempt.ended:
                self._begin(attempt)
        if self._waiting and self._sweep is None:
            self._sweep = self._loop.call_later(PATIENCE, self._overlook_slow_ones)

    def _overlook_slow_ones(self) -> None:
        self._sweep = None
        before = self._loop.time() - PATIENCE
        for attempt in [*takewhile(lambda attempt: attempt.began <= before, self._young)]:
            del self._young[attempt]
            self._uncount(attempt)
        self.admit()

    def _begin(self, attempt: Attempt) -> None:
        call = attempt.call
        self._count(attempt)
        self.running.add(attempt)
        try:
            executor = self._executor_for(call.step.kind)
        except Exception as exc:
            self._loop.call_soon(self._answer, attempt, _mistake(attempt, exc))
            return
        if isinstance(call, StartProbe):
            task: asyncio.Task[Any] = self._loop.create_task(_contained(executor.probe, call, attempt.where))
            timeout = call.step.timeout
        else:
            if self._observe is not None:
                self._tell(Happening.ATTEMPT_STARTED, attempt, {"step": call.step.id, "kind": call.step.kind.value})
            where = attempt.where if call.heartbeat is None else replace(attempt.where, sign=partial(self._sign, attempt))
            task = self._loop.create_task(_contained(executor.perform, call, where))
            timeout = call.timeout
        attempt.task = task
        attempt.began = self._loop.time()
        self._young[attempt] = None
        attempt.limit = self._loop.call_at(attempt.began + timeout, self._stop, attempt, TIMED_OUT)
        if isinstance(call, StartAttempt) and call.heartbeat is not None:
            attempt.signed = attempt.began
            attempt.beat = self._loop.call_at(attempt.began + call.heartbeat, self._listen, attempt, call.heartbeat)
        task.add_done_callback(lambda task: self._returned(attempt, task))

    def _sign(self, attempt: Attempt, progress: Any) -> None:
        """May be called from any thread, so it only leaves a note."""
        attempt.signed = self._loop.time()
        attempt.progress = progress

    def _listen(self, attempt: Attempt, heartbeat: float) -> None:
        """Stop a call that has been silent for too long."""
        if attempt.ended:
            return
        if (due := attempt.signed + heartbeat) > self._loop.time():
            attempt.beat = self._loop.call_at(due, self._listen, attempt, heartbeat)
        else:
            self._stop(attempt, SILENT)

    # ------------------------------------------------------------ stopping

    def stop(self, attempt: Attempt, reason: str) -> None:
        """Abort the call; its outcome is Stopped, or what it gave if it was quicker."""
        if attempt.ended:
            return
        if attempt.task is None:
            self._settle(attempt, NotBegun())
        else:
            self._stop(attempt, reason)

    def drop(self, attempt: Attempt) -> None:
        """Abort the call and report nothing: it is no longer ours."""
        attempt.ended = True
        self._young.pop(attempt, None)
        self.committed(attempt)
        for handle in (attempt.limit, attempt.kill, attempt.beat):
            if handle is not None:
                handle.cancel()
        if attempt.task is not None and not attempt.task.done():
            self.stragglers.add(attempt)
            attempt.task.cancel()

    def _stop(self, attempt: Attempt, reason: str) -> None:
        if attempt.ended or attempt.task is None or attempt.stop_reason is not None:
            return
        attempt.stop_reason = reason
        attempt.task.cancel(reason)
        attempt.kill = self._loop.call_later(self._grace, self._fence, attempt)

    def _fence(self, attempt: Attempt) -> None:
        if attempt.ended:
            return
        self.stragglers.add(attempt)
        if self._observe is not None:
            self._tell(Happening.ATTEMPT_FENCED, attempt, {"step": attempt.call.step.id, "reason": attempt.stop_reason})
        self._settle(attempt, self._stopped(attempt, clean=False))

    # ------------------------------------------------------------ ending

    def _returned(self, attempt: Attempt, task: asyncio.Task[Any]) -> None:
        if attempt.ended:
            self.running.discard(attempt)
            self._straggler(attempt, task)
            return
        if task.cancelled():
            outcome = self._stopped(attempt, clean=True)
        elif (error := task.exception()) is not None:
            outcome = _mistake(attempt, error)
        elif attempt.stop_reason in (TIMED_OUT, SILENT):
            outcome = self._stopped(attempt, clean=True)  # it came too late, whatever it is
        else:
            outcome = _storable(task.result())
        self._settle(attempt, outcome)

    def _settle(self, attempt: Attempt, outcome: Outcome | ProbeAnswer) -> None:
        attempt.ended = True
        self.running.discard(attempt)
        self._young.pop(attempt, None)
        for handle in (attempt.limit, attempt.kill, attempt.beat):
            if handle is not None:
                handle.cancel()
        self._count(attempt)
        if self._observe is not None and not attempt.probe:
            seconds = self._loop.time() - attempt.began if attempt.task is not None else 0.0
            step = attempt.call.step
            data = {"step": step.id, "kind": step.kind.value, "tool": step.tool, "outcome": outcome, "seconds": seconds}
            self._tell(Happening.ATTEMPT_RETURNED, attempt, data)
        attempt.report(attempt, outcome)

    def _straggler(self, attempt: Attempt, task: asyncio.Task[Any]) -> None:
        self.stragglers.discard(attempt)
        outcome: Any = None if task.cancelled() else task.exception() or task.result()
        if outcome is not None and self._observe is not None:
            self._tell(Happening.STRAGGLER_RETURNED, attempt, {"outcome": outcome})

    def _stopped(self, attempt: Attempt, *, clean: bool) -> Outcome | ProbeAnswer:
        call = attempt.call
        if isinstance(call, StartProbe):
            return ProbeAnswer("unavailable")
        if attempt.stop_reason == TIMED_OUT:
            message = f"no result within {call.timeout:g} s"
            return Failed(Failure("Timeout", message, details=None if clean else {"stopped": False}))
        if attempt.stop_reason == SILENT:
            details = {"clock": "heartbeat", "progress": _kept(attempt.progress)} | ({} if clean else {"stopped": False})
            return Failed(Failure("Timeout", f"no sign of life within {call.heartbeat:g} s", details=details))
        if attempt.stop_reason is None:
            return Failed(Failure("ToolError", "the call cancelled itself"))
        return Stopped(clean)

    # ------------------------------------------------------------ counting

    def _count(self, attempt: Attempt) -> None:
        if not attempt.counted:
            attempt.counted = True
            self.uncommitted += 1

    def committed(self, attempt: Attempt) -> None:
        """Its outcome is durable, or nobody's any more."""
        if self._uncount(attempt) and self._waiting:
            self.admit()

    def _uncount(self, attempt: Attempt) -> bool:
        counted, attempt.counted = attempt.counted, False
        self.uncommitted -= counted
        return counted

    def _tell(self, name: Happening, attempt: Attempt, data: dict[str, Any]) -> None:
        if self._observe is not None:
            self._observe(Event(name, self._clock.now(), attempt.where, attempt.call.path, attempt.call.attempt, data))


def _kept(progress: Any) -> Any:
    """What a call said last, if it can be written down."""
    try:
        check(progress)
    except ValueRefused:
        return None
    return progress


def _not_made(attempt: Attempt) -> Outcome | ProbeAnswer:
    return ProbeAnswer("failed") if attempt.probe else NotBegun()


class Escaped(Exception):
    """A call raised what would have ended the process."""


async def _contained(make: Callable[..., Awaitable[Any]], *given: Any) -> Any:
    """What a call gives; no call ends the loop, and with it every other call, for itself.

    It is made in here: a task that is cancelled before its first step would leave a coroutine from outside that nobody awaits.
    """
    try:
        return await make(*given)
    except (SystemExit, KeyboardInterrupt) as exc:
        raise Escaped(f"{type(exc).__name__}: {words_of(exc)}") from None


def _mistake(attempt: Attempt, error: BaseException) -> Outcome | ProbeAnswer:
    """An executor must not raise; if it does, the step fails and says with what."""
    if attempt.probe:
        return ProbeAnswer("unavailable")
    return Failed(Failure("ToolError", _clean(f"{type(error).__name__}: {words_of(error)}")))


def _storable(outcome: object) -> Outcome | ProbeAnswer:
    """The outcome if JSON and Postgres can hold it, else the failure that says why not."""
    try:
        if isinstance(outcome, Succeeded):
            for part in (outcome.result, outcome.model, outcome.calls):
                _keepable(part)
        elif isinstance(outcome, Failed):
            _keepable(outcome.failure.details)
            _keepable(outcome.calls)
            if _UNKEEPABLE.search(outcome.failure.message):
                raise ValueRefused("the message holds a character that cannot be kept")
        elif isinstance(outcome, ProbeAnswer):
            _keepable(outcome.result)
        else:
            return Failed(Failure("ToolError", f"the executor answered with a {type(outcome).__name__}, not with an outcome"))
    except ValueRefused as exc:
        if isinstance(outcome, ProbeAnswer):
            return ProbeAnswer("unavailable")
        if isinstance(outcome, Failed):
            failure = outcome.failure
            return Failed(Failure(failure.type, _clean(failure.message), status=failure.status, not_done=failure.not_done))
        if isinstance(exc, _TooLarge):
            return Failed(Failure("PayloadTooLarge", f"the result is too large: {exc.message}"))
        return not_storable(f"{exc.message} (at {exc.pointer or 'the top'})")
    return outcome


class _TooLarge(ValueRefused):
    """A value has more bytes than one may have."""


def _keepable(value: JSON) -> None:
    if value is None:
        return
    check(value)
    if (found := size(value)) > MAX_VALUE:
        raise _TooLarge(f"it has {found:,} bytes as JSON, and one value may have {MAX_VALUE:,}")


def not_storable(reason: str) -> Failed:
    """The outcome of a call whose result cannot be written down: it is no use to try again."""
    return Failed(Failure("ValidationError", f"the result cannot be stored: {_clean(reason)}"))


def _clean(text: str) -> str:
    return _UNKEEPABLE.sub("\N{REPLACEMENT CHARACTER}", text)[:2000]
