"""A list that is read in order (LANGUAGE 2): rows, groups that run together, skips along the row, ways out of it."""

from __future__ import annotations

from kit.machine import failing
from kit.words import data, failed, flow, records


def test_a_row_runs_one_step_after_the_other() -> None:
    drive = flow("id: a", "id: b", "id: c")
    assert list(drive.running) == ["a"]
    drive.finish("a")
    assert list(drive.running) == ["b"]
    drive.to_end()
    assert drive.called() == ["a", "b", "c"]
    assert drive.instance.status == "SUCCESS"


def test_neighbours_run_together_and_what_follows_waits_for_all() -> None:
    drive = flow("id: a", "id: b, run_parallel: true", "id: c, run_parallel: true", "id: d")
    drive.finish("a")
    assert list(drive.running) == ["b", "c"]
    drive.finish("c")
    assert list(drive.running) == ["b"]
    drive.finish("b")
    assert list(drive.running) == ["d"]


def test_two_groups_with_a_step_between_are_two_groups() -> None:
    drive = flow(
        "id: a, run_parallel: true", "id: b, run_parallel: true", "id: c", "id: d, run_parallel: true", "id: e, run_parallel: true"
    )
    assert sorted(drive.running) == ["a", "b"]
    drive.finish("a")
    drive.finish("b")
    drive.finish("c")
    assert sorted(drive.running) == ["d", "e"]


def test_a_skip_does_not_spread_along_a_row() -> None:
    drive = flow("id: a", "id: b, when: '{{ false }}'", "id: c").to_end()
    assert drive.statuses() == {"a": "SUCCESS", "b": "SKIPPED", "c": "SUCCESS"}


def test_a_row_of_skipped_steps_only_is_a_success() -> None:
    drive = flow("id: a, when: '{{ false }}'", "id: b, when: '{{ false }}'")
    assert drive.instance.status == "SUCCESS"
    assert drive.called() == []


def test_a_whole_group_that_is_skipped_lets_the_row_go_on() -> None:
    off = "when: '{{ false }}', run_parallel: true"
    assert flow(f"id: a, {off}", f"id: b, {off}", "id: c").to_end().called() == ["c"]


def test_on_skip_jumps_forward_in_a_row() -> None:
    drive = flow("id: a, when: '{{ false }}', on_skip: c", "id: b", "id: c", "id: d").to_end()
    assert drive.called() == ["c", "d"]
    assert drive.instance.not_run == {"b": "not_chosen"}


def test_on_skip_next_goes_on_and_on_skip_end_completes_the_path() -> None:
    assert flow("id: a, when: '{{ false }}', on_skip: next", "id: b").to_end().called() == ["b"]
    drive = flow("id: a, when: '{{ false }}', on_skip: end", "id: b")
    assert drive.instance.status == "SUCCESS"
    assert drive.called() == []


def test_a_failure_in_a_row_ends_the_instance_and_what_follows_does_not_start() -> None:
    drive = flow("id: a", "id: b", "id: c", world=failing(b="ToolError")).to_end()
    assert drive.instance.status == "FAILED"
    assert drive.instance.not_run == {"c": "upstream"}
    assert drive.instance.ending is not None
    assert drive.instance.ending.error is not None
    assert drive.instance.ending.error["step"] == "b"


def test_a_set_aside_step_runs_only_when_an_exception_leads_to_it_and_ends_its_path() -> None:
    lines = ("id: a, on_failure: repair", "id: b", "id: repair")
    well = flow(*lines).to_end()
    assert well.called() == ["a", "b"]
    assert well.instance.not_run == {"repair": "not_reached"}
    ill = flow(*lines, world=failing(a="PermissionDenied")).to_end()
    assert ill.called() == ["a", "repair"]
    assert ill.instance.status == "SUCCESS"


def test_continue_goes_on_in_a_row_without_output() -> None:
    drive = flow("id: a, on_failure: continue", "id: b", world=failing(a="ToolError")).to_end()
    assert drive.statuses() == {"a": "FAILED", "b": "SUCCESS"}
    assert drive.instance.status == "SUCCESS"
    assert not drive.instance.runs["a"].has_output


def test_next_on_a_failure_goes_on_in_a_row_and_end_completes_it() -> None:
    assert flow("id: a, on_failure: next", "id: b", world=failing(a="ToolError")).to_end().called() == ["a", "b"]
    drive = flow("id: a, on_failure: end", "id: b", world=failing(a="ToolError")).to_end()
    assert drive.called() == ["a"]
    assert drive.instance.status == "SUCCESS"


def test_one_of_a_group_that_fails_stops_the_row_after_the_others_have_finished() -> None:
    """REQ-09."""
    drive = flow("id: a, run_parallel: true", "id: b, run_parallel: true", "id: c", world=failing(a="ToolError"))
    drive.finish("a")
    assert drive.instance.phase == "settling"
    drive.finish("b")
    assert drive.statuses()["b"] == "SUCCESS"
    assert "c" not in drive.statuses()


def test_on_a_failure_the_call_beside_it_finishes_and_waits_are_cancelled() -> None:
    """REQ-09."""
    drive = flow(
        "id: a, run_parallel: true",
        "id: b, run_parallel: true",
        "id: w, type: wait, duration: 1h, run_parallel: true",
        "id: g, type: approval, approval: {}, run_parallel: true",
        world=failing(a="ToolError"),
    )
    drive.finish("a")
    assert drive.statuses() == {"a": "FAILED", "b": "RUNNING", "g": "CANCELLED", "w": "CANCELLED"}
    assert data(drive, "step.cancelled", "w")["reason"] == "step a failed"
    assert drive.approvals == {}
    drive.finish("b")
    assert drive.instance.status == "FAILED"


def test_while_it_settles_a_failed_call_is_not_tried_again() -> None:
    drive = flow("id: a, run_parallel: true", "id: b, tool: t.read, run_parallel: true")
    drive.finish("a", failed())
    drive.finish("b", failed("NetworkError"))
    assert drive.instance.status == "FAILED"
    assert drive.called() == ["a", "b"]
    assert drive.instance.ending is not None
    assert drive.instance.ending.by == "a", "the first failure is the instance's"


def test_a_second_pass_of_a_row_by_a_jump_back_goes_through_the_row_again() -> None:
    drive = flow("id: a", "id: b, on_failure: a", "id: c")
    drive.finish("a")
    drive.finish("b", failed())
    drive.finish("a~2")
    drive.finish("b~2")
    drive.to_end()
    assert drive.called() == ["a", "b", "a~2", "b~2", "c"]
    assert len(records(drive, "instance.ended")) == 1
