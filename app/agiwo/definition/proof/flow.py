"""Which steps have certainly ended SUCCESS when another one starts: a must-analysis over the graph, with sets of steps as bit masks.

Follows how the machine settles steps and fires joins (LANGUAGE 1 and 2); what it cannot decide counts as not certain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from agiwo.definition.compiled import Join, JoinKind, Step, Word
from agiwo.definition.outline import Link
from agiwo.definition.proof.ways import Ways, bits
from agiwo.definition.reading import mask_of


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that may be certain although no single step is.

    It holds if one of `members` succeeded, or one of `skipped` was skipped by its `when`.
    """

    members: int
    skipped: int = 0


class Flow:
    """`certain[s]` has the steps that ended SUCCESS on every path to the start of s, and from bit `count` on the facts that hold there."""

    def __init__(self, ways: Ways, facts: Iterable[Fact] = ()) -> None:
        self.ways = ways
        self.facts = tuple(facts)
        self.count = ways.count
        self.top = (1 << (self.count + len(self.facts))) - 1
        self.certain = [self.top] * self.count
        self._jumps: list[list[Link]] = [[] for _ in range(self.count)]
        for links in ways.links:
            for link in links:
                for target in link.target.steps:
                    self._jumps[target].append(link)
        self._blocked = [self._block(step) for step in ways.steps]
        self._always = [
            mask_of(t for link in ways.links[i] if link.kind == "success" for t in link.target.steps) for i in range(self.count)
        ]
        self._waiting: list[list[Step]] = [[] for _ in range(self.count)]
        for step in ways.steps:
            for source in step.join.sources if step.join else ():
                self._waiting[source].append(step)
        self._solve()

    def fact(self, number: int) -> int:
        """The bit of a fact."""
        return 1 << (self.count + number)

    def at_end(self) -> int:
        """What is certain when nothing runs, waits or can start."""
        ends = self.top
        for step in self.ways.steps:
            if not self.ways.roots >> step.index & 1 and self.certain[step.index] == self.top:
                continue
            for outcome in self._ends(step):
                ends &= outcome
        return self._closed(ends if ends != self.top else 0, mask_of(self.ways.draft.reading.start), (1 << self.count) - 1)

    # The equations

    def _solve(self) -> None:
        todo = list(range(self.count - 1, -1, -1))
        queued = [True] * self.count
        while todo:
            index = todo.pop()
            queued[index] = False
            found = self._at_start(self.ways.steps[index])
            if found == self.certain[index]:
                continue
            self.certain[index] = found
            for after in dict.fromkeys(edge.target for edge in self.ways.after[index]):
                if not queued[after]:
                    queued[after] = True
                    todo.insert(0, after) if after < index else todo.append(after)

    def _at_start(self, step: Step) -> int:
        if self.ways.roots >> step.index & 1:
            return 0
        found = self.top
        if step.join is not None:
            found &= self._fired(step, step.join)
        for link in self._jumps[step.index]:
            found &= self._jumped(link)
        return found

    def _jumped(self, link: Link) -> int:
        step = self.ways.steps[link.source]
        if link.exceptional:
            return self._failed(step)
        if link.kind == "skip":
            return self._skipped(step)
        found = self._succeeded(step)
        if self.ways.goes_on(step.index):
            found &= self._failed(step)
        if link.kind == "success" and step.on_skip is None:
            found &= self._skipped(step)
        return found

    def _fired(self, step: Step, join: Join) -> int:
        sources = [self.ways.steps[s] for s in join.sources]
        if join.kind is JoinKind.ALL_SUCCESS or (join.kind.counts and not join.early):
            return reduce(lambda a, b: a | b, (self._settled(s) for s in sources))
        if join.early:
            return _in_any(join.need, [self._settled(s) for s in sources])
        if join.kind is JoinKind.ALL_DONE:
            ways_in = [self._news(s) for s in sources]
        elif join.kind is JoinKind.ROW:
            ways_in = [self._passed(s) for s in sources]
        else:
            ways_in = [self._settled(s) for s in sources]
        both = reduce(lambda a, b: a & b, ways_in)
        either = reduce(lambda a, b: a | b, ways_in)
        if both == either or either == self.top:
            return both
        rested = self.ways.waits_for(step)
        seeds = mask_of(self.ways.draft.reading.start)
        active = mask_of(join.sources) if join.kind is JoinKind.ROW else 0
        return reduce(lambda a, b: a & b, (self._closed(way, seeds | active, rested) for way in ways_in))

    # How one step can have ended

    def _succeeded(self, step: Step) -> int:
        return self._gained(self.certain[step.index] | step.bit)

    def _settled(self, step: Step) -> int:
        """As a source that counts as succeeded."""
        return self._succeeded(step) & self._failed(step) if self.ways.goes_on(step.index) else self._succeeded(step)

    def _failed(self, step: Step) -> int:
        return self._lost(self.certain[step.index], step)

    def _skipped(self, step: Step) -> int:
        """By its `when`, or by a join that could not be met (then at least one source had come to an end); all if neither can be."""
        found = self.top
        if step.when is not None:
            found &= self._gained_by_skip(self._lost(self.certain[step.index], step), step)
        if step.join is not None and step.join.kind not in (JoinKind.ALL_DONE, JoinKind.ROW) and self._may_not_fire(step.join):
            for source in step.join.sources:
                found &= self._lost(self._news(self.ways.steps[source]), step)
        return found

    def _passed(self, step: Step) -> int:
        """As a source in a row: the row goes on after success, a skip, `continue`, and a route to `next`."""
        found = self._succeeded(step)
        if step.when is not None:
            found &= self._gained_by_skip(self._lost(self.certain[step.index], step), step)
        if self.ways.goes_on(step.index) or any(link.target.word is Word.NEXT for link in self.ways.links[step.index] if link.exceptional):
            found &= self._failed(step)
        return found

    def _news(self, step: Step) -> int:
        return self._failed(step) & (self._skipped(step) if step.when is not None or step.join is not None else self.top)

    def _may_not_fire(self, join: Join) -> bool:
        return any(self._blocked[s] or self._reached_by_choice(s) for s in join.sources)

    def _reached_by_choice(self, index: int) -> bool:
        """Whether a step may not be reached at all while others are: only its own unconditional ways in are trusted."""
        step = self.ways.steps[index]
        if step.index in self.ways.draft.reading.start:
            return False
        if step.join is not None:
            return self._may_not_fire(step.join) if step.join.kind is not JoinKind.ALL_DONE else False
        return True

    def _ends(self, step: Step) -> list[int]:
        """What is certain after each end of a step after which its path is complete."""
        out: list[int] = []
        links = self.ways.links[step.index]
        onward = any(link.target.steps for link in links if link.kind in ("success", "route")) or bool(self._waiting[step.index])
        open_route = any(not link.target.steps for link in links if link.kind in ("success", "route"))
        if not onward or open_route:
            out.append(self._succeeded(step))
            if step.when is not None:
                out.append(self._skipped(step))
            if self.ways.goes_on(step.index):
                out.append(self._failed(step))
        if any(link.kind == "skip" and not link.target.steps for link in links) and step.when is not None:
            out.append(self._skipped(step))
        if any(link.exceptional and not link.target.steps and link.target.word in (Word.END, None) for link in links):
            out.append(self._failed(step))
        return out

    # Facts

    def _gained(self, mask: int) -> int:
        for number, fact in enumerate(self.facts):
            if fact.members & mask:
                mask |= self.fact(number)
        return mask

    def _gained_by_skip(self, mask: int, step: Step) -> int:
        for number, fact in enumerate(self.facts):
            if fact.skipped & step.bit:
                mask |= self.fact(number)
        return mask

    def _lost(self, mask: int, step: Step) -> int:
        """`step` has no output any more; a fact that rests on it holds only if another member carries it."""
        mask &= ~step.bit
        for number, fact in enumerate(self.facts):
            if fact.members & step.bit and not fact.members & mask:
                mask &= ~self.fact(number)
        return mask

    # What follows from what

    def _block(self, step: Step) -> int:
        """What can keep a step that was started from ending SUCCESS while the instance goes on: 1 a skip or `continue`, 2 another end."""
        links = self.ways.links[step.index]
        block = 0
        if step.when is not None or self.ways.goes_on(step.index):
            block |= 1
        other = any(link.exceptional and link.target.word not in (Word.CONTINUE, Word.FAIL) for link in links)
        if other or (self.ways.allows_failed | self.ways.cancellable) & step.bit or (step.when is not None and step.on_skip is not None):
            block |= 2
        return block

    def _closed(self, known: int, started: int, rested: int) -> int:
        """Add to `known` what must have succeeded too, if these steps started and those in `rested` have come to rest."""
        ways = self.ways
        steps_only = (1 << self.count) - 1
        passed = known & steps_only
        seen = 0
        new = (started & rested) | (known & steps_only)
        while new:
            seen |= new
            fresh = 0
            for index in bits(new):
                bit = 1 << index
                if not known & bit:
                    step, block = ways.steps[index], self._blocked[index]
                    if not block:
                        known |= bit
                    elif block == 1 and step.when is not None and not ways.goes_on(index):
                        known = self._gained_by_skip(known, step) if self._tolerated(step) else known
                    if block & 2:
                        continue
                passed |= bit
                fresh |= self._always[index]
                for waiting in self._waiting[index]:
                    join = waiting.join
                    if join is not None and join.mask & (passed if join.kind is JoinKind.ROW else known) == join.mask:
                        fresh |= waiting.bit
            new = fresh & rested & ~seen
        return self._gained(known)

    def _tolerated(self, step: Step) -> bool:
        return any(fact.skipped & step.bit for fact in self.facts)


def _in_any(need: int, ways_in: list[int]) -> int:
    """What is certain if any `need` of these have come to pass: what fewer than `need` of them lack."""
    lacking = [0] * (need + 1)  # by number: the bits that at least so many lack
    lacking[0] = -1
    for way in ways_in:
        for count in range(need, 0, -1):
            lacking[count] |= lacking[count - 1] & ~way
    return reduce(lambda a, b: a | b, ways_in) & ~lacking[need]
