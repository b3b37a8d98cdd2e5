"""Which targets of deliveries keep us waiting for an answer: they get a small share, so that many of them together hold up nobody else.

It counts time and answers, and neither delivers nor asks the storage; what it knows is of this process alone.
"""

from __future__ import annotations

from agiwo.clock import Clock

SLOW = 2.0  # seconds without an answer after which a target counts as slow
SLOW_AT_ONCE = 16  # deliveries under way to all slow targets together; each of them has one
FIRST_REST, LONGEST_REST = 1.0, 60.0  # seconds in which a target that never answered is left alone
MOST_KNOWN = 1000


class SlowTargets:
    """What this process learned of slow targets; any answer in time, and any success, makes a target like all others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent: dict[str, tuple[int, float]] = {}  # times in a row without an answer, and when its rest ends

    def ended(self, target: str, begun: float, success: bool) -> None:
        """A delivery that began at `begun` (monotonic seconds) has ended."""
        now = self._clock.monotonic()
        times, _ = self._silent.pop(target, (0, 0.0))
        if success or now - begun < SLOW:
            return
        self._silent[target] = times + 1, now + min(FIRST_REST * 2.0 ** min(times, 20), LONGEST_REST)
        if len(self._silent) > MOST_KNOWN:
            del self._silent[next(iter(self._silent))]

    def shares(self, under_way: list[tuple[str, float]], each: int) -> tuple[int, dict[str, int]]:
        """How many of what is `under_way` (targets, and when each began) hold a place of quick targets, and what counts as busy by target.

        A slow target that may have one counts as if all but one of `each` were under way, one that may have none as if all were.
        """
        now = self._clock.monotonic()
        counted: dict[str, int] = {}
        for target, _ in under_way:
            counted[target] = counted.get(target, 0) + 1
        slow = {target for target, begun in under_way if now - begun >= SLOW} | self._silent.keys()
        held = sum(number for target, number in counted.items() if target in slow)
        free = SLOW_AT_ONCE - held
        busy = {target: number for target, number in counted.items() if target not in slow}
        for target in sorted(slow, key=lambda target: self._silent.get(target, (0, 0.0))[1]):
            may = free > 0 and target not in counted and self._silent[target][1] <= now
            busy[target] = each - 1 if may else each
            free -= may
        return len(under_way) - held, busy
