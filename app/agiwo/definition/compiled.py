"""A workflow as the machine reads it: steps by number, edges, routes and templates compiled once, nothing of the text left.

Made by `compile_workflow` at publishing and at loading; immutable, shared by all instances of a version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agiwo.definition.contract import Effect, ToolContract
from agiwo.schema import Schema
from agiwo.template import Expression, ValueTemplate

#: Seconds for which a signal is kept that came before anybody waited for it.
KEEP = 24 * 3600.0


class Kind(StrEnum):
    """The types of steps."""

    TOOL_CALL = "tool_call"
    LLM_TASK = "llm_task"
    WAIT = "wait"
    WAIT_FOR_SIGNAL = "wait_for_signal"
    APPROVAL = "approval"
    SET = "set"
    BRANCH = "branch"
    END = "end"
    FAIL = "fail"


class Word(StrEnum):
    """Reserved targets."""

    NEXT = "next"  # the step written after this one
    END = "end"  # this path is complete
    FAIL = "fail"  # the failure counts as unhandled
    CONTINUE = "continue"  # the failure is settled; go on as after success


@dataclass(frozen=True, slots=True)
class Target:
    """Where a route leads: steps by number that start together, or one reserved word. In a graph `next` is already a number."""

    steps: tuple[int, ...] = ()
    word: Word | None = None


@dataclass(frozen=True, slots=True)
class FailureRoute:
    """Takes failures of these types and their children; no types means all."""

    errors: tuple[str, ...]
    target: Target


@dataclass(frozen=True, slots=True)
class Case:
    when: Expression
    target: Target


@dataclass(frozen=True, slots=True)
class Route:
    """Picks what follows from values: `choose` compares its text with the labels of `targets`, else the first true case."""

    choose: Expression | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    cases: tuple[Case, ...] = ()
    default: Target | None = None


class JoinKind(StrEnum):
    ROW = "row"  # the steps written before in a list that is read in order
    NONE_FAILED = "none_failed"
    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ANY = "any"
    AT_LEAST = "at_least"

    @property
    def counts(self) -> bool:
        """Whether so many successes are enough, whatever becomes of the other sources."""
        return self is _ANY or self is _AT_LEAST

    @property
    def allows_failed(self) -> bool:
        """Whether a failed source may count as handled: somebody waits for it whatever happens, or does not need it."""
        return self is JoinKind.ALL_DONE or self.counts


#: Joins are looked at in every decision, and Python 3.11 finds the member of an enumeration slowly.
_ANY, _AT_LEAST = JoinKind.ANY, JoinKind.AT_LEAST


@dataclass(frozen=True, slots=True)
class Join:
    """What a step waits for: the sources by number, and how their ends count.

    `need` is how many successes are enough where `kind` counts them; `cancel_rest` stops what still leads to the others then.
    """

    kind: JoinKind
    sources: tuple[int, ...]
    mask: int
    need: int = 0
    cancel_rest: bool = False

    @property
    def early(self) -> bool:
        """Whether it may be met while a source is still under way."""
        return self.kind.counts and self.need < len(self.sources)

    def to_json(self) -> str | dict[str, int]:
        """As a definition writes it."""
        return {"at_least": self.need} if self.kind is JoinKind.AT_LEAST else self.kind.value


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when again; seconds. `max_attempts` counts the first try too; `retry_on` None means the default of `by_author`."""

    max_attempts: int
    delay: float
    backoff: float = 1.0
    max_delay: float | None = None
    jitter: float = 0.0
    retry_on: tuple[str, ...] | None = None
    give_up_on: tuple[str, ...] = ()
    when: Expression | None = None
    by_author: bool = True


@dataclass(frozen=True, slots=True)
class Gate:
    """An approval: when it is asked (`before` the call or `after` it), what is shown, who decides, what follows. `timeout` in seconds."""

    at: str
    condition: Expression | None = None
    title: ValueTemplate | None = None
    show: ValueTemplate | None = None
    fields: Schema | None = None
    approvers: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    timeout: float = 72 * 3600.0
    on_timeout: Target | str = "reject"  # "reject", "fail" or a target
    on_reject: Target | None = None


class FallbackKind(StrEnum):
    """What is taken instead of a call that failed for good."""

    VALUE = "value"  # a value made from what is there, and from the error
    TOOL = "tool"  # the result of another call
    LAST_GOOD = "last_good"  # an earlier result of the same tool with the same arguments


@dataclass(frozen=True, slots=True)
class Fallback:
    """What follows when a call's tries are used up or its circuit is open.

    `step` is the step as it is carried out from then on: the same in what follows and what it leaves, another in what it calls, without a
    fallback of its own.
    """

    kind: FallbackKind
    step: Step
    value: ValueTemplate | None = None


@dataclass(frozen=True, slots=True)
class Awaited:
    """An event that a step waits for: its name, what must hold of the signal, and where it leads if that is not the usual way."""

    event: ValueTemplate
    match: Expression | None = None
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class SignalWait:
    """What a step waits for outside: the first of `awaited` that comes.

    `keep` is how old in seconds a signal may be that came before the wait began (0: only what comes while it waits), `timeout` the seconds
    that it waits (None: for ever).
    """

    awaited: tuple[Awaited, ...]
    keep: float
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One vertex of the graph.

    `index` is its number in its list, `arguments` what is rendered and frozen for a call (for a model step: `system_prompt`,
    `task_prompt` and `include`), `timeout` the seconds of one attempt, `total_timeout` from first start to final,
    `max_iterations` how often jumps may run it. `recall` says that instead of a call the last good result is handed on, if it is not older
    than so many seconds.
    `definition` is the step as it was written, for digests and for showing.
    """

    id: str
    index: int
    kind: Kind
    name: str | None = None
    definition: Mapping[str, Any] = field(default_factory=dict)
    when: Expression | None = None
    guard: Expression | None = None
    join: Join | None = None
    set_aside: bool = False
    in_row: bool = False
    # what follows
    on_success: Target | None = None
    on_skip: Target | None = None
    on_timeout: Target | None = None
    on_reject: Target | None = None
    on_failure: tuple[FailureRoute, ...] = ()
    route: Route | None = None
    # how it runs
    effect: Effect = Effect.PURE
    tool: str | None = None
    contract: ToolContract | None = None
    parameters_schema: Schema | None = None
    arguments: ValueTemplate | None = None
    llm: Mapping[str, Any] = field(default_factory=dict)
    repair_attempts: int = 2
    output_schema: Schema | None = None
    timeout: float = 30.0
    total_timeout: float | None = None
    heartbeat: float | None = None  # the longest silence of a call, or of whoever will call back
    callback: float | None = None  # the call is answered later, within so many seconds
    isolated: bool = False  # a sync tool runs in a process of its own
    retry: Retry = field(default_factory=lambda: Retry(1, 0.0))
    gate: Gate | None = None
    max_iterations: int = 100
    fallback: Fallback | None = None
    recall: float | None = None
    # what it leaves
    output: ValueTemplate | None = None
    writes: tuple[tuple[str, ValueTemplate], ...] = ()
    # wait: seconds, or a timestamp with zone
    duration: ValueTemplate | None = None
    until: ValueTemplate | None = None
    signal: SignalWait | None = None
    # end and fail
    end_status: str = "SUCCESS"
    fail_error: ValueTemplate | None = None

    @property
    def bit(self) -> int:
        return 1 << self.index


@dataclass(frozen=True, slots=True)
class Edge:
    """What leads where: kind is success, failure, skip, timeout, reject, route, depends or row."""

    source: int
    target: int
    kind: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class StepList:
    """A compiled `steps` list. Sets of steps are bit masks over their numbers, so that a decision's cost hardly grows with the list."""

    steps: tuple[Step, ...]
    reads_as: str  # "in_order" or "graph"
    start: tuple[int, ...]
    edges: tuple[Edge, ...]
    number: Mapping[str, int]
    waiting_on: tuple[int, ...]  # by step: mask of the steps whose join has it as a source
    _coming: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)
    _before: list[int] = field(default_factory=list, compare=False, repr=False)  # by step: mask of those from which an edge leads to it

    def __getitem__(self, id: str) -> Step:
        return self.steps[self.number[id]]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def leading_to(self, source: int, without: int) -> int:
        """Mask of the steps from which `source` can still be reached without passing through step `without` (LANGUAGE 2, joins)."""
        key = (source, without)
        known = self._coming.get(key)
        if known is None:
            known = self._coming[key] = self._leading_to(source, without)
        return known

    def _leading_to(self, source: int, without: int) -> int:
        if not self._before:
            self._before.extend([0] * len(self.steps))
            for edge in self.edges:
                self._before[edge.target] |= 1 << edge.source
        mask = new = 1 << source
        while new:
            found = 0
            while new:
                low = new & -new
                found |= self._before[low.bit_length() - 1]
                new ^= low
            new = found & ~mask & ~(1 << without)
            mask |= new
        return mask


@dataclass(frozen=True, slots=True)
class StateKey:
    """A declared key of the state: what it may hold and how writes meet."""

    reducer: str = "replace"
    schema: Schema | None = None
    default: Any = None
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class Workflow:
    """One published version, ready to run. Times in seconds."""

    id: str
    version: str
    content_hash: str
    body: StepList
    description: str = ""
    input_schema: Schema | None = None
    context: tuple[tuple[str, ValueTemplate], ...] = ()
    state: Mapping[str, StateKey] = field(default_factory=dict)
    output: ValueTemplate | None = None
    timeout: float | None = None
    handler_timeout: float = 900.0
    error_handler: int | None = None
    finally_: tuple[int, ...] = ()
    definition: Mapping[str, Any] = field(default_factory=dict)
