"""The dry run of a definition: the real machine over given or made-up results, with nothing called, nobody asked and nothing stored.

It decides nothing by itself: what a step would do is what the machine orders. Secrets stay marks, since only executors fill them in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from uuid import UUID

from agiwo.definition.compiled import Kind, Step, Workflow
from agiwo.machine import Instance, Record, StepStatus, blank, decide
from agiwo.machine.commands import CloseApproval, Command, OpenApproval, StartAttempt
from agiwo.machine.reports import ApprovalDecided, AttemptEnded, Begin, CallbackReceived, Report, SignalReceived, Succeeded, TimerDue
from agiwo.machine.start import operands
from agiwo.machine.state import CALLBACK, SIGNAL, Run
from agiwo.machine.view import scope_of
from agiwo.schema import Schema
from agiwo.schema.sample import sample
from agiwo.service.view import status_of, step_view
from agiwo.template.meter import weigh
from agiwo.template.reads import Read

#: Step runs, and about the bytes of their values, after which a dry run stops; whatever loops, loops no further.
MAX_RUNS, MAX_BYTES = 300, 2_000_000
_ID = UUID(int=0)
_NOBODY = "preview"


@dataclass(frozen=True, slots=True)
class PreviewCall:
    """What a dry run is given.

    `results` are outputs by step id or path (of a wait for a signal the payload, or `{event, payload}`), `decisions` what people say:
    approve or reject, or an object with `action`, and with `values`, `output` or `comment` if wanted.
    """

    input: Any = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    decisions: Mapping[str, Any] = field(default_factory=dict)


def preview(workflow: Workflow, call: PreviewCall, at: float, tenant: str) -> dict[str, Any]:
    """Follow the path from the start: the steps in the order in which they began, and why it could not be followed further, if so.

    `at` is the time that the run thinks it begins at, in seconds since 1970; waits pass at once.
    """
    walk = _Walk(workflow, call, at, tenant)
    walk.go()
    return walk.to_json()


class _Walk:
    """One dry run under way."""

    def __init__(self, workflow: Workflow, call: PreviewCall, at: float, tenant: str) -> None:
        self._call = call
        self._at = at
        self._instance = blank(_ID, workflow, tenant)
        self._running: dict[str, StartAttempt] = {}
        self._asked: dict[str, OpenApproval] = {}
        self._order: dict[str, dict[str, Any]] = {}  # path -> what is told of the run beside its state
        self._made_up: set[str] = set()  # ids of steps whose output rests on something made up
        self._made_up_values: set[str] = set()  # keys of context and state likewise
        self._weight = 0
        self._stopped: dict[str, Any] | None = None

    def go(self) -> None:
        """Carry on to the end, or to where nobody can say what follows."""
        self._report(Begin(self._at, self._call.input, self._call.context, _NOBODY))
        while not self._instance.ended and self._stopped is None:
            report = self._next()
            if report is None:
                waiting = ", ".join(run.path for run in self._instance.live_runs())
                self._stop(f"nothing is known of what would end the wait of {waiting}", waiting.partition(",")[0])
                return
            self._report(report)
            if self._stopped is None and len(self._order) > MAX_RUNS:
                self._stop(f"more than {MAX_RUNS} step runs; a dry run follows no further")
            elif self._stopped is None and self._weight > MAX_BYTES:
                self._stop(f"more than {MAX_BYTES:,} bytes of arguments and prompts; a dry run follows no further")

    # ------------------------------------------------------------ what comes from outside

    def _next(self) -> Report | None:
        for path, command in list(self._running.items()):
            del self._running[path]
            # What is answered later is taken on first; its result comes by the callback.
            taken_on = command.step.callback is not None
            return AttemptEnded(self._at, path, command.attempt, Succeeded({} if taken_on else self._result(path, command.step)))
        for id, asked in list(self._asked.items()):
            del self._asked[id]
            return self._decision(asked)
        for run in self._instance.live_runs():
            step = self._instance.workflow.body.steps[run.step]
            if run.status is StepStatus.WAITING and run.reason == CALLBACK:
                return CallbackReceived(self._at, run.path, "result", self._result(run.path, step))
            if run.status is StepStatus.WAITING and run.reason == SIGNAL and "signal" not in self._order[run.path]:
                return self._signal(run)
        due = self._instance.due_at
        if due is None:
            return None
        self._at = max(self._at, due)
        return TimerDue(self._at)

    def _given(self, path: str, of: Mapping[str, Any]) -> tuple[bool, Any]:
        for name in (path, path.partition("~")[0]):
            if name in of:
                return True, of[name]
        return False, None

    def _result(self, path: str, step: Step) -> Any:
        there, given = self._given(path, self._call.results)
        if there:
            self._order[path]["output_from"] = "given"
            return given
        self._order[path]["output_from"] = "placeholder"
        self._made_up.add(step.id)
        return _made_up(step)

    def _decision(self, asked: OpenApproval) -> Report:
        there, given = self._given(asked.path, self._call.decisions)
        said: dict[str, Any] = {"action": given} if isinstance(given, str) else dict(given) if there else {}
        action = said.get("action", "approve")
        values = said.get("values")
        if values is None and asked.fields is not None and action == "approve":
            values = sample(asked.fields)
            self._made_up.add(asked.step)
        self._order[asked.path]["approval"] |= {"decided": action, "assumed": not there}
        edited = (said["output"],) if "output" in said else None
        return ApprovalDecided(self._at, asked.id, action, _NOBODY, _NOBODY, said.get("comment"), values, edited)

    def _signal(self, run: Run) -> Report:
        events = list(run.arguments["events"])
        there, given = self._given(run.path, self._call.results)
        event, payload = events[0], given if there else {}
        if isinstance(given, Mapping) and set(given) == {"event", "payload"} and given["event"] in events:
            event, payload = given["event"], given["payload"]
        if not there:
            self._made_up.add(run.id)
        self._order[run.path] |= {"signal": {"event": event, "payload": payload}, "output_from": "given" if there else "placeholder"}
        return SignalReceived(self._at, f"preview-{run.path}", event, payload, _NOBODY)

    # ------------------------------------------------------------ what the machine answers

    def _report(self, report: Report) -> None:
        decision = decide(self._instance, report)
        self._instance = decision.instance
        for record in decision.records:
            self._note(record)
        for command in decision.commands:
            self._carry(command)
        if not decision.records and self._stopped is None and not isinstance(report, SignalReceived):
            self._stop("the machine has nothing to answer", getattr(report, "path", None))

    def _note(self, record: Record) -> None:
        path, data = record.path, record.data or {}
        if path is None or (run := self._instance.runs.get(path)) is None:
            return
        if path not in self._order:
            self._order[path] = self._begun(run)
        told = self._order[path]
        if "route" in data:
            told["route"] = data["route"]
            self._weight += weigh(data["route"], MAX_BYTES)
        if record.type in ("step.succeeded", "step.skipped", "step.failed"):
            self._settled(run, told)

    def _begun(self, run: Run) -> dict[str, Any]:
        step = self._instance.workflow.body.steps[run.step]
        told: dict[str, Any] = {}
        rests_on = sorted({name for read in _reads(step) if (name := self._rests(read)) is not None})
        if rests_on:
            told["rests_on"] = rests_on
        if step.when is not None and run.status is not StepStatus.SKIPPED:
            told["when"] = {"expression": step.when.source, "values": operands(step.when, scope_of(self._instance, run)), "holds": True}
        self._weight += weigh(run.arguments, MAX_BYTES)
        return told

    def _rests(self, read: Read) -> str | None:
        """What was made up that an expression reads, by the name under which it can be given."""
        name = read.path[0] if read.path else None
        if read.root == "steps" and name in self._made_up and len(read.path) > 1 and read.path[1] in ("output", "approval", "signal"):
            return f"steps.{name}"
        return f"{read.root}.{name}" if read.root in ("context", "state") and name in self._made_up_values else None

    def _settled(self, run: Run, told: dict[str, Any]) -> None:
        step = self._instance.workflow.body.steps[run.step]
        self._weight += weigh(run.output, MAX_BYTES)
        rests_on = told.get("rests_on")
        if rests_on and told.get("output_from") != "given":
            self._made_up.add(step.id)
        if run.id in self._made_up:
            self._made_up_values.update(key for key, _ in step.writes)
        if run.status is StepStatus.FAILED and run.error is not None and (rests_on or told.get("output_from") == "placeholder"):
            self._stop(run.error["message"], run.path, rests_on or [f"steps.{run.id}"])

    def _carry(self, command: Command) -> None:
        if isinstance(command, StartAttempt):
            self._running[command.path] = command
        elif isinstance(command, OpenApproval):
            self._ask(command)
        elif isinstance(command, CloseApproval):
            self._asked.pop(command.id, None)

    def _ask(self, asked: OpenApproval) -> None:
        told = self._order[asked.path]
        if "approval" in told:
            run = self._instance.runs[asked.path]
            self._stop(str((run.approval or {}).get("changed", "it was asked again")), asked.path, [f"decisions.{asked.step}"])
            return
        told["approval"] = {
            "at": asked.at,
            "title": asked.title,
            "show": asked.show,
            "fields": asked.fields,
            "approvers": list(asked.approvers),
            "notify": list(asked.notify),
            "editable": asked.editable,
        }
        self._weight += weigh([asked.title, asked.show], MAX_BYTES)
        self._asked[asked.id] = asked

    def _stop(self, why: str, path: str | None = None, give: list[str] | None = None) -> None:
        if self._stopped is None:
            self._stopped = {"at": path, "why": why, "give": give or []}

    # ------------------------------------------------------------ the answer

    def to_json(self) -> dict[str, Any]:
        """The answer."""
        instance = self._instance
        ending = instance.ending
        not_run = {step.id: instance.not_run.get(step.id, "not_reached") for step in instance.workflow.body if self._is_left(step)}
        return {
            "workflow_id": instance.workflow.id,
            "version": instance.workflow.version,
            "status": status_of(instance),
            "steps": self._steps(),
            "not_run": not_run,
            "output": ending.output if ending is not None and instance.ended else None,
            "error": dict(ending.error) if ending is not None and ending.error is not None else None,
            "stopped": self._stopped,
        }

    def _steps(self) -> list[dict[str, Any]]:
        """The runs in order; where one decision began more than is shown, the first of them."""
        out: list[dict[str, Any]] = []
        room = 2 * MAX_BYTES
        for path, told in islice(self._order.items(), MAX_RUNS):
            shown = _shown(self._instance, self._instance.runs[path], told)
            room -= weigh(shown, room)
            # One value alone may be larger: it was given, and came in one request.
            if room < 0 and out:
                break
            out.append(shown)
        return out

    def _is_left(self, step: Step) -> bool:
        return self._instance.latest_run(step.index) is None


_SHOWN = ("id", "path", "type", "name", "tool", "status", "reason", "evidence", "taken", "input", "output", "error")


def _shown(instance: Instance, run: Run, told: Mapping[str, Any]) -> dict[str, Any]:
    view = step_view(instance, instance.workflow.body.steps[run.step], run)
    return {name: view[name] for name in _SHOWN if name in view} | dict(told)


def _made_up(step: Step) -> Any:
    """A result of the form that the step promises; without a promise a text that says whose it is."""
    words = f"<the answer of `{step.id}`>" if step.kind is Kind.LLM_TASK else f"<the result of `{step.id}`>"
    schema: Schema | None = step.output_schema
    promised = schema.source if schema is not None else step.contract.result if step.contract is not None else None
    made = words if promised is None else sample(promised, words)
    return made if weigh(made, MAX_BYTES // 20) <= MAX_BYTES // 20 else words


def _reads(step: Step) -> Iterator[Read]:
    """Everything that the step's own expressions and templates may read."""
    gate, route = step.gate, step.route
    parts: list[Any] = [step.when, step.guard, step.arguments, step.output, step.duration, step.until, step.fail_error]
    parts += [template for _, template in step.writes]
    if gate is not None:
        parts += [gate.condition, gate.title, gate.show]
    if route is not None:
        parts += [route.choose, *(case.when for case in route.cases)]
    for part in parts:
        if part is not None:
            yield from part.reads
