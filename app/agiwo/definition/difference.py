"""What two definitions differ in, as people think of it: by step, with the keys that changed, the order, the edges, the whole's own keys.

Compares what was written; it says nothing about what a change does to instances.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.definition.compiled import Workflow
from agiwo.values import JSON

_CUT = 200
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key with both values; one that was added has no `old`, one that was removed no `new`."""

    key: str
    old: Any = _ABSENT
    new: Any = _ABSENT

    def to_json(self) -> dict[str, JSON]:
        values = (("from", self.old), ("to", self.new))
        return {"key": self.key, **{name: value for name, value in values if value is not _ABSENT}}


@dataclass(frozen=True, slots=True)
class Difference:
    """From one definition to another. Edges are None where one of the two cannot be compiled here."""

    workflow: str
    old: str
    new: str
    keys: tuple[KeyChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, tuple[KeyChange, ...]]
    old_order: tuple[str, ...]
    new_order: tuple[str, ...]
    added_edges: tuple[Mapping[str, str], ...] | None
    removed_edges: tuple[Mapping[str, str], ...] | None

    @property
    def moved(self) -> bool:
        """Whether the steps that both have stand in another order."""
        both = set(self.old_order) & set(self.new_order)
        return [id for id in self.old_order if id in both] != [id for id in self.new_order if id in both]

    @property
    def same(self) -> bool:
        return not (self.keys or self.added or self.removed or self.changed or self.moved or self.added_edges or self.removed_edges)

    def to_json(self) -> dict[str, JSON]:
        edges = None
        if self.added_edges is not None and self.removed_edges is not None:
            edges = {"added": [dict(edge) for edge in self.added_edges], "removed": [dict(edge) for edge in self.removed_edges]}
        return {
            "workflow_id": self.workflow,
            "from": self.old,
            "to": self.new,
            "same": self.same,
            "workflow": [change.to_json() for change in self.keys],
            "steps": {
                "added": list(self.added),
                "removed": list(self.removed),
                "changed": [{"id": id, "keys": [change.to_json() for change in keys]} for id, keys in self.changed.items()],
            },
            "order": {"from": list(self.old_order), "to": list(self.new_order)} if self.moved else None,
            "edges": edges,
        }

    def to_text(self) -> str:
        """For people; ends with a line end."""
        return difference_text(self.to_json())


def difference(old: Mapping[str, Any], new: Mapping[str, Any], old_graph: Workflow | None, new_graph: Workflow | None) -> Difference:
    """Compare two documents of published versions, and their graphs where both could be compiled."""
    before, after = _steps(old), _steps(new)
    changed = {id: tuple(_changes(before[id], after[id])) for id in before if id in after}
    added: tuple[Mapping[str, str], ...] | None = None
    removed: tuple[Mapping[str, str], ...] | None = None
    if old_graph is not None and new_graph is not None:
        was, now = _edges(old_graph), _edges(new_graph)
        added = tuple(edge for key, edge in now.items() if key not in was)
        removed = tuple(edge for key, edge in was.items() if key not in now)
    own = [{key: value for key, value in document.items() if key not in ("steps", "id", "version")} for document in (old, new)]
    return Difference(
        workflow=str(new.get("id", "")),
        old=str(old.get("version", "")),
        new=str(new.get("version", "")),
        keys=tuple(_changes(*own)),
        added=tuple(id for id in after if id not in before),
        removed=tuple(id for id in before if id not in after),
        changed={id: keys for id, keys in changed.items() if keys},
        old_order=tuple(before),
        new_order=tuple(after),
        added_edges=added,
        removed_edges=removed,
    )


def _steps(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {step["id"]: step for step in document.get("steps", ()) if isinstance(step, Mapping)}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[KeyChange]:
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if before is _ABSENT or after is _ABSENT or _written(before) != _written(after):
            yield KeyChange(key, before, after)


def _written(value: Any) -> str:
    """Tells 1 from true and from 1.0, which Python takes for equal."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _edges(workflow: Workflow) -> dict[tuple[str, ...], Mapping[str, str]]:
    steps = workflow.body.steps
    found: dict[tuple[str, ...], Mapping[str, str]] = {}
    for edge in workflow.body.edges:
        out = {"source": steps[edge.source].id, "target": steps[edge.target].id, "kind": edge.kind}
        out |= {} if edge.label is None else {"label": edge.label}
        found[tuple(out.values())] = out
    return found


def difference_text(found: Mapping[str, Any]) -> str:
    """The JSON form of a difference as text for people; ends with a line end."""
    steps, edges = found["steps"], found["edges"] or {"removed": (), "added": ()}
    lines = [f"{found['workflow_id']} {found['from']} -> {found['to']}"]
    if found["same"]:
        lines.append("  no difference")
    lines += [f"  {_line(change)}" for change in found["workflow"]]
    lines += [f"- step {id}" for id in steps["removed"]]
    lines += [f"+ step {id}" for id in steps["added"]]
    for step in steps["changed"]:
        lines += [f"~ step {step['id']}", *(f"    {_line(change)}" for change in step["keys"])]
    if found["order"] is not None:
        lines.append(f"~ order: {', '.join(found['order']['to'])}")
    lines += [f"- {_arrow(edge)}" for edge in edges["removed"]]
    lines += [f"+ {_arrow(edge)}" for edge in edges["added"]]
    return "\n".join(lines) + "\n"


def _line(change: Mapping[str, Any]) -> str:
    if "from" not in change:
        return f"{change['key']}: {_short(change['to'])} (new)"
    return f"{change['key']}: {_short(change['from'])} -> {_short(change['to']) if 'to' in change else 'gone'}"


def _arrow(edge: Mapping[str, str]) -> str:
    label = f" {edge['label']}" if "label" in edge else ""
    return f"{edge['source']} -> {edge['target']} ({edge['kind']}{label})"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _CUT else text[: _CUT - 1] + "…"
