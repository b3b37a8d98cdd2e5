"""Jumps (LANGUAGE 2): what they start, iterations that never overlap, bounds on the way back, routes by value."""

from __future__ import annotations

import pytest

from agiwo.machine.reports import Outcome, Succeeded
from kit.machine import Drive, failing
from kit.words import data, flow, order, records


def test_on_success_starts_its_target_and_nothing_falls_through() -> None:
    drive = flow("id: a, on_success: c", "id: b, depends_on: [c]", "id: c", "id: d, depends_on: []").to_end()
    assert sorted(drive.called()) == ["a", "b", "c", "d"]
    assert drive.called()[:2] == ["a", "d"]


def test_a_list_of_targets_starts_together() -> None:
    drive = flow("id: a, on_success: [b, c]", "id: b", "id: c")
    drive.finish("a")
    assert sorted(drive.running) == ["b", "c"]


def test_a_jump_does_not_wait_for_depends_on_and_uses_up_that_round() -> None:
    drive = flow("id: a, on_success: [d, x]", "id: x, on_success: y", "id: y", "id: d, depends_on: [y]")
    drive.finish("a")
    assert sorted(drive.running) == ["d", "x"], "the jump starts d before y"
    drive.to_end()
    assert drive.called().count("d") == 1
    assert "d~2" not in drive.called()


def test_a_jump_along_an_edge_of_depends_on_says_it_twice_and_the_join_decides() -> None:
    drive = flow("id: a, on_success: c", "id: b, depends_on: []", "id: c, depends_on: [a, b]")
    drive.finish("a")
    assert list(drive.running) == ["b"]
    drive.finish("b")
    assert list(drive.running) == ["c"]
    drive.to_end()
    assert drive.called() == ["a", "b", "c"]


def test_a_failure_route_along_an_edge_of_depends_on_leaves_the_join_to_decide() -> None:
    done = flow("id: a, on_failure: c", "id: c, depends_on: [a], join: all_done", world=failing(a="ToolError")).to_end()
    assert done.called() == ["a", "c"]
    kept = flow("id: a, on_failure: c", "id: c, depends_on: [a]", world=failing(a="ToolError")).to_end()
    assert kept.statuses() == {"a": "FAILED", "c": "SKIPPED"}
    assert kept.instance.status == "SUCCESS"


def test_a_jump_back_is_a_new_iteration_with_a_path_and_key_of_its_own() -> None:
    drive = flow("id: a, on_success: b", "id: b, route: {cases: [{when: 'steps.b.iteration < 3', goto: a}], default: end}").to_end()
    assert drive.called() == ["a", "b", "a~2", "b~2", "a~3", "b~3"]
    keys = [call.idempotency_key for call in drive.calls]
    assert len(set(keys)) == 6


def test_a_jump_to_a_live_step_waits_for_its_end() -> None:
    drive = flow("id: a, on_success: [t, b]", "id: b, on_success: t", "id: t, activation: each")
    drive.finish("a")
    drive.finish("b")
    assert list(drive.running) == ["t"]
    assert data(drive, "jump.waiting")["target"] == "t"
    drive.finish("t")
    assert list(drive.running) == ["t~2"]
    drive.to_end()
    assert drive.instance.status == "SUCCESS"


def test_two_jumps_that_wait_for_one_step_run_it_twice_more() -> None:
    drive = flow("id: a, on_success: [t, b, c]", "id: b, on_success: t", "id: c, on_success: t", "id: t, activation: each, on_success: end")
    drive.finish("a")
    drive.finish("b")
    drive.finish("c")
    drive.to_end()
    assert [path for path in drive.called() if path.startswith("t")] == ["t", "t~2", "t~3"]


def test_a_fresh_jump_does_not_swallow_one_that_waits() -> None:
    once = "route: {cases: [{when: 'steps.t.iteration == 1', goto: t}], default: end}"
    drive = flow("id: a, on_success: [t, b]", "id: b, on_success: t", f"id: t, activation: each, {once}")
    drive.finish("a")
    drive.finish("b")
    drive.to_end()
    assert [path for path in drive.called() if path.startswith("t")] == ["t", "t~2", "t~3"]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_max_iterations_lets_n_run_and_one_more_fails(limit: int) -> None:
    drive = flow(f"id: a, max_iterations: {limit}, on_success: b", "id: b, on_success: a").to_end()
    assert drive.instance.status == "FAILED"
    assert [path for path in drive.called() if path.startswith("a")] == ["a", *(f"a~{n}" for n in range(2, limit + 1))]
    assert drive.instance.ending is not None
    assert drive.instance.ending.error is not None
    assert drive.instance.ending.error["type"] == "LoopLimitExceeded"


def test_a_loop_without_a_bound_of_its_own_has_a_hundred() -> None:
    drive = flow("id: a, on_success: a").to_end()
    assert len(drive.calls) == 100
    assert drive.instance.status == "FAILED"


def test_a_route_takes_a_loop_limit_once_and_then_the_instance_ends() -> None:
    drive = flow(
        "id: a, max_iterations: 2, on_success: b, on_failure: [{errors: [LoopLimitExceeded], goto: out}]", "id: b, on_success: a", "id: out"
    )
    drive.to_end()
    assert drive.instance.status == "SUCCESS"
    assert drive.called()[-1] == "out"
    # The route leads back to the step that is over its bound.
    back = flow("id: a, max_iterations: 2, on_success: a, on_failure: a").to_end()
    assert back.instance.status == "FAILED"
    assert [r.path for r in records(back, "step.failed")] == ["a~3", "a~4"]


def test_a_join_that_allows_failure_does_not_take_a_step_over_its_bound_again_and_again() -> None:
    drive = flow("id: a, max_iterations: 1", "id: j, depends_on: [a], join: all_done, on_success: a").to_end()
    assert drive.instance.status == "FAILED"
    assert len(drive.called()) < 6


def test_choose_compares_its_text_with_the_labels() -> None:
    def world(path: str, attempt: int) -> Outcome:
        return Succeeded({"n": 2, "flag": True})

    route = "route: {choose: result.n, targets: {'1': b, '2': c}, default: d}"
    drive = flow(f"id: a, {route}", "id: b", "id: c", "id: d", world=world).to_end()
    assert drive.called() == ["a", "c"]
    assert data(drive, "step.succeeded", "a")["route"] == {"choose": "result.n", "value": "2"}
    assert drive.instance.not_run == {"b": "not_chosen", "d": "not_chosen"}
    flag = "route: {choose: result.flag, targets: {'true': b, 'false': c}}"
    assert flow(f"id: a, {flag}", "id: b", "id: c", world=world).to_end().called() == ["a", "b"]


def test_choose_without_a_label_takes_the_default_and_without_one_fails() -> None:
    route = "choose: steps.a.output.path, targets: {x: b}"
    drive = flow(f"id: a, route: {{{route}, default: c}}", "id: b", "id: c").to_end()
    assert drive.called() == ["a", "c"]
    assert data(drive, "step.succeeded", "a")["route"]["default"] is True
    lost = flow(f"id: a, route: {{{route}}}", "id: b").to_end()
    assert lost.instance.runs["a"].error is not None
    assert lost.instance.runs["a"].error["type"] == "NoMatchingCase"
    assert "x" in lost.instance.runs["a"].error["message"], "the error names what there is"


def test_the_first_true_case_wins_and_its_number_is_recorded() -> None:
    cases = "cases: [{when: 'input.n > 5', goto: b}, {when: 'input.n > 1', goto: c}, {when: 'input.n > 0', goto: d}]"
    drive = flow(f"id: a, type: branch, {cases}, default: end", "id: b", "id: c", "id: d", input={"n": 3}).to_end()
    assert drive.called() == ["c"]
    assert data(drive, "step.succeeded", "a")["route"] == {"case": 1, "when": "input.n > 1"}


def test_a_branch_without_match_takes_its_default_or_fails() -> None:
    cases = "cases: [{when: 'input.n > 5', goto: b}]"
    assert flow(f"id: a, type: branch, {cases}, default: end", "id: b", input={"n": 0}).instance.status == "SUCCESS"
    assert flow(f"id: a, type: branch, {cases}, default: next", "id: c", "id: b", input={"n": 0}).to_end().called() == ["c"]
    lost = flow(f"id: a, type: branch, {cases}", "id: b", input={"n": 0})
    assert lost.instance.status == "FAILED"


def test_continue_on_a_branch_without_match_completes_the_path() -> None:
    drive = flow("id: a, type: branch, cases: [{when: 'input.n > 5', goto: b}], on_failure: continue", "id: b", input={"n": 0})
    assert drive.instance.status == "SUCCESS"
    assert drive.statuses() == {"a": "FAILED"}


def test_a_case_that_leads_to_fail_fails_the_instance() -> None:
    drive = flow("id: a, type: branch, cases: [{when: 'input.bad', goto: fail}], default: b", "id: b", input={"bad": True})
    assert drive.instance.status == "FAILED"
    assert drive.instance.ending is not None
    assert drive.instance.ending.error == {"type": "ToolError", "message": "a leads to `fail`", "step": "a", "path": "a"}


def test_a_condition_must_give_true_or_false() -> None:
    drive = flow("id: a, when: input.n", input={"n": 1})
    assert drive.instance.runs["a"].error is not None
    assert drive.instance.runs["a"].error["type"] == "TemplateError"
    assert drive.called() == []


def test_a_guard_that_does_not_hold_fails_before_anything_is_called() -> None:
    drive = flow("id: a, guard: input.n > 1, on_failure: [{errors: [GuardFailed], goto: b}]", "id: b", input={"n": 1})
    assert data(drive, "step.failed", "a")["evidence"] == {"expression": "input.n > 1", "values": {"input.n": 1}}
    assert drive.to_end().called() == ["b"]


def test_when_leaves_the_expression_and_its_values_in_the_record() -> None:
    drive = flow("id: a, when: input.n > 1 and input.name == 'x'", input={"n": 1, "name": "y"})
    assert data(drive, "step.skipped", "a")["evidence"] == {
        "expression": "input.n > 1 and input.name == 'x'",
        "values": {"input.n": 1, "input.name": "y"},
    }


def test_when_stands_before_guard_and_is_asked_once() -> None:
    drive = flow("id: a, when: '{{ false }}', guard: '{{ false }}'")
    assert drive.statuses() == {"a": "SKIPPED"}


def test_a_skipped_step_with_on_success_hands_the_chain_on_and_its_route_is_not_evaluated() -> None:
    assert flow("id: a, when: '{{ false }}', on_success: b", "id: b").to_end().called() == ["b"]
    routed = flow("id: a, when: '{{ false }}', route: {cases: [{when: '{{ true }}', goto: b}], default: end}", "id: b")
    assert routed.instance.status == "SUCCESS"
    assert routed.called() == []


def test_end_stops_what_is_live_and_its_output_is_the_instances() -> None:
    drive = flow("id: a, on_success: e", "id: b, depends_on: []", "id: e, type: end, output: {x: '{{ steps.a.output.path }}'}")
    drive.finish("a")
    assert drive.instance.status == "CANCELLING"
    assert drive.stopping == {"b"}
    drive.finish("b")
    assert drive.instance.status == "SUCCESS"
    assert drive.statuses()["b"] == "CANCELLED"
    assert drive.instance.ending is not None
    assert drive.instance.ending.output == {"x": "a"}


def test_end_without_output_gives_the_workflows_output() -> None:
    head = "output: {x: '{{ steps.a.output.path }}', y: '{{ steps.b.output }}'}"
    drive = flow("id: a", "id: b, when: '{{ false }}'", "id: e, type: end", head=head).to_end()
    assert drive.instance.ending is not None
    assert drive.instance.ending.output == {"x": "a", "y": None}


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED", "CANCELLED"])
def test_end_says_how_the_instance_ends(status: str) -> None:
    assert str(flow(f"id: e, type: end, status: {status}").instance.status) == status


def test_fail_is_an_unhandled_failure_with_the_authors_words() -> None:
    drive = flow("id: f, type: fail, error: {type: Stock, message: 'none of {{ input.what }}', details: {n: 0}}", input={"what": "tea"})
    assert drive.instance.status == "FAILED"
    assert drive.instance.ending is not None
    assert drive.instance.ending.error == {"type": "Stock", "message": "none of tea", "details": {"n": 0}, "step": "f", "path": "f"}


def test_a_fail_step_is_not_taken_by_a_join_that_allows_failure() -> None:
    drive = flow("id: a, on_success: f", "id: f, type: fail, error: {message: no}", "id: j, depends_on: [f], join: all_done")
    drive.finish("a")
    assert drive.instance.status == "FAILED"


def test_the_end_is_told_once_and_by_one_record() -> None:
    drive: Drive = flow("id: a, on_success: b", "id: b", world=failing(b="ToolError")).to_end()
    assert order(drive, "instance.ending", "instance.ended") == ["instance.ending", "instance.ended"]
    drive.stale()
