"""The compiled graph as data and as a Mermaid chart, with every kind of edge.

Only shows what was compiled; works out nothing by itself.
"""

from __future__ import annotations

from typing import Any

from agiwo.definition.compiled import Edge, Step, Workflow
from agiwo.values import JSON

#: How each kind of edge is drawn.
ARROWS = {
    "success": "-->",
    "row": "-->",
    "depends": "==>",
    "route": "-->",
    "skip": "-.->",
    "failure": "-.->",
    "timeout": "-.->",
    "reject": "-.->",
}
_UNSAID = ("success", "row")


def graph_json(workflow: Workflow) -> JSON:
    """Nodes and edges of a workflow; `start` are the ids that begin, `kind` of an edge is a key of ARROWS."""
    body = workflow.body
    return {
        "id": workflow.id,
        "version": workflow.version,
        "reads_as": body.reads_as,
        "start": [body.steps[index].id for index in body.start],
        "error_handler": None if workflow.error_handler is None else body.steps[workflow.error_handler].id,
        "finally": [body.steps[index].id for index in workflow.finally_],
        "nodes": [_node(step) for step in body.steps],
        "edges": [_edge(workflow, edge) for edge in body.edges],
    }


def _node(step: Step) -> dict[str, Any]:
    out: dict[str, Any] = {"id": step.id, "type": step.kind.value, "set_aside": step.set_aside}
    if step.name is not None:
        out["name"] = step.name
    if step.tool is not None:
        out["tool"] = step.tool
    if step.gate is not None:
        out["approval"] = step.gate.at
    if step.join is not None:
        out["join"] = step.join.to_json()
    return out


def _edge(workflow: Workflow, edge: Edge) -> dict[str, Any]:
    steps = workflow.body.steps
    out: dict[str, Any] = {"source": steps[edge.source].id, "target": steps[edge.target].id, "kind": edge.kind}
    if edge.label is not None:
        out["label"] = edge.label
    return out


def graph_mermaid(workflow: Workflow) -> str:
    """The workflow as a Mermaid flowchart; ends with a line end."""
    body = workflow.body
    lines = ["flowchart TD", "  start([start])"]
    for step in body.steps:
        left, right = ('{{"', '"}}') if step.route is not None else ('["', '"]')
        lines.append(f"  s_{step.id}{left}{_label(step.name or step.id)}<br/>{step.kind.value}{right}")
    lines += [f"  start --> s_{body.steps[index].id}" for index in body.start]
    for edge in body.edges:
        said = edge.label if edge.kind == "route" else " ".join(p for p in (edge.kind, edge.label) if p)
        text = "" if edge.kind in _UNSAID else f'|"{_label(said or edge.kind)}"|'
        lines.append(f"  s_{body.steps[edge.source].id} {ARROWS[edge.kind]}{text} s_{body.steps[edge.target].id}")
    if workflow.error_handler is not None:
        lines.append(f"  failed([any failure]) -.-> s_{body.steps[workflow.error_handler].id}")
    if workflow.finally_:
        lines.append("  ended([every end])")
        lines += [f"  ended -.-> s_{body.steps[index].id}" for index in workflow.finally_]
    aside = [f"s_{step.id}" for step in body.steps if step.set_aside]
    if aside:
        lines += ["  classDef aside stroke-dasharray: 4 3", f"  class {','.join(aside)} aside"]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Text that cannot end its own quotes or be taken for markup."""
    cut = text if len(text) <= 60 else text[:59] + "…"
    return "".join(f"#{ord(c)};" if c in '"<>#&|`{}[]()\n\r' else c for c in cut)
