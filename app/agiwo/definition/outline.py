"""The steps of a list with all that names another step: who leads where, by which kind of link, and which names are wrong.

Resolves names only; how the list is read stands in `reading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agiwo.definition.compiled import Target, Word
from agiwo.definition.report import Path, Report
from agiwo.definition.shape import BAD, not_supported
from agiwo.errors import is_a
from agiwo.template import ROOTS

EXCEPTIONS = ("failure", "timeout", "reject")
RESERVED = frozenset({*(w.value for w in Word), "compensate"}) | ROOTS
_PLAIN_WORDS = (Word.NEXT, Word.END, Word.FAIL)
_FAILURE_WORDS = (*_PLAIN_WORDS, Word.CONTINUE)


@dataclass(frozen=True, slots=True)
class Link:
    """One place where a step names what follows. `errors` narrows a failure link; `at` is the place in the document."""

    source: int
    kind: str
    target: Target
    at: Path
    label: str | None = None
    errors: tuple[str, ...] = ()

    @property
    def exceptional(self) -> bool:
        return self.kind in EXCEPTIONS


@dataclass(slots=True)
class Outline:
    """The steps that have a name of their own, by number; `placed` says where each stands in the document."""

    ids: list[str] = field(default_factory=list)
    steps: list[Mapping[str, Any]] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    depends: list[tuple[int, ...] | None] = field(default_factory=list)
    error_handler: int | None = None
    finally_: tuple[int, ...] = ()

    def place(self, index: int, *more: str | int) -> Path:
        """The path of a step's part in the document."""
        return ("steps", self.placed[index], *more)

    def named(self, index: int) -> str:
        return f"`{self.ids[index]}`"

    def out(self, index: int) -> list[Link]:
        """The links of one step, in the order in which they stand."""
        return [link for link in self.links if link.source == index]


def outline(sound: Mapping[str, Any], report: Report) -> Outline:
    """Read names and links of a document whose form was checked; unknown, reserved and repeated names are reported and left out."""
    made = Outline()
    steps = sound.get("steps", ())
    for place, step in enumerate(steps):
        if step is not BAD and isinstance(step.get("id"), str):
            _enter(made, report, place, step)
    for index in range(len(made.ids)):
        _Linker(made, report, index).link()
    if "error_handler" in sound:
        made.error_handler = _handler(made, report, sound["error_handler"], ("error_handler",))
    handlers = (_handler(made, report, id, ("finally", n)) for n, id in enumerate(sound.get("finally", ())) if id is not BAD)
    made.finally_ = tuple(h for h in handlers if h is not None)
    return made


def _enter(made: Outline, report: Report, place: int, step: Mapping[str, Any]) -> None:
    id = step["id"]
    at = ("steps", place, "id")
    if id in RESERVED:
        report.error("reserved_name", f"`{id}` is a reserved word and cannot be the id of a step", at, found=id)
    elif id in made.number:
        first = made.placed[made.number[id]]
        where = report.line_of(("steps", first, "id"))
        report.error("duplicate_id", f"the id `{id}` is used twice, first by {where or f'step {first + 1}'}", at, found=id)
    else:
        made.number[id] = len(made.ids)
        made.ids.append(id)
        made.steps.append(step)
        made.placed.append(place)


def _handler(made: Outline, report: Report, id: Any, at: Path) -> int | None:
    if id in made.number:
        return made.number[id]
    _unknown(made, report, id, at, ())
    return None


def _unknown(made: Outline, report: Report, id: str, at: Path, words: Iterable[str]) -> None:
    known = [*made.ids, *words]
    shown = made.ids if len(made.ids) <= 20 else [*made.ids[:20], "…"]
    expected = "one of " + ", ".join([*shown, *words]) if known else "the id of a step"
    report.error("unknown_step", f"there is no step `{id[:80]}`", at, found=id[:80], expected=expected, nearest=report.nearest(id, known))


class _Linker:
    """Collects the links of one step."""

    def __init__(self, made: Outline, report: Report, index: int) -> None:
        self.made, self.report, self.index = made, report, index
        self.step = made.steps[index]

    def link(self) -> None:
        step = self.step
        self._depends()
        if "on_success" in step:
            self._add("success", step["on_success"], ("on_success",), _PLAIN_WORDS)
        if "on_skip" in step:
            self._add("skip", step["on_skip"], ("on_skip",), _PLAIN_WORDS)
        self._routes(step.get("on_failure"))
        self._gates()
        if isinstance(step.get("route"), dict):
            self._route(step["route"], ("route",))
            if "on_success" in step:
                self._error("said_twice", "`on_success` and `route` exclude each other", ("route",))
        if step.get("type") == "branch":
            self._route(step, ())
        self._first_of(step.get("first_of") or ())

    def _gates(self) -> None:
        step = self.step
        approval = step.get("approval")
        approval = approval if isinstance(approval, dict) else {}
        for key, kind in (("on_timeout", "timeout"), ("on_reject", "reject")):
            inside, outside = key in approval, key in step
            if inside and outside:
                self._error("said_twice", f"`{key}` stands on the step and inside `approval`; write it once", (key,))
            if kind == "reject" and outside and not has_gate(step):
                self._error("no_approval", f"{self.made.named(self.index)} has no approval, so nobody can reject it", (key,))
            if inside:
                self._gate(kind, approval[key], ("approval", key))
            elif outside:
                self._gate(kind, step[key], (key,))

    def _depends(self) -> None:
        named = self.step.get("depends_on")
        if named is None:
            self.made.depends.append(None)
            return
        sources: list[int] = []
        for place, id in enumerate(named):
            at = self._at("depends_on", place) if isinstance(id, str) else ()
            if id is BAD:
                continue
            if id not in self.made.number:
                _unknown(self.made, self.report, id, at, ())
            elif self.made.number[id] in sources:
                self.report.error("said_twice", f"`{id}` stands twice in `depends_on`", at, found=id)
            else:
                sources.append(self.made.number[id])
        self.made.depends.append(tuple(sources))

    def _routes(self, value: Any) -> None:
        if value is None:
            return
        if not isinstance(value, list):
            self._add("failure", value, ("on_failure",), _FAILURE_WORDS)
            return
        taken: dict[str, int] = {}
        for place, entry in enumerate(value):
            if entry is BAD:
                continue
            at: tuple[str | int, ...] = ("on_failure", place)
            errors: tuple[str, ...] = ()
            if isinstance(entry, dict):
                errors = tuple(e for e in entry.get("errors", ()) if e is not BAD)
                entry, at = entry.get("goto", BAD), (*at, "goto")
            self._never_taken(errors, taken, place)
            if entry is not BAD:
                self._add("failure", entry, at, _FAILURE_WORDS, errors=errors)

    def _never_taken(self, errors: tuple[str, ...], taken: dict[str, int], place: int) -> None:
        """The first match wins, so what stands behind a match of everything is never reached."""
        whole = taken.get("")
        for name, entry in taken.items():
            if errors and all(name and is_a(e, name) for e in errors):
                self._error(
                    "never_taken", f"this route can never be taken: entry {entry + 1} takes `{name}` before it", ("on_failure", place)
                )
                break
        else:
            # A route for everything leaves out only what has an unknown outcome.
            if whole is not None and (not errors or all(not is_a(e, "UnknownOutcome") for e in errors)):
                self._error("never_taken", f"this route can never be taken: entry {whole + 1} takes every error", ("on_failure", place))
        for name in errors or ("",):
            taken.setdefault(name, place)

    def _gate(self, kind: str, value: Any, at: tuple[str | int, ...]) -> None:
        if kind == "timeout" and has_gate(self.step):
            if value == "escalate":
                not_supported(self.report, self._at(*at), "`on_timeout: escalate`")
                return
            if value == "reject":
                return
        self._add(kind, value, at, _FAILURE_WORDS)

    def _route(self, route: Mapping[str, Any], at: tuple[str | int, ...]) -> None:
        if at and ("choose" in route) == ("cases" in route):
            self._error("wrong_form", "a route has either `choose` with `targets`, or `cases`", at, expected="choose and targets, or cases")
        if at and ("choose" in route) != ("targets" in route):
            self._error("wrong_form", "`choose` and `targets` go together", at, expected="choose and targets")
        for label, value in (route.get("targets") or {}).items():
            if value is not BAD:
                self._add("route", value, (*at, "targets", label), _PLAIN_WORDS, label)
        seen: dict[str, int] = {}
        for place, case in enumerate(route.get("cases") or ()):
            if case is BAD:
                continue
            when = str(case.get("when", place)).strip()
            if when in seen:
                self._error(
                    "never_taken", f"this case can never be taken: case {seen[when] + 1} has the same condition", (*at, "cases", place)
                )
            seen.setdefault(when, place)
            if "goto" in case:
                self._add("route", case["goto"], (*at, "cases", place, "goto"), _PLAIN_WORDS, str(case.get("when", "")))
        if "default" in route:
            self._add("route", route["default"], (*at, "default"), _PLAIN_WORDS, "default")

    def _first_of(self, awaited: Sequence[Any]) -> None:
        """Each event may lead its own way; what has none goes on as after success."""
        leading = [place for place, part in enumerate(awaited) if part is not BAD and "goto" in part]
        for place in leading:
            self._add("route", awaited[place]["goto"], ("first_of", place, "goto"), _PLAIN_WORDS, str(awaited[place].get("event", "")))
        if leading and "route" in self.step:
            self._error("said_twice", "`route` and the `goto` of `first_of` exclude each other", ("route",))
        elif leading and len(leading) == len(awaited) and "on_success" in self.step:
            self._error("never_taken", "`on_success` is never taken: every event of `first_of` has its own `goto`", ("on_success",))

    def _add(
        self,
        kind: str,
        value: Any,
        at: tuple[str | int, ...],
        words: tuple[Word, ...],
        label: str | None = None,
        errors: tuple[str, ...] = (),
    ) -> None:
        names = value if isinstance(value, list) else [value]
        allowed = {w.value for w in words}
        steps: list[int] = []
        for place, name in enumerate(names):
            where = self._at(*at, place) if isinstance(value, list) else self._at(*at)
            if name is BAD:
                continue
            if name in allowed and len(names) == 1:
                self.made.links.append(Link(self.index, kind, Target(word=Word(name)), where, label, errors))
                return
            if name in allowed:
                self.report.error(
                    "wrong_target", f"`{name}` stands alone, not in a list with steps", where, found=name, expected="the ids of steps"
                )
            elif name == "compensate" and words == _FAILURE_WORDS:
                not_supported(self.report, where, "`compensate`")
            elif name in (Word.CONTINUE, "compensate"):
                self.report.error("wrong_target", f"`{name}` is only for failures", where, found=name, expected="the id of a step")
            elif name not in self.made.number:
                _unknown(self.made, self.report, name, where, [w.value for w in words])
            elif self.made.number[name] in steps:
                self.report.error("said_twice", f"`{name}` stands twice here", where, found=name)
            else:
                steps.append(self.made.number[name])
        if steps:
            self.made.links.append(Link(self.index, kind, Target(tuple(steps)), self._at(*at), label, errors))

    def _at(self, *more: str | int) -> Path:
        return self.made.place(self.index, *more)

    def _error(self, code: str, message: str, at: tuple[str | int, ...], **more: Any) -> None:
        self.report.error(code, message, self._at(*at), key=not at or isinstance(at[-1], str), **more)


def has_gate(step: Mapping[str, Any]) -> bool:
    """Whether a person is asked somewhere in this step."""
    return step.get("requires_approval", False) is not False or "approval" in step
