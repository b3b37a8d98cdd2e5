"""Whether a failed attempt is followed by another, and when: LANGUAGE 5, "Retry".

Pure: the random draw is given. The formula: delay x backoff^(tries - 1), at most `max_delay`, at least `Retry-After` (of which a day
counts); plus jitter x draw of that (of no more than `max_delay`), and no less than `SPREAD` x draw where `Retry-After` sets the wait: those
who were told to come back at one time do not come at one time.
"""

from __future__ import annotations

from agiwo.definition.compiled import Kind, Retry, Step
from agiwo.definition.durations import MAX_SECONDS
from agiwo.errors import Failure, TemplateError, is_a
from agiwo.machine.state import Instance, Run
from agiwo.machine.view import scope_of

#: Seconds that the other side can make us wait at most, so that a nonsensical `Retry-After` keeps no step for years.
MOST_ASKED = 86_400.0
#: Seconds over which those are spread, whatever their policy says, whom the other side told one moment.
SPREAD = 2.0
#: An unsafe call that provably did nothing may be tried again this often, although its policy says one attempt.
NOT_DONE_TRIES = 3


def delay_before_next(instance: Instance, run: Run, step: Step, failure: Failure, draw: float) -> float | None:
    """Seconds until the next attempt, or None if the failure is final. `run.tries` counts the attempt that has just failed."""
    policy = step.retry
    tries = policy.max_attempts
    if not step.effect.safe_to_repeat:
        if not failure.not_done:
            return None
        tries = max(tries, NOT_DONE_TRIES)
    if step.kind not in (Kind.TOOL_CALL, Kind.LLM_TASK) or run.tries >= tries or not _wanted(policy, failure):
        return None
    if policy.when is not None:
        try:
            if policy.when.evaluate(scope_of(instance, run, error=failure.to_json())) is not True:
                return None
        except TemplateError:
            return None
    return delay_of(policy, run.tries, draw, failure.retry_after)


def _wanted(policy: Retry, failure: Failure) -> bool:
    if any(is_a(failure.type, name) for name in policy.give_up_on):
        return False
    wanted = policy.retry_on
    if wanted is None:
        wanted = ("Transient", "ToolError") if policy.by_author else ("Transient",)
    return any(is_a(failure.type, name) for name in wanted)


def delay_of(policy: Retry, tries: int, draw: float, floor: float | None = None) -> float:
    """The wait in seconds after `tries` counted attempts."""
    delay = policy.delay * policy.backoff ** min(tries - 1, 64)
    if policy.max_delay is not None:
        delay = min(delay, policy.max_delay)
    asked = min(floor or 0.0, MOST_ASKED)
    least = min(asked, SPREAD) if asked >= delay else 0.0
    delay = max(delay, asked)
    spread = delay if policy.max_delay is None else min(delay, policy.max_delay)
    return min(delay + draw * max(policy.jitter * spread, least), MAX_SECONDS)
