"""A document whose form is sound to the compiled workflow: joins, routes, templates, clocks and retries, defaults filled in.

Goes on after a fault, so that one pass finds them all; what the parts mean together is proved in `proof`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agiwo.definition.compiled import (
    KEEP,
    Awaited,
    Case,
    FailureRoute,
    Gate,
    Kind,
    Retry,
    Route,
    SignalWait,
    StateKey,
    Step,
    StepList,
    Target,
    Word,
    Workflow,
)
from agiwo.definition.contract import Effect, ToolContract
from agiwo.definition.fallbacks import compile_fallback
from agiwo.definition.outline import Link, Outline, has_gate, outline
from agiwo.definition.reading import Reading, read
from agiwo.definition.report import Path, Report
from agiwo.definition.shape import BAD
from agiwo.definition.texts import AFTER, CONTEXT, END, SIGNAL, START, WHEN, Texts
from agiwo.schema import Schema
from agiwo.template import Expression, ValueTemplate, compile_value, is_template
from agiwo.values import JSON, digest

TOOL_TIMEOUT = 30.0
MODEL_TIMEOUT = 120.0
CALLBACK_TIMEOUT = 24 * 3600.0
TRIES = 3
#: How often a model is asked again for an answer that fits `output_schema`.
REPAIRS = 2
MAX_ITERATIONS = 100
CALLS = (Kind.TOOL_CALL, Kind.LLM_TASK)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Draft:
    """What a compilation gives, faulty or not: the workflow, and what the proofs need besides."""

    workflow: Workflow
    outline: Outline
    reading: Reading
    texts: Texts
    sound: Mapping[str, Any]


def compile_draft(document: JSON, sound: Mapping[str, Any], contracts: Mapping[str, ToolContract], report: Report) -> Draft:
    """Compile as far as possible; faults of names, templates and tools go to `report`."""
    made = outline(sound, report)
    reading = read(made)
    texts = Texts(report)
    written = document.get("steps", []) if isinstance(document, dict) else []
    defaults = sound.get("defaults", {})
    steps = tuple(
        _StepCompiler(made, reading, texts, report, contracts, defaults, index).step(written[made.placed[index]])
        for index in range(len(made.ids))
    )
    waiting = [0] * len(steps)
    for step in steps:
        for source in step.join.sources if step.join else ():
            waiting[source] |= step.bit
    body = StepList(steps, reading.reads_as, reading.start, reading.edges, dict(made.number), tuple(waiting))
    return Draft(_workflow(document, sound, body, made, texts, report), made, reading, texts, sound)


def _workflow(document: JSON, sound: Mapping[str, Any], body: StepList, made: Outline, texts: Texts, report: Report) -> Workflow:
    context: list[tuple[str, ValueTemplate]] = []
    for key, source in sound.get("context", {}).items():
        value = texts.value(source, ("context", key), None, CONTEXT)
        if value is not None:
            context.append((key, value))
    output = texts.value(sound["output"], ("output",), None, END) if "output" in sound else None
    return Workflow(
        id=sound.get("id", ""),
        version=sound.get("version", ""),
        content_hash=digest(document),
        body=body,
        description=sound.get("description", ""),
        input_schema=sound.get("input_schema"),
        context=tuple(context),
        state={key: _state_key(key, part, report) for key, part in sound.get("state", {}).items()},
        output=output,
        timeout=sound.get("timeout"),
        handler_timeout=sound.get("handler_timeout", 900.0),
        error_handler=made.error_handler,
        finally_=made.finally_,
        definition=document,
    )


def _state_key(key: str, part: Mapping[str, Any], report: Report) -> StateKey:
    schema: Schema | None = part.get("schema")
    default = part.get("default")
    at: Path = ("state", key, "default")
    if isinstance(default, str) and is_template(default):
        report.error("wrong_value", "the default of a state key is a value, not a template; write the first value with a step", at)
    elif "default" in part and schema is not None:
        for problem in schema.problems(default):
            report.error(
                "schema",
                f"the default does not fit the key's schema: {problem.message}",
                at,
                found=problem.found,
                expected=problem.expected,
            )
    return StateKey(part.get("reducer", "replace"), schema, default, "default" in part)


class _StepCompiler:
    """Compiles one step."""

    def __init__(
        self,
        made: Outline,
        reading: Reading,
        texts: Texts,
        report: Report,
        contracts: Mapping[str, ToolContract],
        defaults: Mapping[str, Any],
        index: int,
    ) -> None:
        self.made, self.reading, self.texts, self.report = made, reading, texts, report
        self.contracts, self.defaults, self.index = contracts, defaults, index
        self.source = made.steps[index]
        kind = self.source.get("type")
        self.known = isinstance(kind, str)
        self.kind = Kind(kind) if isinstance(kind, str) else Kind.SET
        self.links = [link for link in reading.links if link.source == index]

    def step(self, definition: Mapping[str, Any]) -> Step:
        source, index = self.source, self.index
        tool = source.get("tool") if self.kind is Kind.TOOL_CALL else None
        contract = self.contracts.get(tool) if tool is not None else None
        effect = self._effect(contract)
        gate = self._gate()
        step = Step(
            id=self.made.ids[index],
            index=index,
            kind=self.kind,
            name=source.get("name"),
            definition=definition,
            when=self._expression("when", WHEN),
            guard=self._expression("guard", START),
            join=self.reading.joins[index],
            set_aside=index in self.reading.aside,
            in_row=any(index in group for group in self.reading.rows),
            on_success=self._target("success"),
            on_skip=self._target("skip"),
            on_timeout=self._target("timeout", outside=True),
            on_reject=self._target("reject", outside=True),
            on_failure=tuple(FailureRoute(link.errors, link.target) for link in self.links if link.kind == "failure"),
            route=self._route(),
            effect=effect,
            tool=tool,
            contract=contract,
            parameters_schema=None if contract is None else Schema.compile(contract.parameters),
            arguments=self._arguments(contract),
            llm=self._llm(),
            repair_attempts=(source.get("repair") or {}).get("max_attempts", REPAIRS),
            output_schema=source.get("output_schema"),
            timeout=self._timeout(contract),
            total_timeout=source.get("total_timeout", self.defaults.get("total_timeout")) if self.kind in CALLS else None,
            heartbeat=source.get("heartbeat") if self.kind is Kind.TOOL_CALL else None,
            callback=self._callback(),
            isolated=source.get("isolation") == "process",
            retry=self._retry(effect),
            gate=gate,
            max_iterations=source.get("max_iterations", MAX_ITERATIONS),
            output=self._value("output", START if self.kind is Kind.END else AFTER),
            writes=self._writes(),
            duration=self._value("duration", START),
            until=self._value("until", START),
            signal=self._signal(),
            end_status=source.get("status", "SUCCESS"),
            fail_error=self._value("error", START),
        )
        if self.kind not in CALLS or "fallback" not in source:
            return step
        timeout = float(self.defaults.get("timeout", TOOL_TIMEOUT))
        made = compile_fallback(step, source["fallback"], self.contracts, self.texts, self.report, self._at("fallback"), timeout)
        return replace(step, fallback=made)

    # Data

    def _expression(self, key: str, phase: str) -> Expression | None:
        if key not in self.source:
            return None
        return self.texts.expression(self.source[key], self._at(key), self.index, phase)

    def _value(self, key: str, phase: str) -> ValueTemplate | None:
        return self.texts.value(self.source[key], self._at(key), self.index, phase) if key in self.source else None

    def _writes(self) -> tuple[tuple[str, ValueTemplate], ...]:
        out: list[tuple[str, ValueTemplate]] = []
        for block, phase in (("values", START), ("writes", AFTER)):
            for key, source in self.source.get(block, {}).items():
                value = self.texts.value(source, self._at(block, key), self.index, phase)
                if value is not None:
                    out.append((key, value))
        return tuple(out)

    def _arguments(self, contract: ToolContract | None) -> ValueTemplate | None:
        if self.kind is Kind.TOOL_CALL:
            uses = contract.uses if contract is not None else {}
            return self.texts.value(self.source.get("parameters", {}), self._at("parameters"), self.index, START, uses=uses, secrets=True)
        if self.kind is not Kind.LLM_TASK:
            return None
        prompts = {key: self.source[key] for key in ("system_prompt", "task_prompt") if key in self.source}
        made = self.texts.value(prompts, self._at(), self.index, START, secrets=True)
        included = self._included()
        if made is None or not included:
            return made
        # Each part has been compiled at its own place; here they are put together.
        return compile_value({**prompts, "include": included}, place="/".join(map(str, self._at()[2:])), allow_secrets=True)

    def _included(self) -> dict[str, JSON]:
        """The templates of what the model is shown besides its prompt; each counts as a read at the place where it is named."""
        out: dict[str, JSON] = {}
        for root, names in (self.source.get("include") or {}).items():
            for place, name in enumerate(names):
                if name is BAD:
                    continue
                member = f".{name}" if _IDENTIFIER.fullmatch(name) else f"[{json.dumps(name)}]"
                source = f"{{{{ {root}{member}{'.output' if root == 'steps' else ''} }}}}"
                if self.texts.value(source, self._at("include", root, place), self.index, START) is not None:
                    out.setdefault(root, {})[name] = source
        return out

    def _llm(self) -> Mapping[str, Any]:
        if self.kind is not Kind.LLM_TASK:
            return {}
        given = self.source.get("llm", {})
        return {"profile": given} if isinstance(given, str) else {"profile": "default", **given}

    def _signal(self) -> SignalWait | None:
        if self.kind is not Kind.WAIT_FOR_SIGNAL:
            return None
        given = self.source.get("first_of")
        places = [(source, ("first_of", n)) for n, source in enumerate(given) if source is not BAD] if given else [(self.source, ())]
        awaited = (self._awaited(source, at) for source, at in places)
        keep = self.source.get("keep", True)
        kept = KEEP if keep is True else 0.0 if keep is False else float(keep)
        return SignalWait(tuple(one for one in awaited if one is not None), kept, self.source.get("timeout"))

    def _awaited(self, source: Mapping[str, Any], at: tuple[str | int, ...]) -> Awaited | None:
        if "event" not in source:
            return None
        event = self.texts.value(source["event"], self._at(*at, "event"), self.index, START)
        match = self.texts.expression(source["match"], self._at(*at, "match"), self.index, SIGNAL) if "match" in source else None
        target = next((link.target for link in self._routed((*at, "goto"))), None) if at else None
        return None if event is None else Awaited(event, match, target)

    # Clocks and retries

    def _effect(self, contract: ToolContract | None) -> Effect:
        if self.kind is Kind.TOOL_CALL:
            return contract.effect_with(self.source.get("parameters", {})) if contract is not None else Effect.WRITE
        return Effect.READ if self.kind is Kind.LLM_TASK else Effect.PURE

    def _timeout(self, contract: ToolContract | None) -> float:
        given = self.source.get("timeout", self.defaults.get("timeout"))
        if given is not None and self.kind in CALLS:
            return float(given)
        if self.kind is Kind.LLM_TASK:
            return MODEL_TIMEOUT
        return contract.timeout if contract is not None and contract.timeout is not None else TOOL_TIMEOUT

    def _callback(self) -> float | None:
        given = self.source.get("completion")
        if given is None or self.kind is not Kind.TOOL_CALL:
            return None
        return float(given.get("timeout", CALLBACK_TIMEOUT)) if isinstance(given, Mapping) else CALLBACK_TIMEOUT

    def _retry(self, effect: Effect) -> Retry:
        if self.kind not in CALLS:
            return Retry(1, 0.0)
        safe = effect.safe_to_repeat
        own = self.source.get("retry_policy")
        policy = own if own is not None else self.defaults.get("retry_policy") if safe else None
        tries = TRIES if safe else 1
        if policy is None:
            return Retry(tries, 1.0, backoff=2.0, max_delay=60.0, jitter=1.0, by_author=False)
        if own is not None:
            when = self._policy_when(own, self._at("retry_policy", "when"))
        else:
            when = self._policy_when(policy, ("defaults", "retry_policy", "when"))
        return Retry(
            policy.get("max_attempts", tries),
            policy.get("delay", 1.0),
            backoff=float(policy.get("backoff", 1)),
            max_delay=policy.get("max_delay"),
            jitter=float(policy.get("jitter", 0)),
            retry_on=_names(policy.get("retry_on")),
            give_up_on=_names(policy.get("give_up_on")) or (),
            when=when,
        )

    def _policy_when(self, policy: Mapping[str, Any], at: Path) -> Expression | None:
        return self.texts.expression(policy["when"], at, self.index, AFTER) if "when" in policy else None

    # What follows

    def _target(self, kind: str, *, outside: bool = False) -> Target | None:
        """The target of a link; with `outside` only if it stands on the step itself, since a gate keeps its own."""
        return next((link.target for link in self.links if link.kind == kind and not (outside and "approval" in link.at)), None)

    def _route(self) -> Route | None:
        if self.kind is Kind.BRANCH:
            return self._cases(self.source, ())
        route = self.source.get("route")
        if not isinstance(route, dict):
            return None
        made = self._cases(route, ("route",))
        if "choose" not in route:
            return made
        choose = self.texts.expression(route["choose"], self._at("route", "choose"), self.index, AFTER)
        return Route(choose, {link.label or "": link.target for link in self._routed(("route", "targets"))}, (), made.default)

    def _cases(self, route: Mapping[str, Any], at: tuple[str | int, ...]) -> Route:
        default = next((link.target for link in self._routed((*at, "default"))), None)
        cases: list[Case] = []
        for place, case in enumerate(route.get("cases") or ()):
            if case is BAD or "when" not in case:
                continue
            when = self.texts.expression(case["when"], self._at(*at, "cases", place, "when"), self.index, AFTER)
            target = next((link.target for link in self._routed((*at, "cases", place))), None)
            if when is not None and target is not None:
                cases.append(Case(when, target))
        return Route(cases=tuple(cases), default=default)

    def _routed(self, below: tuple[str | int, ...]) -> list[Link]:
        prefix = self._at(*below)
        return [link for link in self.links if link.kind == "route" and link.at[: len(prefix)] == prefix]

    # People

    def _gate(self) -> Gate | None:
        source = self.source
        if not has_gate(source):
            return None
        asked = source.get("requires_approval", True)
        approval = source.get("approval", {})
        if asked is False and "approval" in source:
            self.report.error(
                "contradiction", "`requires_approval: false` and an `approval` contradict each other", self._at("approval"), key=True
            )
        if isinstance(asked, str) and "if" in approval:
            self.report.error(
                "said_twice", "the condition stands in `requires_approval` and in `approval.if`; write it once", self._at("approval", "if")
            )
        at = approval.get("at", "after" if self.kind is Kind.LLM_TASK else "before")
        if at == "after" and self.known and self.kind not in CALLS:
            self.report.error(
                "wrong_value",
                f"a step of type {self.kind.value} makes nothing that could be reviewed after it",
                self._at("approval", "at"),
                found="after",
                expected="before",
            )
        phase = AFTER if at == "after" else START
        condition = None
        if isinstance(asked, str):
            condition = self.texts.expression(asked, self._at("requires_approval"), self.index, phase)
        elif "if" in approval:
            condition = self.texts.expression(approval["if"], self._at("approval", "if"), self.index, phase)
        shown = {
            key: self.texts.value(approval[key], self._at("approval", key), self.index, phase)
            for key in ("title", "show")
            if key in approval
        }
        return Gate(
            at=at,
            condition=condition,
            title=shown.get("title"),
            show=shown.get("show"),
            fields=approval.get("fields"),
            approvers=_names(approval.get("approvers")) or (),
            notify=_names(approval.get("notify")) or (),
            timeout=approval.get("timeout", 72 * 3600.0),
            on_timeout=self._on_silence(),
            on_reject=self._target("reject"),
        )

    def _on_silence(self) -> Target | str:
        target = self._target("timeout")
        if target is None:
            return "reject"
        return "fail" if target.word is Word.FAIL else target

    def _at(self, *more: str | int) -> Path:
        return self.made.place(self.index, *more)


def _names(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(part for part in value if part is not BAD)
