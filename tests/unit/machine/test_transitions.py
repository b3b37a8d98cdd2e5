"""The table of transitions: what does not stand in it is refused, the docs are drawn from it, and the history gives the instance."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from agiwo.machine import Instance, InstanceStatus, Phase, Record, Run, StepStatus, blank, evolve, restore, snapshot
from agiwo.machine.evolve import parse_path
from agiwo.machine.state import ENDED_INSTANCE, ENDED_STEP, Scope, Signal, run_path
from agiwo.machine.transitions import FINAL_INSTANCE, FINAL_STEP, INSTANCE, LIVE, STEP, IllegalTransition, mermaid, table
from kit.machine import ID, Drive, compiled, failing
from kit.words import HEAD, failed, flow

PAGE = Path(__file__).parents[3] / "docs" / "machine.md"
WORKFLOW = compiled(HEAD + "steps: [{id: a, type: tool_call, tool: t.pure}]")

#: What each record must carry to be applied at all.
DATA: dict[str, dict[str, Any]] = {
    "step.approval_asked": {"approval": {"id": "x", "number": 1, "status": "pending"}},
    "step.approval_decided": {"approval": {"status": "approved"}},
    "step.unknown": {"error": {"type": "UnknownOutcome", "message": ""}},
    "step.queued": {"reason": "x", "tries": 0, "error": {"type": "CircuitOpen", "message": ""}},
    "step.fallback": {"fallback": {"kind": "value"}, "error": {"type": "ToolError", "message": ""}},
    "step.stopping": {"reason": "x"},
    "step.succeeded": {"output": 1, "commit": 1},
    "step.failed": {"error": {"type": "ToolError", "message": ""}, "settled": "failed"},
    "step.signal_taken": {"signal": {"id": "s", "event": "paid", "at": 1.0}},
    "step.skipped": {"reason": "when"},
    "step.cancelled": {"reason": "x"},
    "instance.ending": {"status": "FAILED"},
    "instance.handling": {"due": 1.0},
    "instance.finally": {"due": 1.0, "next": 1},
    "instance.ended": {"status": "FAILED"},
    "instance.interrupted": {"path": "a"},
    "instance.resumed": {"paths": []},
    "signal.received": {"id": "t", "event": "paid", "payload": 1, "channel": "api"},
    "jump.waiting": {"target": "a"},
    "join.cut": {"step": "a", "off": []},
}


def standing(status: StepStatus) -> Instance:
    """An instance whose only step is in this state."""
    instance = blank(ID, WORKFLOW)._replace(seq=7, signals=Map({"s": Signal("s", "paid", 1, 1.0, 6)}))
    if status is StepStatus.PENDING:
        return instance
    run = Run(0, "a", "a", 1, status, attempt=1, approval={"id": "x", "number": 1, "status": "pending"})
    live = 0 if status.ended else 1
    return instance._replace(runs=instance.runs.set("a", run), scope=Scope(latest=instance.scope.latest.set(0, 1), live=live))


@pytest.mark.parametrize(("type", "status"), list(itertools.product(STEP, StepStatus)))
def test_a_record_moves_a_step_only_as_the_table_says(type: str, status: StepStatus) -> None:
    before = standing(status)
    record = Record(8, type, 1.0, "a", 1, data=DATA.get(type))
    sources, target = STEP[type]
    if status not in sources:
        with pytest.raises(IllegalTransition, match="which is " + status):
            evolve(before, record)
        return
    after = evolve(before, record)
    assert after.runs["a"].status is (target or status)
    assert after.seq == 8
    assert bool(after.scope.live) is not after.runs["a"].status.ended


@pytest.mark.parametrize(("type", "phase"), list(itertools.product(INSTANCE, Phase)))
def test_a_record_moves_an_instance_only_as_the_table_says(type: str, phase: Phase) -> None:
    before = standing(StepStatus.SUCCESS)._replace(phase=phase)
    record = Record(8, type, 1.0, data=DATA.get(type))
    sources, target = INSTANCE[type]
    if phase not in sources:
        with pytest.raises(IllegalTransition, match="in phase " + phase):
            evolve(before, record)
        return
    assert evolve(before, record).phase is (target or phase)


def test_no_record_leaves_an_end() -> None:
    assert FINAL_STEP == ENDED_STEP == frozenset(s for s in StepStatus if s.ended)
    assert FINAL_INSTANCE == ENDED_INSTANCE == frozenset(s for s in InstanceStatus if s.ended)
    assert all(not sources & FINAL_STEP for sources, _ in STEP.values())
    assert all(Phase.ENDED not in sources for sources, _ in INSTANCE.values())
    assert LIVE | FINAL_STEP | {StepStatus.PENDING} == set(StepStatus)


def test_a_record_out_of_its_number_or_of_no_known_kind_is_refused() -> None:
    instance = blank(ID, WORKFLOW)
    for seq in (0, 2, -1):
        with pytest.raises(IllegalTransition):
            evolve(instance, Record(seq, "instance.started", 1.0))
    for type in ("step.started", "step.exploded", "instance.exploded"):
        with pytest.raises(IllegalTransition):
            evolve(instance, Record(1, type, 1.0))


def test_every_state_of_a_live_step_can_be_cancelled() -> None:
    assert STEP["step.cancelled"][0] == LIVE


@pytest.mark.parametrize(("path", "parts"), [("a", ("a", 1)), ("a~2", ("a", 2)), ("fetch_1~10000", ("fetch_1", 10_000))])
def test_a_path_is_an_id_and_an_iteration(path: str, parts: tuple[str, int]) -> None:
    assert parse_path(path) == parts
    assert run_path(*parts) == path


# ---------------------------------------------------------------- the docs


def drawn() -> dict[str, str]:
    """What stands between the markers of docs/machine.md."""
    phases = ["| record | in | then |", "| --- | --- | --- |"]
    for type, (sources, target) in INSTANCE.items():
        phases.append(f"| `{type}` | {', '.join(p for p in Phase if p in sources)} | {target or 'as it was'} |")
    return {
        "diagram": f"```mermaid\n{mermaid()}```",
        "steps": table().rstrip("\n"),
        "instance": "\n".join(phases),
    }


def with_tables(page: str) -> str:
    for name, text in drawn().items():
        page = re.sub(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", lambda m, text=text: m[1] + text + m[2], page, flags=re.S)
    return page


@pytest.mark.parametrize("name", ["diagram", "steps", "instance"])
def test_the_page_shows_the_table_as_it_is(name: str) -> None:
    """Drawn anew by: PYTHONPATH=app:tests python tests/unit/machine/test_transitions.py"""
    assert f"<!-- {name} -->\n{drawn()[name]}\n<!-- /{name} -->" in PAGE.read_text()


# ---------------------------------------------------------------- the history


def _eventful() -> Drive:
    drive = flow(
        "id: a, retry_policy: {max_attempts: 2, delay: 1}, writes: {n: 1}",
        "id: b, requires_approval: true, run_parallel: true",
        "id: c, tool: t.probed, run_parallel: true",
        "id: w, type: wait, duration: 5",
        "id: d, tool: t.write, on_failure: x",
        "id: x",
        "id: f",
        head="state: {n: {reducer: add}}\noutput: '{{ state.n }}'\nfinally: [f]\ntimeout: 1h",
    )
    drive.finish("a", failed("NetworkError"))
    drive.pass_time()
    drive.finish("a")
    drive.answer(comment="yes")
    drive.lose("c")
    drive.probe("c", "done", {"ok": True})
    drive.finish("b")
    drive.pass_time()
    drive.finish("d", failed("PermissionDenied"))
    return drive.to_end()


def test_replaying_the_history_gives_the_instance_at_every_point() -> None:
    """Nothing is evaluated; any prefix, snapshotted and carried on, ends the same."""
    drive = _eventful()
    assert drive.instance.status == "SUCCESS"
    history = [Record.from_json(r.to_json()) for r in drive.history]
    at = blank(ID, drive.workflow)
    for n, record in enumerate(history):
        at = evolve(at, record)
        other = restore(drive.workflow, "default", ID, snapshot(at))
        for later in history[n + 1 :]:
            other = evolve(other, later)
        assert other == drive.instance


def test_every_kind_of_record_is_numbered_timed_and_says_who() -> None:
    drive = _eventful()
    assert [r.seq for r in drive.history] == list(range(1, drive.instance.seq + 1))
    assert [r.at for r in drive.history] == sorted(r.at for r in drive.history)
    (decided,) = [r for r in drive.history if r.type == "step.approval_decided"]
    assert decided.by == "user:a@example.com"
    assert all(r.attempt for r in drive.history if r.type in ("step.started", "step.retrying", "step.unknown"))


def test_results_are_numbered_in_the_order_in_which_they_were_committed() -> None:
    drive = flow("id: a, run_parallel: true", "id: b, run_parallel: true", "id: c", world=failing())
    drive.finish("b")
    drive.finish("a")
    drive.to_end()
    assert {path: run.commit for path, run in drive.instance.runs.items()} == {"b": 1, "a": 2, "c": 3}


def test_a_snapshot_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2"):
        restore(WORKFLOW, "default", ID, {**snapshot(blank(ID, WORKFLOW)), "format": 2})


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
    sys.exit(0)
