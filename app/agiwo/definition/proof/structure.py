"""Faults of the graph itself: what nothing leads to, cycles of needs, joins that can never be met, routes that can never be taken.

Looks at no data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.definition.compile import CALLS
from agiwo.definition.compiled import JoinKind, Kind, Step, Word
from agiwo.definition.outline import has_gate
from agiwo.definition.proof.ways import Ways, arrow, bits
from agiwo.definition.reading import GRAPH, mask_of
from agiwo.definition.report import Report
from agiwo.errors import ALIASES, TREE
from agiwo.names import nearest


def prove_structure(ways: Ways, report: Report) -> None:
    """Look at steps and edges; data is not looked at."""
    _handlers(ways, report)
    cyclic = _cycles(ways, report)
    _reached(ways, report, cyclic)
    _joins(ways, report, cyclic)
    _reading(ways, report)
    for step in ways.steps:
        _next(ways, report, step)
        _never_taken(ways, report, step)
        _error_names(ways, report, step)


def _handlers(ways: Ways, report: Report) -> None:
    made, aside = ways.made, ways.draft.reading.aside
    places: list[tuple[int, tuple[str | int, ...]]] = [(index, ("finally", n)) for n, index in enumerate(made.finally_)]
    if made.error_handler is not None:
        places.insert(0, (made.error_handler, ("error_handler",)))
    seen: set[int] = set()
    for index, at in places:
        if index in seen:
            report.error("said_twice", f"{made.named(index)} is named twice among `error_handler` and `finally`", at, found=made.ids[index])
        elif index not in aside:
            report.error(
                "handler_in_path",
                f"{made.named(index)} is a handler and also a step of the normal path; give the handler a step of its own",
                at,
                found=made.ids[index],
                expected="a step that nothing else leads to, and not the first",
            )
        else:
            _leads_back(ways, report, index, at)
        seen.add(index)


def _leads_back(ways: Ways, report: Report, handler: int, at: tuple[str | int, ...]) -> None:
    """A handler runs when the body is over, so what it leads to may be its own steps only."""
    reading = ways.draft.reading
    body = ways.reachable(mask_of(reading.start)) & ~mask_of(reading.aside)
    back = ways.reachable(1 << handler) & body
    if not back:
        return
    path = ways.names(ways.path(next(bits(back)), roots=1 << handler))
    report.error(
        "handler_leads_back",
        f"`{path[0]}` runs when the steps are over and leads back to one of them: {arrow(path)}; give it steps of its own, or jump back "
        "by `on_failure` of the step that failed",
        at,
        via=path,
        found=path[-1],
        expected="steps that only handlers and failures lead to",
    )


def _cycles(ways: Ways, report: Report) -> int:
    """Report each cycle of `depends_on`; gives the mask of the steps in one."""
    needs = [sources or () for sources in ways.made.depends]
    state = [0] * ways.count  # 1 on the way, 2 done
    cyclic = 0
    for root in range(ways.count):
        if state[root]:
            continue
        stack = [(root, iter(needs[root]))]
        state[root] = 1
        while stack:
            index, rest = stack[-1]
            source = next(rest, None)
            if source is None:
                state[index] = 2
                stack.pop()
            elif state[source] == 1:
                on_way = [entry[0] for entry in stack]
                cycle = [*on_way[on_way.index(source) :], source]
                names = ways.names(cycle[::-1])
                for member in cycle:
                    cyclic |= 1 << member
                report.error(
                    "dependency_cycle",
                    f"these steps wait for each other and none can start: {arrow(names)}; a way back is a jump, not a `depends_on`",
                    ways.made.place(index, "depends_on"),
                    via=names,
                    found=arrow(names),
                )
            elif not state[source]:
                state[source] = 1
                stack.append((source, iter(needs[source])))
    return cyclic


def _reached(ways: Ways, report: Report, cyclic: int) -> None:
    led = ways.draft.reading.led_to()
    reached = ways.reachable(ways.roots)
    for step in ways.steps:
        if reached & step.bit or cyclic & step.bit:
            continue
        at = ways.made.place(step.index, "id")
        if not led & step.bit:
            report.error(
                "nothing_leads",
                f"nothing leads to `{step.id}`: add `on_success: {step.id}` to the step before it, or `depends_on: []` to start it at once",
                at,
                found=step.id,
            )
        else:
            sources = ", ".join(f"`{ways.made.ids[i]}`" for i in bits(ways.before[step.index]))
            report.error(
                "unreachable",
                f"`{step.id}` is never reached: what leads to it ({sources}) is not reached from the start either",
                at,
                found=step.id,
            )


def _joins(ways: Ways, report: Report, cyclic: int) -> None:
    choices: list[tuple[Step, list[int]]] | None = None
    for step in ways.steps:
        join = step.join
        at = ways.made.place(step.index, "depends_on")
        if "cancel_rest" in ways.made.steps[step.index] and (join is None or not join.kind.counts):
            report.error(
                "no_effect",
                "`cancel_rest` belongs to `join: any` and `join: {at_least: n}`; every other join waits for all its sources",
                ways.made.place(step.index, "cancel_rest"),
                key=True,
            )
        if join is None or join.kind is JoinKind.ROW:
            if "join" in ways.made.steps[step.index] and not ways.made.depends[step.index]:
                report.error(
                    "no_effect", "`join` says how `depends_on` counts, and there is none", ways.made.place(step.index, "join"), key=True
                )
            continue
        if cyclic & step.bit or join.kind is JoinKind.ALL_DONE:
            continue
        if join.need > len(join.sources):
            report.error(
                "join_never_met",
                f"`{step.id}` can never start: it wants {join.need} of its {len(join.sources)} sources",
                ways.made.place(step.index, "join"),
                found=str(join.need),
                expected=f"at most {len(join.sources)}",
            )
            continue
        coming = ways.reachable(ways.roots, step.bit)
        jumped = bool(ways.jumped & step.bit)
        never = [s for s in join.sources if (not jumped and not coming >> s & 1) or ways.steps[s].kind in (Kind.END, Kind.FAIL)]
        if len(join.sources) - len(never) < (len(join.sources) if join.kind is JoinKind.ALL_SUCCESS else max(join.need, 1)):
            why = _why_never(ways, never[0], step)
            report.error("join_never_met", f"`{step.id}` can never start by its `depends_on`: {why}", at, found=ways.made.ids[never[0]])
        elif join.kind is JoinKind.ALL_SUCCESS:
            choices = _choices(ways) if choices is None else choices
            _exclusive_sources(ways, report, step, choices)
        elif join.need > 1:
            choices = _choices(ways) if choices is None else choices
            _too_few_together(ways, report, step, choices)


def _why_never(ways: Ways, source: int, step: Step) -> str:
    other = ways.steps[source]
    if other.kind in (Kind.END, Kind.FAIL):
        return f"`{other.id}` ends the instance"
    return f"`{other.id}` can only run after `{step.id}` itself"


def _exclusive_sources(ways: Ways, report: Report, step: Step, choices: list[tuple[Step, list[int]]]) -> None:
    """Two sources of an all_success join that only different choices of one route reach."""
    assert step.join is not None
    for router, reached in choices:
        sources = [mask & step.join.mask for mask in reached if mask & step.join.mask]
        for n, one in enumerate(sources):
            two = next((mask for mask in sources[n + 1 :] if not mask & one), 0)
            if two:
                a, b = (ways.made.ids[next(bits(mask))] for mask in (one, two))
                report.error(
                    "join_never_met",
                    f"`{step.id}` can never start: `{router.id}` leads either to `{a}` or to `{b}`, and `join: all_success` wants both; "
                    "use `join: none_failed`",
                    ways.made.place(step.index, "depends_on"),
                    via=(router.id, a, b),
                )
                return


def _too_few_together(ways: Ways, report: Report, step: Step, choices: list[tuple[Step, list[int]]]) -> None:
    """So many sources that only different choices of one route reach that never enough of them run."""
    assert step.join is not None
    for router, reached in choices:
        chosen = [mask & step.join.mask for mask in reached]
        whole = 0
        for mask in chosen:
            whole |= mask
        most = (step.join.mask & ~whole).bit_count() + max(mask.bit_count() for mask in chosen)
        if most < step.join.need:
            report.error(
                "join_never_met",
                f"`{step.id}` can never start: `{router.id}` leads to one choice of its sources, so at most {most} of them run, and it "
                f"wants {step.join.need}",
                ways.made.place(step.index, "depends_on"),
                via=(router.id, step.id),
                found=str(step.join.need),
                expected=f"at most {most}",
            )
            return


def _choices(ways: Ways) -> list[tuple[Step, list[int]]]:
    """For each step with a route, what each of its choices reaches that nothing else reaches."""
    out: list[tuple[Step, list[int]]] = []
    for router in ways.steps:
        links = [link for link in ways.links[router.index] if link.kind == "route" and link.target.steps]
        if len(links) > 1:
            others = ways.reachable(ways.roots, router.bit)
            out.append((router, [ways.reachable(mask_of(link.target.steps), router.bit) & ~others for link in links]))
    return out


def _reading(ways: Ways, report: Report) -> None:
    reading, made = ways.draft.reading, ways.made
    if reading.reads_as == GRAPH:
        for step in ways.steps:
            if made.steps[step.index].get("run_parallel") is True:
                report.error(
                    "run_parallel_in_graph",
                    "these steps are read as a graph, where `run_parallel` says nothing: jump to a list of steps, and "
                    "join them by `depends_on`",
                    made.place(step.index, "run_parallel"),
                    key=True,
                )
        return
    _row(ways, report)


def _row(ways: Ways, report: Report) -> None:
    reading, made = ways.draft.reading, ways.made
    last_in_row = max((index for group in reading.rows for index in group), default=-1)
    for index in sorted(reading.aside):
        if index < last_in_row:
            report.warning(
                "set_aside_between",
                f"`{made.ids[index]}` stands between steps of the row and runs only when an exception leads to it; write it after them",
                made.place(index, "id"),
                found=made.ids[index],
            )
    position = {index: n for n, group in enumerate(reading.rows) for index in group}
    for link in reading.links:
        for target in link.target.steps:
            if link.kind == "skip" and link.source in position and position.get(target, len(position)) <= position[link.source]:
                report.error(
                    "wrong_target", "in a row `on_skip` jumps forward", link.at, found=made.ids[target], expected="a step further down"
                )
    for group in reading.rows:
        if len(group) == 1 and made.steps[group[0]].get("run_parallel") is True:
            report.warning(
                "no_effect",
                "no neighbour is marked `run_parallel`, so this step runs alone",
                made.place(group[0], "run_parallel"),
                key=True,
            )


def _next(ways: Ways, report: Report, step: Step) -> None:
    rows = ways.draft.reading.rows
    last = step.index == ways.count - 1 or (bool(rows) and step.index in rows[-1])
    for link in ways.made.out(step.index) if last else ():
        if link.target.word is Word.NEXT:
            report.error("wrong_target", f"no step is written after `{step.id}`", link.at, found="next", expected="a step, or end")


def _never_taken(ways: Ways, report: Report, step: Step) -> None:
    source, at = ways.made.steps[step.index], ways.made.place
    if "on_skip" in source and step.when is None and "when" not in source and step.join is None:
        report.error(
            "never_taken", f"`{step.id}` is never skipped: it has neither `when` nor `depends_on`", at(step.index, "on_skip"), key=True
        )
    clock = step.kind in CALLS or has_gate(source) or (step.signal is not None and step.signal.timeout is not None)
    if "on_timeout" in source and not clock and source.get("type"):
        report.error("never_taken", f"`{step.id}` has no clock that could run out", at(step.index, "on_timeout"), key=True)


def _error_names(ways: Ways, report: Report, step: Step) -> None:
    """Names of failure types that the tree does not know may be a tool's own; near misses are slips."""
    source, at = ways.made.steps[step.index], ways.made.place(step.index)
    found: list[tuple[str, tuple[str | int, ...]]] = []
    routes = source.get("on_failure")
    for n, entry in enumerate(routes if isinstance(routes, list) else ()):
        if isinstance(entry, Mapping):
            found += _listed(entry.get("errors"), (*at, "on_failure", n, "errors"))
    policy: Mapping[str, Any] = source.get("retry_policy") or {}
    for key in ("retry_on", "give_up_on"):
        found += _listed(policy.get(key), (*at, "retry_policy", key))
    for name, place in found:
        if name in TREE or name in ALIASES:
            continue
        near = nearest(name, [*TREE, *ALIASES])
        if near is not None:
            report.error("unknown_error", f"there is no failure type `{name}`", place, found=name, nearest=near, expected="a failure type")
        else:
            report.warning(
                "unknown_error", f"`{name}` is no built-in failure type; only a tool's own failure can have it", place, found=name
            )


def _listed(names: Any, at: tuple[str | int, ...]) -> list[tuple[str, tuple[str | int, ...]]]:
    return [(name, (*at, n)) for n, name in enumerate(names or ()) if isinstance(name, str)]
