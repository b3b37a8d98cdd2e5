"""Decisions a second of the pure machine at 10 and at 10,000 settled steps: what is settled must cost nothing. `make bench` prints them."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pytest

from agiwo.definition.compiled import Workflow
from agiwo.machine import Instance, StartAttempt, blank, decide
from agiwo.machine.reports import AttemptEnded, Begin, Succeeded
from kit.machine import ID, compiled
from kit.measure import emit

#: A decision late in an instance's life may take this much longer than an early one. Meant to catch growth, not noise.
WORST = 3.0
HEAD = 'id: w\nversion: "1"\n'


def loop() -> Workflow:
    """One step that jumps back to itself."""
    return compiled(HEAD + "steps: [{id: a, type: tool_call, tool: t.pure, on_success: a, max_iterations: 20000}]")


def loop_with_state() -> Workflow:
    """Two steps that jump to each other, write, read each other and decide where to go on."""
    return compiled(
        HEAD
        + """
state: {n: {reducer: add}}
steps:
  - {id: a, type: tool_call, tool: t.pure, parameters: {n: "{{ state.n }}"}, writes: {n: 1}, on_success: b, max_iterations: 20000}
  - {id: b, type: tool_call, tool: t.pure, max_iterations: 20000, parameters: {x: "{{ steps.a.output }}"},
     route: {cases: [{when: state.n < 1000000, goto: a}], default: end}}
"""
    )


def loop_beside_a_person() -> Workflow:
    """A loop that writes while somebody is being asked, so that its writes stay open to be joined by another's."""
    return compiled(
        HEAD
        + """
state: {n: {reducer: add}, top: {reducer: max}}
steps:
  - {id: p, type: approval, approval: {}, depends_on: []}
  - {id: a, type: tool_call, tool: t.pure, depends_on: [], writes: {n: 1, top: "{{ steps.a.iteration }}"}, on_success: a,
     max_iterations: 20000}
  - {id: q, type: set, values: {n: 1}, depends_on: [p]}
"""
    )


def joins_in_a_loop() -> Workflow:
    """A diamond that is gone through again and again."""
    return compiled(
        HEAD
        + """
steps:
  - {id: s, type: tool_call, tool: t.pure, on_success: [a, b], max_iterations: 20000}
  - {id: a, type: tool_call, tool: t.pure, max_iterations: 20000}
  - {id: b, type: tool_call, tool: t.pure, max_iterations: 20000}
  - {id: j, type: tool_call, tool: t.pure, depends_on: [a, b], on_success: s, max_iterations: 20000}
"""
    )


def row_of_2000() -> Workflow:
    steps = "".join(f"  - {{id: s{n}, type: tool_call, tool: t.pure}}\n" for n in range(2000))
    return compiled(HEAD + "steps:\n" + steps)


def fan_of_1999() -> Workflow:
    """Everything at once, and one step that waits for all: each end looks at the join."""
    steps = "".join(f"  - {{id: s{n}, type: tool_call, tool: t.pure, depends_on: []}}\n" for n in range(1999))
    names = ", ".join(f"s{n}" for n in range(1999))
    return compiled(HEAD + "steps:\n" + steps + f"  - {{id: j, type: tool_call, tool: t.pure, depends_on: [{names}]}}\n")


class Runner:
    """Answers every call at once; only `decide` is on the clock."""

    def __init__(self, workflow: Workflow) -> None:
        begun = decide(blank(ID, workflow), Begin(1.0))
        self.instance: Instance = begun.instance
        self.calls = [c for c in begun.commands if isinstance(c, StartAttempt)]

    def go(self, count: int) -> list[float]:
        """Seconds of each of the next `count` decisions; fewer if the instance ends."""
        spent: list[float] = []
        clock = time.perf_counter
        for _ in range(count):
            if not self.calls:
                break
            call = self.calls.pop()
            report = AttemptEnded(2.0, call.path, call.attempt, Succeeded({"ok": True}))
            began = clock()
            decision = decide(self.instance, report)
            spent.append(clock() - began)
            self.instance = decision.instance
            self.calls += [c for c in decision.commands if isinstance(c, StartAttempt)]
        return spent


@pytest.mark.parametrize("workflow", [loop, loop_with_state, loop_beside_a_person, joins_in_a_loop], ids=lambda w: w.__name__)
@pytest.mark.timeout(300)
def test_a_decision_costs_the_same_at_ten_and_at_ten_thousand_settled_steps(workflow: Callable[[], Workflow]) -> None:
    runner = Runner(workflow())
    early = runner.go(400)
    runner.go(9_600)
    assert len(runner.instance.runs) > 9_000
    late = runner.go(400)
    _report(workflow.__name__, 10, early[10:], 10_000, late)


@pytest.mark.parametrize("workflow", [row_of_2000, fan_of_1999], ids=lambda w: w.__name__)
@pytest.mark.timeout(300)
def test_a_decision_costs_the_same_at_the_begin_and_at_the_end_of_a_large_definition(workflow: Callable[[], Workflow]) -> None:
    runner = Runner(workflow())
    spent = runner.go(2_000)
    assert len(spent) >= 1_999
    _report(workflow.__name__, 10, spent[10:310], 1_700, spent[-302:-2])


def _report(name: str, few: int, early: list[float], many: int, late: list[float]) -> None:
    first, last = median(early), median(late)
    for settled, seconds in ((few, first), (many, last)):
        emit("decisions", name, settled=settled, decisions_per_s=round(1 / seconds), us_per_decision=round(seconds * 1e6, 1))
    assert last / first <= WORST, f"{last * 1e6:.0f} us at {many} settled steps, {first * 1e6:.0f} us at {few}"
