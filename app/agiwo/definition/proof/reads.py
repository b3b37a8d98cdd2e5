"""Whether everything that templates read is there: names that exist, outputs that are certain or guarded, data of declared form.

Evaluates nothing; what cannot be decided counts as not certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from agiwo.definition.compiled import Step
from agiwo.definition.contract import CALLBACK_SECRETS
from agiwo.definition.proof.flow import Fact, Flow
from agiwo.definition.proof.ways import Ways, arrow, bits
from agiwo.definition.reading import mask_of
from agiwo.definition.report import Report
from agiwo.definition.texts import AFTER, CONTEXT, END, SIGNAL, WHEN, Use, place_of
from agiwo.template import Read, compile_expression, path_text

STEP_MEMBERS = ("output", "status", "error", "attempts", "iteration", "iterations", "approval", "signal", "model", "started_at", "ended_at")
INSTANCE_MEMBERS = ("id", "workflow", "version", "trace_id", "tenant", "started_at")
_ELSEWHERE = ("item", "index", "iteration", "original", "payload", "event", "budget", "compensation")


def prove_reads(ways: Ways, report: Report, secrets: Collection[str] | None) -> None:
    """Look at all that every template and expression reads."""
    _Reads(ways, report, secrets).prove()


class _Reads:
    def __init__(self, ways: Ways, report: Report, secrets: Collection[str] | None) -> None:
        self.ways, self.report, self.secrets = ways, report, secrets
        self.made = ways.made
        self.sound = ways.draft.sound
        self.workflow = ways.draft.workflow
        self.after_error = self._after_errors()
        self.open: list[tuple[Use, Read, int, list[int]]] = []
        self.facts: dict[Fact, int] = {}

    def prove(self) -> None:
        for use in self.ways.draft.texts.uses:
            for read in use.reads:
                self._read(use, read)
            for name in sorted(use.secrets):
                if name in CALLBACK_SECRETS:
                    self._callback(use, name)
                elif self.secrets is not None and name not in self.secrets:
                    self.report.error(
                        "unknown_secret",
                        f"there is no secret `{name}`",
                        use.at,
                        found=name,
                        nearest=self.report.nearest(name, self.secrets),
                    )
        if self.open:
            flow = Flow(self.ways, self.facts)
            at_end = flow.at_end()
            for use, read, index, numbers in self.open:
                self._certain(flow, at_end, use, read, index, numbers)

    def _callback(self, use: Use, name: str) -> None:
        if use.step is None or self.ways.steps[use.step].callback is None:
            self.report.error(
                "not_there", f"`secrets.{name}` is there only in the parameters of a step with `completion: callback`", use.at, found=name
            )

    # Names

    def _read(self, use: Use, read: Read) -> None:
        if use.phase == CONTEXT and read.root not in ("input", "instance"):
            self._error("not_there_yet", use, read, "the context is made at the start, from `input` and `instance`", "input or instance")
        elif read.root == "steps":
            self._step(use, read)
        elif read.root == "context":
            self._context(use, read)
        elif read.root == "state":
            self._state(use, read)
        elif read.root == "input":
            self._input(use, read)
        else:
            self._other(use, read)

    def _other(self, use: Use, read: Read) -> None:
        if read.root == "instance":
            if read.path and read.path[0] not in INSTANCE_MEMBERS:
                self._unknown("unknown_member", use, read, str(read.path[0]), INSTANCE_MEMBERS, "`instance` has no member")
        elif read.guarded:
            return
        elif read.root == "error":
            own = "retry_policy" in use.at or use.at[2:3] == ("fallback",)
            if (use.step is None or not self.after_error >> use.step & 1) and not own:
                why = "there is an `error` only behind failure routes and in handlers"
                self._error("not_there", use, read, why, "a step that a failure leads to")
        elif read.root == "result":
            if use.phase != AFTER:
                why = "`result` is there only after the step's call: in `output`, `writes` and `route`"
                self._error("not_there", use, read, why, None)
        elif read.root in _ELSEWHERE and not (use.phase == SIGNAL and read.root in ("payload", "event")):
            self._error("not_there", use, read, f"there is no `{read.root}` here", None)

    def _step(self, use: Use, read: Read) -> None:
        name = str(read.path[0])
        if name not in self.made.number:
            self._unknown("unknown_step", use, read, name, self.made.ids, "there is no step")
            return
        if len(read.path) < 2:
            return
        index = self.made.number[name]
        member = str(read.path[1])
        if member not in STEP_MEMBERS:
            self._unknown("unknown_member", use, read, member, STEP_MEMBERS, f"`steps.{name}` has no member")
        elif member == "approval" and not read.guarded and self.ways.steps[index].gate is None:
            self._error("not_there", use, read, f"`{name}` asks nobody, so it has no approval", None)
        elif member == "signal" and not read.guarded and self.ways.steps[index].signal is None:
            self._error("not_there", use, read, f"`{name}` waits for no signal", None)
        elif member == "output" and not read.guarded and not (use.phase == AFTER and index == use.step):
            self.open.append((use, read, index, self._facts_for(read, index, use)))

    def _context(self, use: Use, read: Read) -> None:
        declared = self.sound.get("context", {})
        if not read.path or read.path[0] in declared:
            return
        name = str(read.path[0])
        near = self.report.nearest(name, declared)
        if near is not None:
            self._unknown("unknown_context_key", use, read, name, declared, "there is no context key")
        elif not read.guarded:
            self.report.warning(
                "undeclared_context_key",
                f"`{name}` is not declared under `context`; it is there only if the trigger gives it",
                place_of(use, read),
                found=name,
            )

    def _state(self, use: Use, read: Read) -> None:
        if read.path and read.path[0] not in self.sound.get("state", {}):
            self._unknown("unknown_state_key", use, read, str(read.path[0]), self.sound.get("state", {}), "there is no state key")

    def _input(self, use: Use, read: Read) -> None:
        schema = self.workflow.input_schema
        if schema is None or not read.path or not isinstance(read.path[0], str) or not isinstance(schema.source, Mapping):
            return
        properties: Mapping[str, Any] = schema.source.get("properties", {})
        name = read.path[0]
        if name in properties:
            if not read.guarded and name not in schema.source.get("required", ()):
                filled = "; a `default` in a schema fills nothing in" if "default" in properties[name] else ""
                self.report.warning(
                    "perhaps_absent",
                    f"`input.{name}` is not required, so it may be absent: require it, or write `| default(…)`{filled}",
                    place_of(use, read),
                    found=_text(read),
                )
        elif schema.source.get("additionalProperties") is False or (self.report.nearest(name, properties) and not read.guarded):
            self._unknown("unknown_input", use, read, name, properties, "`input_schema` has no property")

    # Outputs

    def _facts_for(self, read: Read, index: int, use: Use) -> list[int]:
        """Facts that would make the read certain.

        One of the places that were asked for before it is there, or its step was skipped by what would skip the reader too.
        """
        bit = 1 << index
        members = bit
        for place in read.unless:
            if len(place) >= 3 and place[0] == "steps" and place[2] == "output" and place[1] in self.made.number:
                members |= 1 << self.made.number[str(place[1])]
        numbers = []
        skipped = self._skipped_alike(use, members)
        if members != bit or skipped:
            numbers.append(self.facts.setdefault(Fact(members, skipped), len(self.facts)))
        return numbers

    def _skipped_alike(self, use: Use, members: int) -> int:
        """The steps whose `when` the reader's own `when` implies."""
        if use.step is None or use.phase == WHEN:
            return 0
        when = self.ways.steps[use.step].when
        mine = set(when.conjuncts) if when is not None else set()
        skipped = 0
        for index in bits(members):
            other = self.ways.steps[index].when
            if other is not None and set(other.conjuncts) <= mine:
                skipped |= 1 << index
        return skipped

    def _certain(self, flow: Flow, at_end: int, use: Use, read: Read, index: int, numbers: list[int]) -> None:
        if use.step is None:
            certain = at_end
        else:
            certain = flow.certain[use.step]
            if use.phase == AFTER:
                certain |= 1 << use.step
        if certain >> index & 1 or any(certain & flow.fact(number) for number in numbers) or self._tested(use, index):
            return
        self._open(use, read, index)

    def _tested(self, use: Use, index: int) -> bool:
        """Whether the reader's `when` asks for the success of the step."""
        when = self.ways.steps[use.step].when if use.step is not None and use.phase != WHEN else None
        if when is None:
            return False
        id = self.made.ids[index]
        tests = {
            c for text in (f"steps.{id}.status == 'SUCCESS'", f"steps.{id}.output is defined") for c in compile_expression(text).conjuncts
        }
        return bool(tests & set(when.conjuncts))

    def _open(self, use: Use, read: Read, index: int) -> None:
        id, what = self.made.ids[index], _text(read)
        way_out = f"write `{what} | default(…)`, or let a `when` ask for `steps.{id}.status == 'SUCCESS'`"
        if use.phase == END:
            self.report.warning("open_read", f"`{what}` gives null if `{id}` has not ended SUCCESS", place_of(use, read), found=what)
            return
        assert use.step is not None
        reader = self.made.ids[use.step]
        if index == use.step:
            message = f"`{reader}` reads its own output, which is not there the first time; {way_out}"
            self.report.error("open_read", message, place_of(use, read), found=what, via=(reader,))
            return
        names = self.ways.names(self.ways.path(use.step, avoiding=index))
        why = self._why(index, use.step, names)
        on = f" on the path {arrow(names)}" if names else ""
        self.report.error(
            "open_read", f"`{what}` may be absent in `{reader}`{on}: {why}; {way_out}", place_of(use, read), found=what, via=names
        )

    def _why(self, index: int, reader: int, names: tuple[str, ...]) -> str:
        step: Step = self.ways.steps[index]
        id = step.id
        if id not in names:
            handler = self.ways.roots >> reader & 1 and reader not in self.ways.draft.reading.start
            return f"a handler runs wherever the instance failed, so `{id}` may not have run" if handler else f"`{id}` is not on it"
        if step.when is not None:
            return f"`{id}` may be skipped by its `when`"
        return f"`{id}` may have failed or been skipped there and then has no output"

    # Words

    def _unknown(self, code: str, use: Use, read: Read, name: str, known: Collection[str], message: str) -> None:
        shown = sorted(known)[:20]
        expected = "one of " + ", ".join(shown) if shown else "no name: none is declared"
        self.report.error(
            code,
            f"{message} `{name[:80]}` (in `{_text(read)}`)",
            place_of(use, read),
            found=name[:80],
            expected=expected,
            nearest=self.report.nearest(name, known),
        )

    def _error(self, code: str, use: Use, read: Read, message: str, expected: str | None) -> None:
        self.report.error(
            code, f"`{_text(read)}` cannot be read here: {message}", place_of(use, read), found=_text(read), expected=expected
        )

    def _after_errors(self) -> int:
        """Steps that an exception leads to, directly or by what follows."""
        made = self.made
        seeds = mask_of(t for links in self.ways.links for link in links if link.exceptional for t in link.target.steps)
        seeds |= mask_of((*made.finally_, *(() if made.error_handler is None else (made.error_handler,))))
        going_on = mask_of(e.target for s in range(self.ways.count) if self.ways.goes_on(s) for e in self.ways.after[s])
        taken = mask_of(e.target for s in bits(self.ways.allows_failed) for e in self.ways.after[s])
        return self.ways.reachable(seeds | going_on | taken)


def _text(read: Read) -> str:
    return path_text(read.root, read.path)


def written_keys(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of context and state that a step writes, each with the block in which it stands."""
    for block in ("values", "writes"):
        for key in source.get(block, {}):
            yield block, key
