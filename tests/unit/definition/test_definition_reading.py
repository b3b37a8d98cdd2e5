# ruff: noqa: E501 - a document a line reads best
"""The two readings of a list: what is set aside, where it starts, what leads where."""

from __future__ import annotations

import pytest

from agiwo.definition.compiled import JoinKind, Word
from kit.definitions import aside, checked, codes, edges, only, start, steps


def test_a_plain_list_is_read_in_order() -> None:
    result = steps("id: a", "id: b", "id: c")
    assert (result.reads_as, result.order) == ("in_order", ["a", "b", "c"])
    assert start(result) == ["a"]
    assert edges(result) == {("a", "b", "row"), ("b", "c", "row")}


def test_neighbours_marked_run_parallel_form_a_group_that_the_next_waits_for() -> None:
    result = steps("id: a", "id: b, run_parallel: true", "id: c, run_parallel: true", "id: d")
    assert result.workflow is not None
    body = result.workflow.body
    assert start(result) == ["a"]
    assert body["d"].join is not None
    assert (body["d"].join.kind, body["d"].join.sources) == (JoinKind.ROW, (1, 2))
    assert body["b"].join is not None
    assert body["b"].join.sources == body["c"].join.sources == (0,)  # type: ignore[union-attr]
    assert all(step.in_row for step in body)
    assert body.waiting_on == (0b0110, 0b1000, 0b1000, 0)


def test_a_row_may_begin_with_a_group() -> None:
    assert start(steps("id: a, run_parallel: true", "id: b, run_parallel: true", "id: c")) == ["a", "b"]


@pytest.mark.parametrize("key", ["on_success: c", "depends_on: [a]", "route: {choose: input.x, targets: {y: c}, default: end}"])
def test_one_link_makes_a_graph(key: str) -> None:
    assert steps("id: a, on_success: b", f"id: b, {key}", "id: c, depends_on: [b]").reads_as == "graph"


def test_a_branch_makes_a_graph() -> None:
    result = steps("id: a, type: branch, cases: [{when: input.x, goto: b}], default: end", "id: b")
    assert result.reads_as == "graph"
    assert edges(result) == {("a", "b", "route")}


def test_what_only_failures_lead_to_is_set_aside_and_does_not_make_a_graph() -> None:
    result = steps("id: a, on_failure: h", "id: b", "id: h, on_success: i", "id: i")
    assert (result.reads_as, aside(result), result.order) == ("in_order", ["h", "i"], ["a", "b", "h", "i"])
    assert edges(result) == {("a", "h", "failure"), ("a", "b", "row"), ("h", "i", "success")}


def test_handlers_are_set_aside() -> None:
    result = steps("id: a", "id: n", "id: f", head="error_handler: n\nfinally: [f]")
    assert aside(result) == ["n", "f"]
    assert result.workflow is not None
    assert (result.workflow.error_handler, result.workflow.finally_) == (1, (2,))


def test_the_first_step_is_never_set_aside() -> None:
    assert aside(steps("id: a, on_failure: a", "id: b, on_failure: a")) == []


def test_a_step_that_an_exception_jumps_back_to_is_not_set_aside() -> None:
    result = steps("id: a", "id: b, type: llm_task, task_prompt: x, requires_approval: true, on_reject: b", "id: c, on_failure: b")
    assert (aside(result), result.reads_as) == ([], "in_order")


def test_a_handler_that_goes_back_into_the_row_does_not_set_the_row_aside() -> None:
    result = steps("id: a", "id: b, on_failure: fix", "id: c", "id: fix, on_success: b")
    assert (aside(result), result.reads_as) == (["fix"], "in_order")


def test_handlers_may_loop_among_themselves() -> None:
    assert aside(steps("id: a, on_failure: h", "id: h, on_success: i", "id: i, on_success: h")) == ["h", "i"]


def test_a_set_aside_step_between_steps_of_the_row_gets_a_warning() -> None:
    result = steps("id: a, on_failure: h", "id: h", "id: b")
    assert only(result, "set_aside_between", "warning").found == "h"
    assert edges(result) == {("a", "h", "failure"), ("a", "b", "row")}


def test_a_step_that_success_leads_to_as_well_is_not_set_aside() -> None:
    result = steps("id: a, on_success: b, on_failure: b", "id: b")
    assert aside(result) == []
    assert edges(result) == {("a", "b", "success"), ("a", "b", "failure")}


def test_a_graph_starts_with_its_first_step_and_with_what_asks_for_it() -> None:
    result = steps("id: a", "id: b, depends_on: []", "id: c", "id: d, depends_on: [a, b, c]")
    assert start(result) == ["a", "b", "c"]
    assert edges(result) == {("a", "d", "depends"), ("b", "d", "depends"), ("c", "d", "depends")}


def test_a_step_that_a_jump_leads_to_does_not_start_by_itself() -> None:
    assert start(steps("id: a, on_success: b", "id: b", "id: c, depends_on: [b]")) == ["a"]


def test_the_first_step_starts_even_if_a_jump_leads_back_to_it() -> None:
    assert start(steps("id: a, on_success: b", "id: b, on_failure: a")) == ["a"]


def test_the_first_step_with_needs_does_not_start() -> None:
    assert start(steps("id: a, depends_on: [b]", "id: b")) == ["b"]


def test_a_jump_from_a_step_that_the_target_depends_on_is_left_to_the_join() -> None:
    result = steps("id: a, on_success: [b, c]", "id: b, depends_on: [a]", "id: c")
    assert edges(result) == {("a", "b", "depends"), ("a", "c", "success")}
    assert result.workflow is not None
    assert result.workflow.body["a"].on_success is not None
    assert result.workflow.body["a"].on_success.steps == (2,)


def test_next_is_a_number_in_a_graph_and_a_word_in_a_row() -> None:
    graph = steps("id: a, on_success: next", "id: b")
    assert graph.workflow is not None
    assert graph.workflow.body["a"].on_success is not None
    assert graph.workflow.body["a"].on_success.steps == (1,)
    row = steps("id: a, on_failure: next", "id: b")
    assert row.workflow is not None
    assert row.workflow.body["a"].on_failure[0].target.word is Word.NEXT
    assert aside(row) == []


def test_next_behind_the_last_step_is_refused() -> None:
    assert only(steps("id: a, on_success: b", "id: b, on_success: next"), "wrong_target").found == "next"
    assert only(steps("id: a", "id: b, on_failure: next"), "wrong_target").found == "next"


def test_all_kinds_of_edges_are_there() -> None:
    result = checked("""
        steps:
          - {id: a, type: tool_call, tool: db.query, when: input.x, on_success: [b, c], on_skip: c, on_timeout: h,
             on_failure: [{errors: [NetworkError], goto: h}, {goto: end}]}
          - {id: b, type: llm_task, task_prompt: x, requires_approval: true, on_reject: h, route: {choose: result, targets: {yes: d}, default: end}}
          - {id: c, type: set, values: {k: 1}}
          - {id: d, type: end}
          - {id: e, type: end, depends_on: [c]}
          - {id: h, type: fail, error: {message: no}, activation: each}
        context: {k: 0}
    """)
    assert result.errors == ()
    assert edges(result) == {
        ("a", "b", "success"), ("a", "c", "success"), ("a", "c", "skip"), ("a", "h", "timeout"), ("a", "h", "failure"), ("b", "h", "reject"),
        ("b", "d", "route"), ("c", "e", "depends"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["id: a, on_success: b", "id: b", "id: c"], "nothing_leads"),
        (["id: a, on_success: a", "id: b, on_success: c", "id: c, on_success: b"], "unreachable"),
        (["id: a", "id: b, depends_on: [c]", "id: c, depends_on: [b]"], "dependency_cycle"),
        (["id: a, depends_on: [a]"], "dependency_cycle"),
        (["id: a, on_success: b, run_parallel: true", "id: b"], "run_parallel_in_graph"),
        (["id: a", "id: b, when: input.x, on_skip: a"], "wrong_target"),
        (["id: a, on_skip: b", "id: b"], "never_taken"),
        (["id: a, type: set, values: {k: 1}, on_timeout: end"], "never_taken"),
        (["id: a, join: all_done"], "no_effect"),
        (["id: a", "id: e, type: end, depends_on: [a]", "id: b, depends_on: [e]"], "join_never_met"),
        (
            ["id: r, route: {choose: input.x, targets: {u: a, v: b}}", "id: a", "id: b", "id: j, depends_on: [a, b], join: all_success"],
            "join_never_met",
        ),
        (["id: a", "id: c, depends_on: [a, b], join: all_success, on_success: b", "id: b"], "join_never_met"),
        (["id: a", "id: b, depends_on: [a], join: {at_least: 2}"], "join_never_met"),
        (["id: a", "id: e, type: end, depends_on: [a]", "id: b, depends_on: [a, e], join: {at_least: 2}"], "join_never_met"),
        (
            [
                "id: r, route: {choose: input.x, targets: {u: a, v: b}}",
                "id: a",
                "id: b",
                "id: c, depends_on: []",
                "id: j, depends_on: [a, b, c], join: {at_least: 3}",
            ],
            "join_never_met",
        ),
        (["id: a", "id: b, depends_on: [a], cancel_rest: true"], "no_effect"),
        (["id: a", "id: b, depends_on: []", "id: c, depends_on: [a, b], join: any, on_success: d", "id: d, on_success: c"], "runs_twice"),
    ],
)
def test_a_graph_that_cannot_work_is_refused(lines: list[str], code: str) -> None:
    result = steps(*lines, head="context: {k: 0}")
    assert code in codes(result), [f"{p.code}: {p.message}" for p in result.problems]


@pytest.mark.parametrize(
    ("lines", "stopped"),
    [
        (["id: c, on_success: [d, e]", "id: d", "id: e", "id: j, depends_on: [b, d], join: any, cancel_rest: true"], "c"),
        (["id: c", "id: j, depends_on: [b, c], join: any, cancel_rest: true", "id: k, depends_on: [c]"], "c"),
        (["id: c", "id: j, depends_on: [b, c], join: any, cancel_rest: true", "id: k, depends_on: [c, a], join: all_success"], "c"),
        (["id: c", "id: j, depends_on: [b, c], join: any, cancel_rest: true", "id: k, depends_on: [c, a], join: all_done"], None),
        (["id: c, on_failure: f", "id: f", "id: j, depends_on: [b, c], join: any, cancel_rest: true"], None),
        (["id: c, on_success: d", "id: d", "id: j, depends_on: [b, d], join: any, cancel_rest: true"], None),
        (["id: c, on_success: [d, e]", "id: d", "id: e", "id: j, depends_on: [b, d], join: any"], None),
    ],
)
def test_a_join_that_stops_what_leads_elsewhere_too_says_so(lines: list[str], stopped: str | None) -> None:
    result = steps("id: a, on_success: [b, c]", "id: b", *lines)
    assert not codes(result)
    assert [p.found for p in result.problems if p.code == "stops_more"] == ([stopped] if stopped else [])


def test_a_cycle_is_named_with_its_path() -> None:
    result = steps("id: a, depends_on: [c]", "id: b, depends_on: [a]", "id: c, depends_on: [b]", "id: d, depends_on: []")
    problem = only(result, "dependency_cycle")
    assert len(problem.via) == 4
    assert problem.via[0] == problem.via[-1]
    assert " → ".join(problem.via) in problem.message


def test_a_route_of_exclusive_choices_may_meet_in_a_join() -> None:
    for join in ("none_failed", "any", "{at_least: 1}"):
        result = steps(
            "id: r, route: {choose: input.x, targets: {u: a, v: b}}", "id: a", "id: b", f"id: j, depends_on: [a, b], join: {join}"
        )
        assert result.errors == ()


def test_what_a_counting_join_reads_is_certain_only_if_enough_sources_bring_it() -> None:
    abc = ["id: a, depends_on: []", "id: b, depends_on: []", "id: c, depends_on: []"]
    reads = "parameters: {value: '{{ steps.a.output }}'}"
    for join, certain in (("any", False), ("{at_least: 2}", False), ("{at_least: 3}", True), ("all_success", True)):
        result = steps(*abc, f"id: j, depends_on: [a, b, c], join: {join}, {reads}")
        assert ("open_read" not in codes(result)) is certain
    both = ["id: s", "id: a, depends_on: [s]", "id: b, depends_on: [s]", "id: c, depends_on: []"]
    reads = "parameters: {value: '{{ steps.s.output }}'}"
    for join, certain in (("any", False), ("{at_least: 2}", True)):
        result = steps(*both, f"id: j, depends_on: [a, b, c], join: {join}, {reads}")
        assert ("open_read" not in codes(result)) is certain


def test_first_of_with_ways_makes_a_graph_and_without_none() -> None:
    wait = "id: w, type: wait_for_signal, first_of: [{event: x%s}, {event: y}]"
    assert steps(wait % "", "id: b").reads_as == "in_order"
    assert steps(wait % ", goto: b", "id: b").reads_as == "graph"


# What would run twice


@pytest.mark.parametrize(
    "lines",
    [
        ["id: a, on_success: [b, c]", "id: b, on_success: d", "id: c, on_success: d", "id: d"],
        ["id: a, on_success: [b, c]", "id: b, on_success: x", "id: x, on_success: d", "id: c, on_success: d", "id: d"],
        ["id: a, on_success: d", "id: b, depends_on: [], on_success: d", "id: d"],
        ["id: a", "id: b, depends_on: [a], on_success: d", "id: c, depends_on: [a], on_success: d", "id: d"],
        ["id: a, on_success: [b, c]", "id: b, on_success: c", "id: c"],
        ["id: a, run_parallel: true, on_failure: h", "id: b, run_parallel: true, on_failure: h", "id: h"],
    ],
)
def test_a_target_of_two_jumps_that_may_be_live_together_is_refused(lines: list[str]) -> None:
    problem = only(steps(*lines), "runs_twice")
    assert "would run twice" in problem.message
    assert "depends_on: [" in problem.message
    lines[-1] += ", activation: each"
    assert steps(*lines).errors == ()


@pytest.mark.parametrize(
    "lines",
    [
        ["id: r, route: {choose: input.x, targets: {u: a, v: b}}", "id: a, on_success: d", "id: b, on_success: d", "id: d"],
        ["id: a, on_success: [b, c]", "id: b", "id: c", "id: d, depends_on: [b, c], on_success: e", "id: e"],
        ["id: a, on_success: b, on_failure: h", "id: b, on_failure: h", "id: h"],
        ["id: a, on_success: b", "id: b, route: {cases: [{when: input.x, goto: a}], default: c}", "id: c"],
        ["id: a, on_failure: h", "id: b, on_failure: h", "id: c, on_failure: h", "id: h"],
        ["id: a, on_success: d, on_failure: d", "id: d"],
        ["id: a, on_success: [b, c]", "id: b", "id: c", "id: d, depends_on: [b, c], on_failure: a"],
        ["id: a, on_success: b", "id: b, when: input.x, on_skip: c, on_success: c", "id: c"],
    ],
)
def test_exclusive_ways_to_one_step_are_taken(lines: list[str]) -> None:
    result = steps(*lines)
    assert result.errors == (), [p.message for p in result.errors]


def test_writers_that_may_be_live_together_need_a_reducer() -> None:
    lines = ["id: a, run_parallel: true, writes: {k: 1}", "id: b, run_parallel: true, writes: {k: 2}"]
    assert only(steps(*lines, head="context: {k: 0}"), "concurrent_writers").via == ("a", "b")
    assert only(steps(*lines, head="state: {k: {}}"), "concurrent_writers").found == "k"
    assert steps(*lines, head="state: {k: {reducer: add}}").errors == ()
    assert steps("id: a, writes: {k: 1}", "id: b, writes: {k: 2}", head="context: {k: 0}").errors == ()
