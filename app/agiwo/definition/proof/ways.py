"""The graph of a draft as bit masks: who leads to whom, what a join waits for, and paths to show.

Answers questions for the proofs; finds no fault itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from agiwo.definition.compile import Draft
from agiwo.definition.compiled import Edge, JoinKind, Step, Word
from agiwo.definition.outline import Link
from agiwo.definition.reading import mask_of

#: Kinds of edges that a join carries; all others are jumps.
JOINED = ("depends", "row")


class Ways:
    """Masks over the steps of one draft."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.made = draft.outline
        self.steps = draft.workflow.body.steps
        self.count = len(self.steps)
        self.edges = draft.reading.edges
        self.before = [0] * self.count
        self.leads = [0] * self.count
        self.after: list[list[Edge]] = [[] for _ in range(self.count)]
        for edge in self.edges:
            self.before[edge.target] |= 1 << edge.source
            self.leads[edge.source] |= 1 << edge.target
            self.after[edge.source].append(edge)
        self.links: list[list[Link]] = [[] for _ in range(self.count)]
        for link in draft.reading.links:
            self.links[link.source].append(link)
        self._waits: dict[int, int] = {}

    @cached_property
    def roots(self) -> int:
        """Steps that something else than another step starts."""
        made = self.made
        handlers = (*made.finally_, *(() if made.error_handler is None else (made.error_handler,)))
        return mask_of((*self.draft.reading.start, *handlers))

    @cached_property
    def jumped(self) -> int:
        """Steps that a jump leads to."""
        return mask_of(edge.target for edge in self.edges if edge.kind not in JOINED)

    @cached_property
    def allows_failed(self) -> int:
        """Steps whose failure a join takes."""
        return mask_of(s for step in self.steps if step.join and step.join.kind.allows_failed for s in step.join.sources)

    @cached_property
    def cancellable(self) -> int:
        """Steps that a join stops when it has enough: all that lead to its sources."""
        body = self.draft.workflow.body
        mask = 0
        for step in self.steps:
            if step.join is not None and step.join.cancel_rest:
                for source in step.join.sources:
                    mask |= body.leading_to(source, step.index)
        return mask

    def waits_for(self, step: Step) -> int:
        """Mask of the steps that must have come to rest before the step's join fires; none where some sources are enough."""
        known = self._waits.get(step.index)
        if known is None:
            without = ~step.bit
            mask = (step.join.mask if step.join and not step.join.early else 0) & without
            new = mask
            while new:
                mask |= new
                reached = 0
                for index in bits(new):
                    reached |= self.before[index]
                new = reached & without & ~mask
            known = self._waits[step.index] = mask
        return known

    def reachable(self, roots: int, without: int = 0) -> int:
        """Mask of the steps that can be reached from `roots` without passing through `without`."""
        new = mask = roots & ~without
        while new:
            reached = 0
            for index in bits(new):
                reached |= self.leads[index]
            new = reached & ~without & ~mask
            mask |= new
        return mask

    def path(self, goal: int, *, avoiding: int | None = None, roots: int | None = None) -> list[int]:
        """A shortest path from a root to `goal`, on which `avoiding` has not succeeded (it may be skipped or fail); [] if there is none."""
        came: dict[int, int | None] = {root: None for root in bits(self.roots if roots is None else roots)}
        todo = list(came)
        for index in todo:
            if index == goal and not (avoiding == goal and came[index] is None and len(todo) > 1):
                break
            for edge in self.after[index]:
                if edge.target not in came and (index != avoiding or self._passes_without_success(index, edge)):
                    came[edge.target] = index
                    todo.append(edge.target)
        if goal not in came:
            return []
        path: list[int] = []
        here: int | None = goal
        while here is not None:
            path.append(here)
            here = came[here]
        return path[::-1]

    def _passes_without_success(self, index: int, edge: Edge) -> bool:
        step = self.steps[index]
        if edge.kind in ("failure", "timeout", "reject", "skip"):
            return True
        waiting = self.steps[edge.target].join
        if edge.kind == "depends" and waiting is not None and (waiting.kind is JoinKind.ALL_DONE or waiting.early):
            return True
        skippable = step.when is not None or step.join is not None or self.goes_on(index)
        return skippable and edge.kind in ("success", "row", "depends")

    def goes_on(self, index: int) -> bool:
        """Whether a failure of the step can be settled by `continue`."""
        return any(link.target.word is Word.CONTINUE for link in self.links[index])

    def names(self, path: list[int]) -> tuple[str, ...]:
        """The ids of a path."""
        return tuple(self.made.ids[index] for index in path)


def bits(mask: int) -> Iterator[int]:
    """The step numbers in a mask, in order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def arrow(names: tuple[str, ...]) -> str:
    """A path in words."""
    shown = names if len(names) <= 12 else (*names[:6], "…", *names[-5:])
    return " → ".join(shown)
