"""The shares of targets that do not answer: many of them together leave the places of all others free."""

from __future__ import annotations

from agiwo.engine.slow_targets import LONGEST_REST, MOST_KNOWN, SLOW, SLOW_AT_ONCE, SlowTargets
from kit.engine import TestClock

EACH = 8


def test_what_has_waited_long_holds_no_place_of_others_and_its_target_gets_no_more() -> None:
    clock = TestClock()
    slow = SlowTargets(clock)
    under_way = [(f"hung{n}", clock.monotonic()) for n in range(4) for _ in range(EACH)]
    assert slow.shares(under_way, EACH) == (32, {f"hung{n}": EACH for n in range(4)})
    clock.advance(SLOW)
    quick = [*under_way, ("well", clock.monotonic())]
    held, busy = slow.shares(quick, EACH)
    assert (held, busy["well"]) == (1, 1)
    assert all(busy[f"hung{n}"] == EACH for n in range(4))


def test_a_target_that_never_answered_is_tried_once_after_each_rest_which_grows() -> None:
    clock = TestClock()
    slow = SlowTargets(clock)
    rests = []
    for _ in range(9):
        begun = clock.monotonic()
        clock.advance(20)
        slow.ended("hung", begun, success=False)
        rest = 0
        while slow.shares([], EACH)[1]["hung"] == EACH:
            clock.advance(1)
            rest += 1
        assert slow.shares([], EACH)[1] == {"hung": EACH - 1}
        assert slow.shares([("hung", clock.monotonic())], EACH) == (0, {"hung": EACH})
        rests.append(rest)
    assert rests == sorted(rests) and rests[0] == 1 and rests[-1] == LONGEST_REST


def test_an_answer_in_time_or_a_success_makes_a_target_like_all_others() -> None:
    clock = TestClock()
    slow = SlowTargets(clock)
    for success, after in ((True, 30.0), (False, 0.1)):
        slow.ended("hung", clock.monotonic() - 20, success=False)
        assert "hung" in slow.shares([], EACH)[1]
        slow.ended("hung", clock.monotonic() - after, success=success)
        assert slow.shares([], EACH) == (0, {})


def test_all_that_are_slow_share_a_few_places_and_what_is_known_of_them_is_bounded() -> None:
    clock = TestClock()
    slow = SlowTargets(clock)
    for n in range(MOST_KNOWN + 5):
        slow.ended(f"hung{n}", clock.monotonic() - 20, success=False)
    clock.advance(LONGEST_REST)
    held, busy = slow.shares([("hung7", clock.monotonic())], EACH)
    assert (held, len(busy)) == (0, MOST_KNOWN)
    assert sum(number == EACH - 1 for number in busy.values()) == SLOW_AT_ONCE - 1
