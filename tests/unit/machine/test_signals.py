"""Signals: kept until somebody wants them, used once, in order of arrival, by a wait that takes them (REQ-03, REQ-20)."""

from __future__ import annotations

import pytest

from agiwo.machine import CloseWait, InstanceStatus, StepStatus, decide, restore, snapshot
from agiwo.machine.reports import SignalReceived, TimerDue
from agiwo.machine.view import scope_of
from agiwo.template import compile_value
from kit.machine import ID
from kit.words import data, flow, order, records

PAID = "type: wait_for_signal, event: paid"


def test_a_signal_that_comes_while_the_step_waits_is_its_output() -> None:
    drive = flow(f"id: w, {PAID}", "id: b, parameters: {got: '{{ steps.w.output.amount }}', id: '{{ steps.w.signal.id }}'}")
    assert drive.statuses() == {"w": "WAITING"}
    drive.signal("paid", {"amount": 5}, id="n1")
    assert drive.calls[-1].arguments == {"got": 5, "id": "n1"}
    drive.to_end()
    run = drive.instance.runs["w"]
    assert (run.output, run.has_output) == ({"amount": 5}, True)
    assert run.signal is not None
    assert (run.signal["event"], run.signal["by"]) == ("paid", "key:sender")
    assert [r.by for r in records(drive, "signal.received")] == ["key:sender"]


def test_a_signal_that_came_before_the_wait_is_kept_and_taken_at_once() -> None:
    """REQ-03: stored first, matched later, and visible as stored meanwhile."""
    drive = flow("id: a", f"id: w, {PAID}")
    drive.signal("paid", {"amount": 5})
    assert [s.payload for s in drive.instance.signals.values()] == [{"amount": 5}]
    drive.finish("a")
    assert drive.instance.status is InstanceStatus.SUCCESS
    assert drive.instance.runs["w"].output == {"amount": 5}
    assert not drive.instance.signals
    assert order(drive, "signal.received", "step.waiting", "step.signal_taken", "step.succeeded")[:1] == ["signal.received"]


def test_a_wait_with_keep_false_takes_only_what_comes_while_it_waits() -> None:
    drive = flow("id: a", f"id: w, {PAID}, keep: false")
    drive.signal("paid", 1)
    drive.finish("a")
    assert drive.statuses()["w"] == "WAITING"
    drive.signal("paid", 2)
    assert drive.instance.runs["w"].output == 2
    assert [s.payload for s in drive.instance.signals.values()] == [1]


def test_a_kept_signal_is_taken_as_long_as_the_wait_keeps_it() -> None:
    for seconds, taken in ((3599, True), (3602, False)):
        drive = flow("id: a", f"id: w, {PAID}, keep: 1h")
        drive.signal("paid", 1)
        drive.now += seconds - 1
        drive.finish("a")
        assert drive.instance.ended is taken


def test_what_is_older_than_any_wait_would_take_is_dropped_when_the_next_one_comes() -> None:
    drive = flow("id: a", f"id: w, {PAID}, keep: 1h")
    drive.signal("paid", 1, id="old")
    drive.now += 3700
    drive.signal("other", 2, id="new")
    assert set(drive.instance.signals) == {"new"}
    assert records(drive, "signal.received")[-1].data["expired"] == ["old"]  # type: ignore[index]


def test_each_signal_is_used_once_and_in_the_order_of_arrival() -> None:
    drive = flow("id: a", f"id: w1, {PAID}", f"id: w2, {PAID}", f"id: w3, {PAID}")
    for n in range(2):
        drive.signal("paid", n)
    drive.finish("a")
    assert [drive.instance.runs[w].output for w in ("w1", "w2")] == [0, 1]
    assert drive.statuses()["w3"] == "WAITING"
    drive.signal("paid", 2)
    assert drive.instance.runs["w3"].output == 2


def test_of_two_waits_the_one_that_waits_longer_takes_it() -> None:
    drive = flow("id: a, on_success: w1", f"id: w1, {PAID}", f"id: w2, {PAID}, depends_on: []")
    drive.finish("a")
    drive.signal("paid", 1)
    assert (drive.statuses()["w1"], drive.statuses()["w2"]) == ("WAITING", "SUCCESS")


def test_the_same_id_counts_once_kept_or_used() -> None:
    drive = flow("id: a", f"id: w, {PAID}", f"id: x, {PAID}")
    drive.signal("paid", 1, id="n1")
    before = drive.instance
    drive.signal("paid", 2, id="n1")
    assert drive.instance == before
    drive.finish("a")
    before = drive.instance
    drive.signal("paid", 3, id="n1")
    assert drive.instance == before
    assert drive.statuses()["x"] == "WAITING"


def test_match_sees_payload_event_and_the_instance() -> None:
    drive = flow(f"id: w, {PAID}, match: payload.order == input.order and event == 'paid'", input={"order": 7})
    drive.signal("paid", {"order": 6})
    assert drive.statuses() == {"w": "WAITING"}
    drive.signal("paid", {"order": 7})
    assert drive.instance.runs["w"].output == {"order": 7}
    assert [s.payload for s in drive.instance.signals.values()] == [{"order": 6}]


@pytest.mark.parametrize("early", [True, False], ids=["kept", "while it waits"])
def test_a_match_that_cannot_be_evaluated_fails_its_step_and_leaves_the_signal(early: bool) -> None:
    drive = flow("id: a", f"id: w, {PAID}, match: payload.amount > 3, on_failure: x", "id: x")
    if early:
        drive.signal("paid", {})
        drive.finish("a")
    else:
        drive.finish("a")
        drive.signal("paid", {})
    assert drive.instance.runs["w"].error["type"] == "TemplateError"  # type: ignore[index]
    assert len(drive.instance.signals) == 1
    drive.to_end()
    assert drive.instance.status is InstanceStatus.SUCCESS


def test_a_template_names_the_event() -> None:
    drive = flow("id: w, type: wait_for_event, event: 'paid-{{ input.order }}'", input={"order": 7})
    drive.signal("paid-6", 1)
    drive.signal("paid-7", 2)
    assert drive.instance.runs["w"].output == 2
    drive = flow("id: w, type: wait_for_signal, event: '{{ input.order }}'", input={"order": 7})
    assert drive.instance.runs["w"].error["type"] == "TemplateError"  # type: ignore[index]


def test_the_first_of_several_events_leads_its_own_way() -> None:
    lines = [
        "id: w, type: wait_for_signal, on_success: ask, first_of: [{event: paid, goto: ship}, {event: no, goto: refund}, {event: late}]",
        "id: ship",
        "id: refund",
        "id: ask",
    ]
    for event, step in (("paid", "ship"), ("no", "refund"), ("late", "ask")):
        drive = flow(*lines)
        drive.signal("other")
        drive.signal(event, {"n": 1})
        assert drive.called() == [step]
        assert drive.instance.runs["w"].signal["event"] == event  # type: ignore[index]
        assert drive.to_end().instance.status is InstanceStatus.SUCCESS


def test_first_of_without_ways_goes_on_in_its_row() -> None:
    drive = flow("id: w, type: wait_for_signal, first_of: [{event: a}, {event: b}]", "id: x")
    drive.signal("b")
    assert drive.called() == ["x"]


def test_a_wait_that_runs_out_goes_the_way_of_on_timeout() -> None:
    """REQ-20: as any failing step does; the signal's own clock alone counts."""
    drive = flow(f"id: w, {PAID}, timeout: 60, on_timeout: late", "id: b", "id: late", head="defaults: {timeout: 5}")
    assert drive.instance.due_at == drive.now + 60
    drive.pass_time()
    assert drive.called() == ["late"]
    drive.to_end()
    assert (drive.instance.status, drive.instance.runs["w"].error["type"]) == (InstanceStatus.SUCCESS, "Timeout")  # type: ignore[index]


def test_a_wait_that_runs_out_without_a_route_fails_the_instance_by_its_handler() -> None:
    drive = flow(f"id: w, {PAID}, timeout: 60", "id: h", head="error_handler: h")
    drive.pass_time()
    drive.to_end()
    assert drive.called() == ["h"]
    assert drive.instance.status is InstanceStatus.FAILED


def test_an_expired_wait_must_not_overtake_what_stands_in_the_inbox() -> None:
    drive = flow(f"id: w, {PAID}, timeout: 60")
    decision = decide(drive.instance, TimerDue(drive.now + 60))
    assert [type(c) for c in decision.commands] == [CloseWait]
    # The signal is taken up late and first: it wins, and the clock is nothing any more.
    drive.now += 100
    drive.signal("paid", 1)
    assert drive.instance.status is InstanceStatus.SUCCESS


def test_an_approval_may_stand_before_the_wait() -> None:
    drive = flow(f"id: w, {PAID}, requires_approval: true, keep: false")
    drive.signal("paid", 1)
    drive.answer()
    assert drive.statuses() == {"w": "WAITING"}
    drive.signal("paid", 2)
    assert drive.instance.runs["w"].output == 2


def test_a_payload_that_does_not_fit_the_output_schema_fails_the_step_and_is_used() -> None:
    drive = flow(f"id: w, {PAID}, output_schema: {{type: object}}, on_failure: w, max_iterations: 3")
    drive.signal("paid", "no")
    assert drive.statuses() == {"w": "FAILED", "w~2": "WAITING"}
    assert not drive.instance.signals
    drive.signal("paid", {})
    assert drive.instance.status is InstanceStatus.SUCCESS


def test_output_writes_and_route_see_the_payload() -> None:
    more = "output: '{{ result.n }}', writes: {n: '{{ result.n }}'}, route: {choose: result.n, targets: {'1': b}}"
    drive = flow(f"id: w, {PAID}, {more}", "id: b", head="context: {n: 0}")
    drive.signal("paid", {"n": 1})
    assert (drive.instance.runs["w"].output, drive.instance.values["n"], drive.called()) == (1, 1, ["b"])


def test_a_cancel_ends_the_wait_and_a_signal_to_an_ended_instance_changes_nothing() -> None:
    drive = flow(f"id: w, {PAID}")
    drive.cancel()
    assert drive.statuses() == {"w": "CANCELLED"}
    assert not decide(drive.instance, SignalReceived(drive.now, "x", "paid", 1, "key:a")).records


def test_signals_survive_a_restart_and_a_snapshot_from_before_them_loads() -> None:
    drive = flow("id: a", f"id: w, {PAID}", f"id: x, {PAID}, match: payload > 9")
    drive.signal("paid", 1, id="one")
    drive.signal("paid", 2, id="two")
    drive.finish("a")
    drive.signal("other", 3, id="three")
    state = snapshot(drive.instance)
    assert restore(drive.workflow, "default", ID, state) == drive.instance
    for name in ("signals", "signals_used"):
        del state[name]
    assert not restore(drive.workflow, "default", ID, state).signals


def test_a_loop_takes_one_signal_a_turn() -> None:
    drive = flow(
        f"id: w, {PAID}, on_success: again", "id: again, type: branch, cases: [{when: steps.w.output.more, goto: w}], default: end"
    )
    for more in (True, True, False):
        drive.signal("paid", {"more": more})
    assert drive.instance.status is InstanceStatus.SUCCESS
    assert [drive.instance.runs[p].output for p in ("w", "w~2", "w~3")] == [{"more": True}, {"more": True}, {"more": False}]
    assert drive.instance.runs["w"].status is StepStatus.SUCCESS


def test_steps_signal_says_who_sent_what() -> None:
    drive = flow(f"id: w, {PAID}", "id: b")
    drive.signal("paid", 1, id="n1")
    seen = compile_value("{{ steps.w.signal }}").render(scope_of(drive.instance)).value
    assert {k: seen[k] for k in ("id", "event", "by", "channel")} == {"id": "n1", "event": "paid", "by": "key:sender", "channel": "api"}
    assert data(drive, "signal.received")["payload"] == 1
