"""`depends_on` (LANGUAGE 2, dependencies): when a join is met, what counts as settled, how a skip spreads, second passes of loops."""

from __future__ import annotations

import itertools

import pytest

from kit.machine import all_well, failing
from kit.words import data, failed, flow, records

START = "depends_on: []"


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_join_waits_for_all_its_sources_in_either_order(first: str) -> None:
    """REQ-08."""
    drive = flow(f"id: a, {START}", f"id: b, {START}", "id: c, depends_on: [a, b]")
    drive.finish(first)
    assert "c" not in drive.running
    drive.to_end()
    assert drive.called()[-1] == "c"


@pytest.mark.parametrize(
    ("join", "a", "b", "runs"),
    [
        ("none_failed", "SUCCESS", "SUCCESS", True),
        ("none_failed", "SUCCESS", "SKIPPED", True),
        ("none_failed", "SKIPPED", "SKIPPED", False),
        ("none_failed", "SUCCESS", "ROUTED", True),
        ("none_failed", "SUCCESS", "CONTINUED", True),
        ("none_failed", "SKIPPED", "CONTINUED", True),
        ("all_success", "SUCCESS", "SUCCESS", True),
        ("all_success", "SUCCESS", "SKIPPED", False),
        ("all_success", "SUCCESS", "ROUTED", False),
        ("all_success", "SUCCESS", "CONTINUED", True),
        ("all_done", "SKIPPED", "SKIPPED", True),
        ("all_done", "SUCCESS", "FAILED", True),
        ("all_done", "FAILED", "FAILED", True),
        ("all_done", "ROUTED", "SKIPPED", True),
    ],
)
def test_the_ends_of_the_sources_decide_the_join(join: str, a: str, b: str, runs: bool) -> None:
    more = {
        "SUCCESS": "",
        "FAILED": "",
        "SKIPPED": ", when: '{{ false }}'",
        "ROUTED": ", on_failure: x",
        "CONTINUED": ", on_failure: continue",
    }
    world = failing(**{id: "ToolError" for id, end in (("a", a), ("b", b)) if end in ("FAILED", "ROUTED", "CONTINUED")})
    routed = ["id: x"] if "ROUTED" in (a, b) else []
    drive = flow(f"id: a, {START}{more[a]}", f"id: b, {START}{more[b]}", f"id: j, depends_on: [a, b], join: {join}", *routed, world=world)
    drive.to_end()
    assert ("j" in drive.called()) is runs
    assert drive.statuses()["j"] == ("SUCCESS" if runs else "SKIPPED")
    assert drive.instance.status == "SUCCESS"


def test_a_join_that_is_not_met_says_by_whom() -> None:
    drive = flow(f"id: a, {START}", f"id: b, {START}, when: '{{{{ false }}}}'", "id: j, depends_on: [a, b], join: all_success").to_end()
    found = data(drive, "step.skipped", "j")
    assert found["reason"] == "join_not_met"
    assert found["evidence"] == {"sources": ["b"]}


def test_a_skip_spreads_along_depends_on_until_a_source_has_succeeded() -> None:
    drive = flow(
        f"id: a, {START}, when: '{{{{ false }}}}'",
        "id: b, depends_on: [a]",
        "id: c, depends_on: [b]",
        f"id: k, {START}",
        "id: d, depends_on: [c, k]",
    ).to_end()
    assert drive.statuses() == {"a": "SKIPPED", "b": "SKIPPED", "c": "SKIPPED", "d": "SUCCESS", "k": "SUCCESS"}
    assert [data(drive, "step.skipped", id)["reason"] for id in "abc"] == ["when", "upstream", "upstream"]


def test_all_done_ends_the_spreading_of_a_skip() -> None:
    drive = flow(f"id: a, {START}, when: '{{{{ false }}}}'", "id: b, depends_on: [a], join: all_done").to_end()
    assert drive.called() == ["b"]


def test_a_step_skipped_by_its_join_hands_its_chain_on() -> None:
    drive = flow(f"id: a, {START}, when: '{{{{ false }}}}'", "id: b, depends_on: [a], on_success: c", "id: c").to_end()
    assert drive.called() == ["c"]
    other = flow(f"id: a, {START}, when: '{{{{ false }}}}'", "id: b, depends_on: [a], on_success: c, on_skip: d", "id: c", "id: d").to_end()
    assert other.called() == ["d"]


@pytest.mark.parametrize("n", [0, 2])
def test_the_step_after_a_branch_runs_whichever_way_was_taken(n: int) -> None:
    """REQ-10: what meets behind a decision is not skipped because the other way was not taken."""
    drive = flow(
        "id: pick, type: branch, cases: [{when: 'input.n > 1', goto: t}], default: e",
        "id: t",
        "id: e",
        "id: after, depends_on: [t, e], parameters: {v: '{{ steps.t.output.path | default(\"none\") }}'}",
        input={"n": n},
    ).to_end()
    taken, other = ("t", "e") if n > 1 else ("e", "t")
    assert drive.called() == [taken, "after"]
    assert drive.instance.not_run == {other: "not_chosen"}
    assert drive.calls[-1].arguments == {"v": "t" if n > 1 else "none"}


def test_branches_within_branches_meet_in_order() -> None:
    """REQ-10, nested: each meeting point waits only for what can still come."""
    lines = (
        "id: one, type: branch, cases: [{when: input.a, goto: two}], default: z",
        "id: two, type: branch, cases: [{when: input.b, goto: x}], default: y",
        "id: x",
        "id: y",
        "id: inner, depends_on: [x, y]",
        "id: z",
        "id: outer, depends_on: [inner, z]",
    )
    for a, b in itertools.product([True, False], repeat=2):
        drive = flow(*lines, input={"a": a, "b": b}).to_end()
        assert drive.called()[-1] == "outer"
        assert drive.called().count("outer") == 1
        assert ("inner" in drive.called()) is a


def test_a_source_that_is_not_coming_is_settled_at_once_and_one_that_still_may_come_is_waited_for() -> None:
    drive = flow(
        f"id: a, {START}",
        f"id: slow, {START}, route: {{cases: [{{when: input.go, goto: b}}], default: end}}",
        "id: b",
        "id: j, depends_on: [a, b]",
        input={"go": False},
    )
    drive.finish("a")
    assert list(drive.running) == ["slow"], "b may still be chosen"
    drive.finish("slow")
    assert list(drive.running) == ["j"]


def test_a_path_that_leads_to_a_source_only_through_the_join_itself_is_not_waited_for() -> None:
    again = "route: {cases: [{when: 'steps.j.iteration < 2', goto: b}], default: end}"
    drive = flow(f"id: a, {START}", "id: j, depends_on: [a, b], " + again, "id: b")
    drive.finish("a")
    assert list(drive.running) == ["j"]
    drive.finish("j")
    drive.finish("b")
    drive.finish("j~2")
    assert drive.instance.status == "SUCCESS"


def test_a_second_pass_of_a_loop_fires_the_join_again_when_both_have_come_again() -> None:
    back = "route: {cases: [{when: 'steps.j.iteration < 3', goto: s}], default: end}"
    drive = flow("id: s, on_success: [a, b]", "id: a", "id: b", f"id: j, depends_on: [a, b], {back}")
    for n, tail in enumerate(["", "~2", "~3"]):
        drive.finish(f"s{tail}")
        assert sorted(drive.running) == [f"a{tail}", f"b{tail}"]
        drive.finish(f"{'ab'[n % 2]}{tail}")
        assert f"j{tail}" not in drive.running, "the other one is still on its way"
        drive.finish(f"{'ba'[n % 2]}{tail}")
        drive.finish(f"j{tail}")
    assert drive.instance.status == "SUCCESS"


def test_a_second_pass_that_goes_another_way_fires_the_join_with_what_came() -> None:
    drive = flow(
        "id: s, route: {choose: 'steps.s.iteration | string', targets: {'1': [a, b]}, default: b}",
        "id: a",
        "id: b",
        "id: j, depends_on: [a, b], route: {cases: [{when: 'steps.j.iteration < 2', goto: s}], default: end}",
    ).to_end()
    assert drive.called() == ["s", "a", "b", "j", "s~2", "b~2", "j~2"]


def test_a_jump_uses_up_the_round_of_sources_that_are_on_their_way_whatever_is_named_first() -> None:
    for targets in ("[d, x]", "[x, d]"):
        drive = flow(f"id: a, on_success: {targets}", "id: x, on_success: y", "id: y", "id: d, depends_on: [y]").to_end()
        assert sorted(drive.called()) == ["a", "d", "x", "y"]


def test_a_jump_uses_up_the_round_of_sources_that_a_join_is_about_to_bring() -> None:
    drive = flow("id: a, on_success: d", "id: x, depends_on: [a]", "id: y, depends_on: [x]", "id: d, depends_on: [y]").to_end()
    assert sorted(drive.called()) == ["a", "d", "x", "y"]


def test_joins_that_wait_for_each_other_begin_with_the_one_written_first() -> None:
    drive = flow(
        f"id: a, {START}",
        "id: p, depends_on: [a, q2], on_success: p2",
        "id: p2",
        "id: q, depends_on: [a, p2], on_success: q2",
        "id: q2",
    ).to_end()
    assert drive.instance.status == "SUCCESS"
    assert drive.called() == ["a", "p", "p2", "q", "q2"]


def test_an_unhandled_failure_does_not_start_the_joins_behind_it() -> None:
    drive = flow(f"id: a, {START}", f"id: b, {START}", "id: j, depends_on: [a, b]", world=failing(a="ToolError")).to_end()
    assert drive.instance.status == "FAILED"
    assert "j" not in drive.called()
    assert drive.instance.not_run == {"j": "upstream"}


def test_a_failed_source_that_a_join_allows_is_handled() -> None:
    """REQ-08."""
    drive = flow(f"id: a, {START}", "id: j, depends_on: [a], join: all_done", world=failing(a="PermissionDenied")).to_end()
    assert drive.instance.runs["a"].taken == "join"
    assert drive.instance.status == "SUCCESS"


def test_goto_fail_is_unhandled_even_where_a_join_would_allow_it() -> None:
    drive = flow(f"id: a, {START}, on_failure: fail", "id: j, depends_on: [a], join: all_done", world=failing(a="ToolError")).to_end()
    assert drive.instance.status == "FAILED"


def test_what_came_to_rest_starts_no_join_of_the_body_among_the_handlers() -> None:
    drive = flow(f"id: a, {START}", f"id: b, {START}", "id: j, depends_on: [b]", "id: h", head="error_handler: h")
    drive.finish("a", failed())
    drive.finish("b")
    assert list(drive.running) == ["h"]
    drive.finish("h")
    assert drive.instance.status == "FAILED"
    assert "j" not in drive.statuses()


def test_a_wide_join_is_met_once_whatever_the_order() -> None:
    ids = [f"s{n}" for n in range(40)]
    lines = [f"id: {id}, {START}" for id in ids]
    drive = flow(*lines, f"id: j, depends_on: [{', '.join(ids)}]", world=all_well)
    for id in sorted(ids, key=lambda id: hash_of(id)):
        drive.finish(id)
    assert list(drive.running) == ["j"]
    assert len(records(drive, "step.started", "j")) == 1


def hash_of(text: str) -> int:
    return sum((n + 3) * ord(c) * 7919 for n, c in enumerate(text)) % 101


@pytest.mark.parametrize("join", ["none_failed", "all_success", "all_done", "{at_least: 2}", "any", "{at_least: 1}"])
@pytest.mark.parametrize("choices", [[], [0, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1]], ids=str)
def test_a_loop_around_a_fork_starts_both_branches_again(join: str, choices: list[int]) -> None:
    """A branch on its way leads to the join, and by the loop to the fork: that does not use up the fork's next iteration."""
    again = "route: {cases: [{when: steps.j.iteration < 3, goto: s}], default: end}"
    drive = flow("id: s", "id: a, depends_on: [s]", "id: b, depends_on: [s]", f"id: j, depends_on: [a, b], join: {join}, {again}")
    drive.to_end(choices)
    called = drive.called()
    # A branch that `any` does not wait for may be overtaken by a pass: it then runs once for both.
    whole = ["s~3", "j~3"] if join in ("any", "{at_least: 1}") else ["s~3", "a~3", "b~3", "j~3"]
    assert [called.count(path) for path in whole] == [1] * len(whole)
    assert "j~4" not in called
