"""The compiled graph as an SVG picture: steps in layers from top to bottom, edges as lines, nothing fetched from anywhere.

Everything that people wrote goes in as escaped text; it works out no edge by itself.
"""

from __future__ import annotations

from collections import deque
from html import escape

from agiwo.definition.compiled import Edge, Step, Workflow

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 180, 44, 30, 56, 24
_CUT = 24
#: Lines of these kinds are dashed: what follows when something goes otherwise.
_DASHED = ("skip", "failure", "timeout", "reject")
_UNSAID = ("success", "row", "depends")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1b1f24}.k{font-size:10px;fill:#57606a}.l{font-size:10px;fill:#57606a}"
    "rect{fill:#f6f8fa;stroke:#57606a}.aside rect{stroke-dasharray:4 3}.gate rect{stroke:#9a6700;stroke-width:2}"
    "path{fill:none;stroke:#57606a}.d path{stroke-dasharray:4 3}"
)


def graph_svg(workflow: Workflow) -> str:
    """An SVG document of its own, without script, style sheet or font from elsewhere."""
    places = _places(workflow)
    across = max((x for x, _ in places), default=0) + 1
    down = max((y for _, y in places), default=0) + 1
    width = 2 * _MARGIN + across * (_WIDTH + _ACROSS)
    height = 2 * _MARGIN + down * (_HEIGHT + _DOWN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{_text(f'{workflow.id} {workflow.version}')}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" style="fill:#57606a"/></marker></defs>',
    ]
    parts += [_line(edge, places) for edge in workflow.body.edges]
    parts += [_box(step, *_corner(places[step.index])) for step in workflow.body]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _places(workflow: Workflow) -> list[tuple[int, int]]:
    """Column and layer of each step: as far from the start as the shortest way to it, and those that only failures lead to likewise."""
    body = workflow.body
    follows: dict[int, list[int]] = {}
    for edge in body.edges:
        follows.setdefault(edge.source, []).append(edge.target)
    layer = dict.fromkeys(body.start, 0)
    queue = deque(body.start)
    while queue:
        here = queue.popleft()
        for target in follows.get(here, ()):
            if target not in layer:
                layer[target] = layer[here] + 1
                queue.append(target)
    last = max(layer.values(), default=-1) + 1
    taken: dict[int, int] = {}
    out = []
    for step in body:
        y = layer.get(step.index, last)
        out.append((taken.get(y, 0), y))
        taken[y] = taken.get(y, 0) + 1
    return out


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return _MARGIN + place[0] * (_WIDTH + _ACROSS), _MARGIN + place[1] * (_HEIGHT + _DOWN)


def _box(step: Step, x: int, y: int) -> str:
    kinds = " ".join(name for name, there in (("aside", step.set_aside), ("gate", step.gate is not None)) if there)
    said = step.kind.value if step.tool is None else step.tool
    name = _text(step.name or step.id)
    return (
        f'<g class="{kinds}"><title>{name}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<text x="{x + 10}" y="{y + 19}">{name}</text><text class="k" x="{x + 10}" y="{y + 34}">{_text(said)}</text></g>'
    )


def _line(edge: Edge, places: list[tuple[int, int]]) -> str:
    (x1, y1), (x2, y2) = _corner(places[edge.source]), _corner(places[edge.target])
    if y2 > y1:
        start, end, bend = (x1 + _WIDTH // 2, y1 + _HEIGHT), (x2 + _WIDTH // 2, y2), _DOWN // 2
        way = f"M{start[0]} {start[1]}C{start[0]} {start[1] + bend} {end[0]} {end[1] - bend} {end[0]} {end[1]}"
    else:
        # Back, or to the side: out and in again at the right.
        start, end = (x1 + _WIDTH, y1 + _HEIGHT // 2), (x2 + _WIDTH, y2 + _HEIGHT // 2)
        out = max(start[0], end[0]) + _ACROSS
        way = f"M{start[0]} {start[1]}C{out} {start[1]} {out} {end[1]} {end[0]} {end[1]}"
    said = edge.label if edge.kind == "route" else " ".join(part for part in (edge.kind, edge.label) if part)
    label = ""
    if said and edge.kind not in _UNSAID:
        label = f'<text class="l" x="{(start[0] + end[0]) // 2 + 4}" y="{(start[1] + end[1]) // 2}">{_text(said)}</text>'
    return f'<g class="{"d" if edge.kind in _DASHED else ""}"><path d="{way}" marker-end="url(#a)"/>{label}</g>'


def _text(text: str) -> str:
    """Text that cannot become markup, nor break the document by a character that XML does not have."""
    cut = text if len(text) <= _CUT else text[: _CUT - 1] + "…"
    return escape("".join(c if c.isprintable() else " " for c in cut), quote=True)
