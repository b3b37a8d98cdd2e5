"""How a list of steps is read: which steps are set aside, whether the rest is a row or a graph, where it starts, what leads where.

Follows LANGUAGE 2 to the letter; judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.definition.compiled import Edge, Join, JoinKind, Target, Word
from agiwo.definition.outline import Link, Outline
from agiwo.definition.shape import BAD

IN_ORDER = "in_order"
GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Reading:
    """The answer: `rows` are the groups of a row in order (empty for a graph), `links` the jumps with `next` resolved."""

    reads_as: str
    aside: frozenset[int]
    rows: tuple[tuple[int, ...], ...]
    start: tuple[int, ...]
    joins: tuple[Join | None, ...]
    links: tuple[Link, ...]
    edges: tuple[Edge, ...]
    order: tuple[int, ...]

    def led_to(self) -> int:
        """Mask of the steps that an edge leads to."""
        return mask_of(edge.target for edge in self.edges)


def read(made: Outline) -> Reading:
    """Read a list; works on faulty ones too, as far as names are known."""
    count = len(made.ids)
    aside = _set_aside(made)
    in_row = [index for index in range(count) if index not in aside]
    graph = any(_makes_graph(made, index) for index in in_row)
    links = tuple(_resolved(made, link, graph or link.source in aside) for link in made.links)
    links = tuple(_without_joined(made, link) for link in links)
    rows = () if graph else _rows(made, in_row)
    joins = _joins(made, rows)
    start = _graph_start(made, aside, links) if graph else (rows[0] if rows else ())
    edges = tuple(_edges(made, rows, links))
    return Reading(
        GRAPH if graph else IN_ORDER, frozenset(aside), rows, tuple(start), joins, links, edges, _order(made, rows, start, edges, aside)
    )


def _makes_graph(made: Outline, index: int) -> bool:
    step = made.steps[index]
    if "on_success" in step or "route" in step or "depends_on" in step or step.get("type") == "branch":
        return True
    return any("goto" in part for part in step.get("first_of") or () if part is not BAD)


# Set aside


def _set_aside(made: Outline) -> set[int]:
    """Steps that only exceptions lead to, and what only such steps lead to."""
    count = len(made.ids)
    leads: list[list[tuple[int, bool]]] = [[] for _ in range(count)]  # by target: who leads here, and whether by an exception
    for link in made.links:
        for target in _named(made, link):
            leads[target].append((link.source, link.exceptional))
    for index, sources in enumerate(made.depends):
        leads[index] += [(source, False) for source in sources or ()]
    handlers = {*made.finally_, *([] if made.error_handler is None else [made.error_handler])}
    candidates = {
        index
        for index in range(1, count)
        if made.depends[index] != () and not any(exceptional and source >= index for source, exceptional in leads[index])
    }
    named = {index for index in candidates if index in handlers or any(exceptional for _, exceptional in leads[index])}
    aside = _reached(named, leads, candidates)
    while True:
        wrong = {index for index in aside if not _only_exceptional(index, index in named, leads[index], aside)}
        if not wrong:
            return aside
        aside -= wrong


def _reached(named: set[int], leads: list[list[tuple[int, bool]]], candidates: set[int]) -> set[int]:
    found = set(named)
    growing = True
    while growing:
        more = {i for i in candidates - found if any(source in found for source, _ in leads[i])}
        found |= more
        growing = bool(more)
    return found


def _only_exceptional(index: int, named: bool, leads: list[tuple[int, bool]], aside: set[int]) -> bool:
    """A jump back from a step that is set aside is a second try of what was there before, not its only way in."""
    plain = [source for source, exceptional in leads if not exceptional]
    if any(source not in aside for source in plain):
        return False
    return named or any(source < index for source in plain)


def _named(made: Outline, link: Link) -> tuple[int, ...]:
    if link.target.word is Word.NEXT and link.kind in ("success", "route") and link.source + 1 < len(made.ids):
        return (link.source + 1,)
    return link.target.steps


# Links, rows, joins


def _resolved(made: Outline, link: Link, numbered: bool) -> Link:
    if link.target.word is not Word.NEXT or not numbered:
        return link
    following = (link.source + 1,) if link.source + 1 < len(made.ids) else ()
    return Link(link.source, link.kind, Target(following), link.at, link.label, link.errors)


def _without_joined(made: Outline, link: Link) -> Link:
    """A jump to a step that depends on its source says the same edge twice; the join alone decides."""
    steps = tuple(t for t in link.target.steps if link.source not in (made.depends[t] or ()))
    return link if len(steps) == len(link.target.steps) else Link(link.source, link.kind, Target(steps), link.at, link.label, link.errors)


def _rows(made: Outline, in_row: list[int]) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = []
    together = False
    for index in in_row:
        parallel = made.steps[index].get("run_parallel") is True
        if parallel and together:
            groups[-1].append(index)
        else:
            groups.append([index])
        together = parallel
    return tuple(tuple(group) for group in groups)


def _joins(made: Outline, rows: tuple[tuple[int, ...], ...]) -> tuple[Join | None, ...]:
    joins: list[Join | None] = []
    for step, sources in zip(made.steps, made.depends, strict=True):
        joins.append(_join(step, sources) if sources else None)
    for before, group in zip(rows, rows[1:], strict=False):
        for index in group:
            joins[index] = Join(JoinKind.ROW, before, mask_of(before))
    return tuple(joins)


def _join(step: Mapping[str, Any], sources: tuple[int, ...]) -> Join:
    written = step.get("join", JoinKind.NONE_FAILED)
    if isinstance(written, Mapping):
        kind, need = JoinKind.AT_LEAST, written.get("at_least", 1)
        need = 1 if need is BAD else need
    else:
        kind = JoinKind(written)
        need = 1 if kind is JoinKind.ANY else 0
    return Join(kind, sources, mask_of(sources), need, step.get("cancel_rest") is True)


def _graph_start(made: Outline, aside: set[int], links: tuple[Link, ...]) -> tuple[int, ...]:
    jumped = {target for link in links for target in link.target.steps}
    needed = {source for sources in made.depends for source in sources or ()}
    first = next((index for index in range(len(made.ids)) if index not in aside), None)
    return tuple(
        index
        for index in range(len(made.ids))
        if index not in aside
        and (
            (index == first and not made.depends[index])
            or made.depends[index] == ()
            or (index in needed and made.depends[index] is None and index not in jumped)
        )
    )


def _edges(made: Outline, rows: tuple[tuple[int, ...], ...], links: tuple[Link, ...]) -> Iterable[Edge]:
    seen: set[Edge] = set()
    for link in links:
        for target in link.target.steps:
            label = link.label if link.kind == "route" else (", ".join(link.errors) or None)
            edge = Edge(link.source, target, link.kind, label)
            if edge not in seen:
                seen.add(edge)
                yield edge
    for index, sources in enumerate(made.depends):
        yield from (Edge(source, index, "depends") for source in sources or ())
    for before, group in zip(rows, rows[1:], strict=False):
        yield from (Edge(source, target, "row") for source in before for target in group)


def _order(
    made: Outline, rows: tuple[tuple[int, ...], ...], start: Iterable[int], edges: tuple[Edge, ...], aside: set[int]
) -> tuple[int, ...]:
    """The order in which a reader meets the steps: level by level from the start, then what is set aside."""
    found = dict.fromkeys(index for group in rows for index in group) if rows else dict.fromkeys(start)
    after: dict[int, list[int]] = {}
    for edge in edges:
        after.setdefault(edge.source, []).append(edge.target)
    todo = list(found)
    for index in todo:
        for target in after.get(index, ()):
            if target not in found and target not in aside:
                found[target] = None
                todo.append(target)
    return (*found, *(index for index in range(len(made.ids)) if index not in found))


def mask_of(indexes: Iterable[int]) -> int:
    """A set of step numbers as bits."""
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return mask
