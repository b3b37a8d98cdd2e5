"""Which steps can be live at once; no step is started twice at once, and concurrent writers of one key need a reducer.

Takes the graph as it is; whether a step can be reached is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from agiwo.definition.compiled import Edge, JoinKind, Step
from agiwo.definition.proof.ways import JOINED, Ways, bits
from agiwo.definition.reading import mask_of
from agiwo.definition.report import Report


def prove_liveness(ways: Ways, report: Report) -> None:
    """Report targets that would run twice, writers that would overwrite each other, and joins that stop more than what leads to them."""
    together = live_together(ways)
    _twice(ways, together, report)
    _writers(ways, together, report)
    _cut_short(ways, together, report)


def live_together(ways: Ways) -> list[int]:
    """For each step the mask of the steps that may be live while it is."""
    together = [0] * ways.count
    todo: list[tuple[int, int]] = []

    def meet(x: int, y: int) -> None:
        if x != y and not together[x] >> y & 1:
            together[x] |= 1 << y
            together[y] |= 1 << x
            todo.append((x, y))
            todo.append((y, x))

    apart = _apart(ways)
    for started in (ways.draft.reading.start, *_forks(ways)):
        mask = mask_of(started)
        for x in started:
            for y in bits(mask & ~apart[x] & ~together[x]):
                meet(x, y)
    while todo:
        x, y = todo.pop()
        for edge in ways.after[y]:
            if edge.kind not in JOINED or not ways.waits_for(ways.steps[edge.target]) >> x & 1:
                meet(x, edge.target)
    return together


def _apart(ways: Ways) -> list[int]:
    """For each step the mask of those that are never live beside it although one event starts both: one of the two waits for the other."""
    apart = [step.bit for step in ways.steps]
    for step in ways.steps:
        if step.join is not None and not ways.jumped & step.bit:
            for other in bits(ways.waits_for(step)):
                apart[step.index] |= 1 << other
                apart[other] |= step.bit
    return apart


def _forks(ways: Ways) -> Iterator[tuple[int, ...]]:
    """What one end of one step may start together: the targets of one link, and all that wait for the step."""
    for step in ways.steps:
        joined = [edge.target for edge in ways.after[step.index] if edge.kind in JOINED]
        if len(joined) > 1:
            yield tuple(joined)
        for link in ways.links[step.index]:
            waiting = [target for target in joined if _may_start(ways, step, target)] if link.exceptional else joined
            if len(link.target.steps) + len(waiting) > 1 and link.target.steps:
                yield tuple(dict.fromkeys((*link.target.steps, *waiting)))


def _may_start(ways: Ways, source: Step, target: int) -> bool:
    """Whether a step that waits for `source` can start, or lead on, although a route took the failure of `source`."""
    join = ways.steps[target].join
    assert join is not None
    leads_on = join.kind is not JoinKind.ROW and any(link.kind in ("success", "skip") for link in ways.links[target])
    return len(join.sources) > 1 or join.kind.allows_failed or leads_on


def _twice(ways: Ways, together: list[int], report: Report) -> None:
    jumps: dict[int, dict[int, str]] = {}
    for edge in ways.edges:
        if edge.kind not in JOINED:
            jumps.setdefault(edge.target, {}).setdefault(edge.source, edge.kind)
    for target, sources in jumps.items():
        step = ways.steps[target]
        if ways.made.steps[target].get("activation") == "each":
            continue
        pair = _pair(sources, together, target)
        if pair is None:
            continue
        a, b = (ways.made.ids[index] for index in pair)
        if target in pair:
            other = a if pair[1] == target else b
            message = f"`{step.id}` would run twice: `{other}` jumps to it and can run beside it; write `depends_on: [{other}]`"
        else:
            message = f"`{step.id}` would run twice: `{a}` and `{b}` can run together; write `depends_on: [{a}, {b}]`"
        report.error(
            "runs_twice",
            f"{message}, or `activation: each` if it is meant",
            ways.made.place(target, "id"),
            via=(a, b, step.id),
            found=step.id,
        )


def _pair(sources: dict[int, str], together: list[int], target: int) -> tuple[int, int] | None:
    mask = mask_of(sources)
    for source in sorted(sources):
        beside = together[source] & mask
        if beside:
            return source, next(bits(beside))
    for source in sorted(sources):
        if together[source] >> target & 1:
            return source, target
    return None


def _writers(ways: Ways, together: list[int], report: Report) -> None:
    writers: dict[str, list[Step]] = {}
    for step in ways.steps:
        source = ways.made.steps[step.index]
        for key in {**source.get("values", {}), **source.get("writes", {})}:
            writers.setdefault(key, []).append(step)
    state = ways.draft.workflow.state
    for key, steps in writers.items():
        if key in state and state[key].reducer != "replace":
            continue
        mask = mask_of(step.index for step in steps)
        for step in steps:
            beside = together[step.index] & mask
            if beside and next(bits(beside)) < step.index:
                other = ways.made.ids[next(bits(beside))]
                block = "writes" if key in ways.made.steps[step.index].get("writes", {}) else "values"
                report.error(
                    "concurrent_writers",
                    f"`{other}` and `{step.id}` can run together and both write `{key}`; declare it under `state` with a "
                    "reducer that can join two writes",
                    ways.made.place(step.index, block, key),
                    key=True,
                    via=(other, step.id),
                    found=key,
                )
                break


def _cut_short(ways: Ways, together: list[int], report: Report) -> None:
    """A join that stops what still leads to it may stop a step that leads elsewhere too, and there nothing starts then."""
    body = ways.draft.workflow.body
    for step in ways.steps:
        join = step.join
        if join is None or not join.cancel_rest:
            continue
        leading = step.bit
        for source in join.sources:
            leading |= body.leading_to(source, step.index)
        for index in bits(leading & together[step.index]):
            lost = [edge.target for edge in ways.after[index] if not leading >> edge.target & 1 and _needs_success(ways, edge)]
            if lost:
                stopped, missed = ways.made.ids[index], ways.made.ids[lost[0]]
                report.warning(
                    "stops_more",
                    f"once `{step.id}` has what it waits for it stops `{stopped}`, and then `{missed}` does not start, "
                    f"to which `{stopped}` leads as well",
                    ways.made.place(step.index, "cancel_rest"),
                    key=True,
                    via=(stopped, missed),
                    found=stopped,
                )


def _needs_success(ways: Ways, edge: Edge) -> bool:
    """Whether what an edge leads to never starts if the step before it is cancelled."""
    if edge.kind in JOINED:
        join = ways.steps[edge.target].join
        return join is not None and (join.kind is JoinKind.ALL_SUCCESS or len(join.sources) == 1)
    return edge.kind in ("success", "route")
