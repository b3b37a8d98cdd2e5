"""What the first release wrote down loads in this one: its histories replay, its snapshots restore, and both go on to the same end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from agiwo.definition.compiled import Workflow
from agiwo.errors import Failure
from agiwo.machine import Instance, Record, StepStatus, blank, decide, evolve, restore
from agiwo.machine.reports import ApprovalDecided, AttemptEnded, Failed, Outcome, OutcomeDecided, ProbeEnded, Report, Succeeded, TimerDue
from kit.machine import ID, compiled, differences

WRITTEN = sorted((Path(__file__).parents[2] / "fixtures" / "first_release").glob("*.json"))


@pytest.fixture(params=WRITTEN, ids=lambda path: path.stem)
def written(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A live instance of the first release: its definition, history, snapshot, and the end to which that release brought it."""
    data: dict[str, Any] = json.loads(request.param.read_text())
    return data


def world(path: str, attempt: int) -> Outcome:
    """The world that the instances were driven in."""
    id = path.partition("~")[0]
    if id == "shaky" and attempt == 1:
        return Failed(Failure("NetworkError", "gone", retry_after=2.0))
    if id == "sent":
        return Failed(Failure("Timeout", "no answer"))
    return Failed(Failure("ToolError", "no")) if id == "broken" else Succeeded({"path": path})


def replayed(workflow: Workflow, written: dict[str, Any]) -> Instance:
    instance = blank(ID, workflow)
    for record in written["records"]:
        instance = evolve(instance, Record.from_json(record))
    return instance


def restored(workflow: Workflow, written: dict[str, Any]) -> Instance:
    return restore(workflow, "default", ID, written["snapshot"])


def without_new_fields(instance: Instance) -> Instance:
    """A snapshot of the first release does not say since when a step waits; only waits for signals, which it did not have, ask for that."""
    return instance._replace(runs=Map({path: run._replace(waiting_since=None) for path, run in instance.runs.items()}))


def owed(instance: Instance, now: float) -> Report:
    """What the outside does next: calls end, probes and people answer, and only then time passes."""
    live = instance.live_runs()
    for run in live:
        if run.status is StepStatus.RUNNING:
            return AttemptEnded(now, run.path, run.attempt, world(run.path, run.attempt))
    for run in live:
        if run.status is StepStatus.UNKNOWN and run.probing:
            return ProbeEnded(now, run.path, run.attempt, "not_done")
    for run in live:
        if run.approval is not None and run.status is StepStatus.WAITING_FOR_APPROVAL:
            return ApprovalDecided(now, run.approval["id"], "approve", by="user:a@example.com", channel="api")
    if instance.due_at is not None:
        return TimerDue(max(now, instance.due_at))
    unknown = next(run for run in live if run.status is StepStatus.UNKNOWN)
    return OutcomeDecided(now, unknown.path, "user:op@example.com", True)


def end_of(instance: Instance, now: float) -> dict[str, Any]:
    while not instance.ended:
        report = owed(instance, now)
        now = report.at + 1
        decision = decide(instance, report)
        assert decision.records, f"{report} changed nothing"
        instance = decision.instance
    runs = {
        path: [str(run.status), run.output, run.reason, run.attempt, run.taken, str(run.settled)] for path, run in instance.runs.items()
    }
    ending = instance.ending
    not_run = dict(instance.not_run)
    return {"status": str(instance.status), "runs": runs, "not_run": not_run, "output": ending and ending.output}


def test_its_snapshot_is_what_its_history_replays_to(written: dict[str, Any]) -> None:
    workflow = compiled(written["definition"])
    instance = replayed(workflow, written)
    assert {path: str(run.status) for path, run in instance.runs.items()} == written["statuses"]
    assert differences(without_new_fields(restored(workflow, written)), without_new_fields(instance)) == []


@pytest.mark.parametrize("taken_over", [replayed, restored])
def test_what_it_left_live_comes_to_the_same_end(written: dict[str, Any], taken_over: Any) -> None:
    workflow = compiled(written["definition"])
    assert end_of(taken_over(workflow, written), written["now"] + 1) == written["outcome"]


def test_every_state_that_it_left_an_instance_in_is_among_them() -> None:
    seen = {status for path in WRITTEN for status in json.loads(path.read_text())["statuses"].values()}
    assert seen >= {"RUNNING", "RETRYING", "WAITING", "WAITING_FOR_APPROVAL", "UNKNOWN", "SUCCESS", "FAILED"}
