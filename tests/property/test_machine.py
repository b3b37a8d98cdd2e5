"""What holds for every definition, every world and every order of arrival (ARCHITECTURE 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from hypothesis import assume, given, note
from hypothesis import strategies as st

from agiwo.definition import check, load
from agiwo.definition.compiled import JoinKind, Workflow
from agiwo.errors import Failure
from agiwo.machine.reports import Failed, NotBegun, Outcome, Stopped, Succeeded
from agiwo.machine.state import InstanceStatus, StepStatus
from kit.machine import CONTRACTS, Drive

FAILURES = ["NetworkError", "Timeout", "ToolError", "RateLimited", "PermissionDenied", "CircuitOpen"]
FALLBACKS = [
    {"value": 1},
    {"value": "{{ error.message }}"},
    {"tool": "t.read"},
    {"tool": "t.write", "parameters": {"why": "{{ error.type }}"}},
    {"tool": "t.probed", "parameters": {"x": "{{ input.nothing }}"}},
    {"last_good": "1h"},
]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A definition in one of the two readings, with whatever else a step may have."""
    count = draw(st.integers(1, 6))
    ids = [f"s{n}" for n in range(count)]
    in_order = draw(st.booleans())
    steps = [draw(_step(id)) for id in ids]
    for number, step in enumerate(steps):
        if in_order:
            if draw(st.integers(0, 3)) == 0:
                step["run_parallel"] = True
        else:
            _place(draw, steps, number)
    routes = _set_aside(draw, steps, [] if in_order else ids)
    for step in steps[:count]:
        if draw(st.integers(0, 2)) == 0:
            options = ["continue", "end", *routes, *([] if in_order else ids[: int(step["id"][1:]) + 1])]
            step["on_failure"] = draw(st.sampled_from(options))
            step["max_iterations"] = 3
    document: dict[str, Any] = {"id": "w", "version": "1", "steps": steps, **_handlers(draw, steps, routes)}
    if draw(st.integers(0, 3)) == 0:
        document["timeout"] = draw(st.sampled_from([5, 50, 5000]))
    return document


def _handlers(draw: st.DrawFn, steps: list[dict[str, Any]], routes: list[str]) -> dict[str, Any]:
    """error_handler and finally; what cleans up after the body does not lead back into it, since publishing refuses that."""
    out: dict[str, Any] = {}
    if routes and draw(st.integers(0, 2)) == 0:
        out["error_handler"] = routes[-1]
    if len(routes) > 1 and draw(st.booleans()):
        out["finally"] = [routes[0]]
    handlers = {out.get("error_handler"), *out.get("finally", [])}
    for step in steps:
        if step["id"] in handlers:
            step.pop("on_success", None)
    return out


def _set_aside(draw: st.DrawFn, steps: list[dict[str, Any]], ids: list[str]) -> list[str]:
    """Up to two steps that only exceptions lead to, of which one may lead back among `ids`; gives their ids."""
    routes = [f"x{n}" for n in range(draw(st.integers(0, 2)))]
    for id in routes:
        step = {"id": id, "type": "tool_call", "tool": draw(st.sampled_from(["t.pure", "t.write"])), "parameters": {}}
        if ids and draw(st.booleans()):
            step["on_success"] = draw(st.sampled_from(ids))
        steps.append(step)
    return routes


def _step(id: str) -> st.SearchStrategy[dict[str, Any]]:
    tool = st.fixed_dictionaries(
        {
            "id": st.just(id),
            "type": st.just("tool_call"),
            "tool": st.sampled_from(sorted(CONTRACTS)),
            "parameters": st.just({}),
        },
        optional={
            "when": st.sampled_from(["true", "{{ input.flag }}", "{{ not input.flag }}"]),
            "requires_approval": st.just(True),
            "total_timeout": st.sampled_from([3, 60]),
            "fallback": st.sampled_from(FALLBACKS),
        },
    )
    other = st.sampled_from(
        [
            {"id": id, "type": "wait", "duration": 2},
            {"id": id, "type": "wait_for_signal", "event": id},
            {"id": id, "type": "wait_for_signal", "event": id, "match": "payload.for is defined", "timeout": 4, "on_timeout": "continue"},
            {"id": id, "type": "wait_for_event", "first_of": [{"event": f"no-{id}"}, {"event": id}], "keep": False},
            {"id": id, "type": "set", "values": {"note": "x"}},
            {"id": id, "type": "approval"},
            {"id": id, "type": "end"},
            {"id": id, "type": "fail", "error": {"type": "ToolError", "message": "no"}},
        ]
    )
    return st.one_of(tool, tool, tool, other)


def _place(draw: st.DrawFn, steps: list[dict[str, Any]], number: int) -> None:
    """Graph reading: a step starts at once, after others, or by a jump."""
    step = steps[number]
    before = [s["id"] for s in steps[:number]]
    way = draw(st.integers(0, 3)) if before else 0
    if way == 0:
        step["depends_on"] = []
    elif way in (1, 2):
        step["depends_on"] = draw(st.lists(st.sampled_from(before), min_size=1, max_size=3, unique=True))
        step["join"] = draw(st.sampled_from(["none_failed", "all_success", "all_done", "any", {"at_least": 2}]))
        if step["join"] not in ("none_failed", "all_success", "all_done") and draw(st.integers(0, 2)) == 0:
            step["cancel_rest"] = True
    else:
        source = steps[draw(st.integers(0, number - 1))]
        source.setdefault("on_success", step["id"])


@dataclass(frozen=True)
class Seeded:
    """A world that answers by a table of numbers, so that it is the same for every order of arrival."""

    numbers: tuple[int, ...]
    calm: bool = False

    def __call__(self, path: str, attempt: int) -> Outcome:
        n = self.numbers[hash_of(path, attempt) % len(self.numbers)]
        if self.calm or n % 3:
            return Succeeded({"path": path})
        type = FAILURES[n % len(FAILURES)]
        not_done = n % 7 == 0 or type == "CircuitOpen"
        return Failed(Failure(type, f"{path} {attempt}", not_done=not_done, retry_after=n % 9 if type == "CircuitOpen" else None))


def hash_of(path: str, attempt: int) -> int:
    """Python's own text hash changes from run to run."""
    return sum((i + 1) * ord(c) for i, c in enumerate(path)) + attempt * 7919


def built(document: dict[str, Any]) -> Workflow:
    document = {**document, "context": {"note": ""}}
    checked = check(load(yaml.safe_dump(document, sort_keys=False)), CONTRACTS, models=[])
    assume(not [p for p in checked.problems if p.severity == "error"])
    assert checked.workflow is not None
    return checked.workflow


numbers = st.lists(st.integers(0, 1000), min_size=1, max_size=40)
worlds = st.lists(st.integers(0, 1000), min_size=3, max_size=12).map(lambda ns: Seeded(tuple(ns)))


@given(documents(), worlds, numbers, st.booleans())
def test_any_definition_in_any_order_comes_to_an_end_and_never_breaks_a_promise(
    document: dict[str, Any], world: Seeded, choices: list[int], flag: bool
) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    drive = Drive(built(document), world, input={"flag": flag}).to_end(choices)
    assert drive.instance.status.ended
    drive.stale()
    assert [r.seq for r in drive.history] == list(range(1, len(drive.history) + 1))
    commits = [r.data["commit"] for r in drive.history if r.type == "step.succeeded" and r.data]
    assert commits == list(range(1, len(commits) + 1)), "the order of commit has a gap"
    assert sum(r.type == "instance.ended" for r in drive.history) == 1


@given(documents(), worlds, st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1000)), max_size=40))
def test_losses_cancels_rejections_and_stale_reports_leave_no_instance_behind(
    document: dict[str, Any], world: Seeded, moves: list[tuple[int, int]]
) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    drive = Drive(built(document), world, input={"flag": True})
    for kind, n in moves:
        if drive.instance.ended:
            break
        running = sorted(drive.running)
        if kind == 0 and running:
            drive.lose(running[n % len(running)])
        elif kind == 1 and running:
            drive.finish(running[n % len(running)], Failed(Failure("Timeout", "no answer")))
        elif kind == 2 and drive.approvals:
            drive.answer("reject", id=sorted(drive.approvals)[n % len(drive.approvals)])
        elif kind == 3 and n % 5 == 0:
            drive.cancel()
        elif kind == 3:
            drive.signal(f"s{n % 6}", {"for": "anybody"} if n % 2 else {}, id=f"n{n % 17}")
        elif kind == 4 and drive.probes:
            drive.probe(sorted(drive.probes)[0], ["done", "not_done", "running", "failed", "unavailable"][n % 5])
        elif kind == 5 and running:
            drive.finish(running[n % len(running)], NotBegun() if n % 2 else Stopped(clean=False))
        else:
            possible = drive.moves()
            drive.move(*possible[n % len(possible)])
        drive.stale()
    drive.to_end()


@given(documents(), worlds, numbers, st.lists(st.sampled_from([f"s{n}" for n in range(6)]), max_size=3), st.booleans())
def test_an_instance_that_stops_where_it_was_told_to_comes_to_an_end_all_the_same(
    document: dict[str, Any], world: Seeded, choices: list[int], names: list[str], before: bool
) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    stops = {"interrupt_before" if before else "interrupt_after": tuple(names)}
    drive = Drive(built(document), world, input={"flag": True}, **stops).to_end(choices)
    assert not drive.instance.stops


@given(documents(), worlds, numbers, numbers)
def test_what_a_join_has_called_off_starts_nothing_on_its_way(
    document: dict[str, Any], world: Seeded, choices: list[int], more: list[int]
) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    workflow = built(document)
    drive = Drive(workflow, world, input={"flag": True}).to_end([*choices, *more])
    for run in drive.instance.runs.values():
        if run.off is not None:
            assert run.stopping is not None or run.status in (StepStatus.CANCELLED, StepStatus.SKIPPED)


@given(documents(), st.lists(st.integers(0, 1000), min_size=3, max_size=12), numbers, numbers)
def test_where_all_goes_well_the_order_of_arrival_changes_nothing(
    document: dict[str, Any], seed: list[int], one: list[int], other: list[int]
) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    for step in document["steps"]:
        # What ends everything at once, or races with a clock, depends on the order by its meaning.
        assume(step["type"] not in ("end", "fail"))
        step.pop("total_timeout", None)
        # So does who is first where only the first counts.
        if step.get("join") not in (None, "none_failed", "all_success", "all_done"):
            step["join"] = "all_done"
            step.pop("cancel_rest", None)
        if "timeout" in step:
            del step["timeout"], step["on_timeout"]
    document.pop("timeout", None)
    workflow = built(document)
    world = Seeded(tuple(seed), calm=True)
    first = Drive(workflow, world, input={"flag": True}).to_end(one, patient=True)
    second = Drive(workflow, world, input={"flag": True}).to_end(other, patient=True)
    assert first.outcome() == second.outcome()


@given(documents(), worlds, numbers)
def test_nothing_starts_before_what_it_needs(document: dict[str, Any], world: Seeded, choices: list[int]) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    workflow = built(document)
    drive = Drive(workflow, world, input={"flag": True}).to_end(choices)
    jumps = {e.target for e in workflow.body.edges if e.kind not in ("row", "depends")}
    ended: dict[str, StepStatus] = {}
    for record in drive.history:
        path = record.path or ""
        id = path.partition("~")[0]
        if record.type == "step.started" and record.attempt == 1:
            step = workflow.body[id]
            if step.join is None or step.index in jumps or step.set_aside:
                continue
            sources = [workflow.body.steps[s].id for s in step.join.sources]
            done = [s for s in sources if s in ended]
            if step.join.kind.counts:
                assert sum(ended.get(s) is StepStatus.SUCCESS for s in sources) + _continued(drive, sources, ended) >= step.join.need
            if step.join.kind is JoinKind.ALL_SUCCESS:
                assert all(ended.get(s) is StepStatus.SUCCESS or drive.instance.runs[s].taken == "continue" for s in sources)
            assert done, f"{id} started before any of {sources}"
        elif record.type in ("step.succeeded", "step.failed", "step.skipped", "step.cancelled"):
            ended[id] = drive.instance.runs[path].status


def _continued(drive: Drive, sources: list[str], ended: dict[str, StepStatus]) -> int:
    """Sources that failed and count as succeeded, since the failure was settled by `continue`."""
    return sum(ended.get(s) is StepStatus.FAILED and drive.instance.runs[s].taken == "continue" for s in sources)


@given(documents(), worlds, numbers)
def test_an_unsafe_call_is_never_made_again_unless_it_provably_was_not_done(
    document: dict[str, Any], world: Seeded, choices: list[int]
) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    drive = Drive(built(document), world, input={"flag": True}).to_end(choices)
    for call in drive.calls:
        if call.attempt == 1 or call.step.effect.safe_to_repeat:
            continue
        before = [r for r in drive.history if r.path == call.path and r.attempt == call.attempt - 1 and r.data]
        proof = any((r.data or {}).get("error", {}).get("not_done") for r in before) or any(
            r.path == call.path and r.type in ("step.probed", "step.outcome_decided") for r in drive.history
        )
        assert proof, f"{call.path} was called again"


@given(documents(), worlds, numbers)
def test_a_cancel_ends_every_instance_and_starts_nothing_new_but_handlers(
    document: dict[str, Any], world: Seeded, choices: list[int]
) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    workflow = built(document)
    drive = Drive(workflow, world, input={"flag": True})
    for n in choices[:5]:
        if drive.instance.ended:
            return
        possible = drive.moves()
        drive.move(*possible[n % len(possible)])
    if drive.instance.ended or drive.instance.ending is not None:
        return
    before = set(drive.called())
    drive.cancel()
    drive.to_end()
    assert drive.instance.status is InstanceStatus.CANCELLED
    handlers = {workflow.body.steps[i].id for i in workflow.finally_}
    new = {path for path in drive.called() if path not in before}
    aside = {s.id for s in workflow.body if s.set_aside} | handlers
    assert {path.partition("~")[0] for path in new} <= (aside if workflow.finally_ else set())


@given(documents(), worlds, numbers)
def test_a_fallback_is_taken_once_and_what_it_gives_is_marked(document: dict[str, Any], world: Seeded, choices: list[int]) -> None:
    note(yaml.safe_dump(document, sort_keys=False))
    drive = Drive(built(document), world, input={"flag": True}).to_end(choices)
    for path, run in drive.instance.runs.items():
        taken = [r for r in drive.history if r.type == "step.fallback" and r.path == path]
        assert len(taken) == (run.fallback is not None) <= 1
        if run.status is StepStatus.SUCCESS:
            assert ("degraded" in run.marks) is (run.fallback is not None)
        if taken:
            assert all((r.data or {})["error"]["type"] != "UnknownOutcome" for r in taken)
            keys = {call.idempotency_key for call in drive.calls if call.path == path}
            assert len(keys) <= 2
