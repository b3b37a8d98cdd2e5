"""What shows a definition: the schema for editors, the difference of two versions, the picture."""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from agiwo.definition import difference, graph_mermaid, graph_svg, json_schema, load
from agiwo.definition.compiled import Kind, Workflow
from agiwo.definition.json_schema import _form
from agiwo.definition.model import STEP, WORKFLOW
from agiwo.schema import Schema
from agiwo.schema.sample import sample
from kit.machine import compiled

ROOT = Path(__file__).parents[3]
SCHEMA = Schema.compile(json_schema())


def documents() -> list[tuple[str, Any]]:
    """Every definition that ships or stands in a page, as it is read."""
    texts = [(path.name, path.read_text()) for path in sorted((ROOT / "workflows").glob("*.yaml"))]
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"```ya?ml\n(.*?)```", page.read_text(), re.DOTALL)
        texts += [(f"{page.name} {n}", text) for n, text in enumerate(blocks)]
    read = [(name, load(text)) for name, text in texts]
    return [(name, loaded) for name, loaded in read if isinstance(loaded.document, dict) and "steps" in loaded.document]


DOCUMENTS = documents()


@pytest.mark.parametrize(("name", "loaded"), DOCUMENTS, ids=[name for name, _ in DOCUMENTS])
def test_every_definition_that_ships_fits_the_schema_with_and_without_its_wrapper(name: str, loaded: Any) -> None:
    if loaded.valid:
        assert SCHEMA.problems(loaded.document) == []
        assert SCHEMA.problems({"workflow": loaded.document}) == []


MUTANTS = {
    "an unknown key": lambda d: d.update(stepz=[]),
    "no steps": lambda d: d.pop("steps"),
    "an empty list": lambda d: d.update(steps=[]),
    "an unknown type": lambda d: d["steps"][0].update(type="tool_cal"),
    "no type": lambda d: d["steps"][0].pop("type"),
    "a wrong step id": lambda d: d["steps"][0].update(id="a b"),
    "a wrong version": lambda d: d.update(version="v1"),
    "a wrong duration": lambda d: d.update(timeout="5 days"),
    "no time at all": lambda d: d.update(timeout=0),
    "a key of another type": lambda d: d["steps"][0].update(task_prompt="x"),
    "an unknown reducer": lambda d: d.update(state={"n": {"reducer": "sum"}}),
    "a number out of range": lambda d: d["steps"][0].update(max_iterations=0),
    "a wrong principal": lambda d: d["steps"][0].update(approval={"approvers": ["ann"]}),
    "a route without a target": lambda d: d["steps"][0].update(on_failure=[{"errors": ["Timeout"]}]),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_a_broken_definition_fits_neither_the_schema_nor_the_reader(what: str) -> None:
    document: Any = {"id": "w", "version": "1", "steps": [{"id": "a", "type": "tool_call", "tool": "t.pure", "parameters": {}}]}
    assert SCHEMA.fits(document)
    broken = copy.deepcopy(document)
    MUTANTS[what](broken)
    assert not SCHEMA.fits(broken)
    assert not SCHEMA.fits({"workflow": broken})


def test_the_schema_has_every_key_of_the_model() -> None:
    defs = json_schema()["$defs"]
    assert set(defs["workflow"]["properties"]) == set(WORKFLOW.keys)
    for kind in Kind:
        assert set(defs[kind.value]["properties"]) == set(STEP[kind].keys)
        assert defs[kind.value]["required"] == list(STEP[kind].required)


def test_a_check_that_the_schema_does_not_know_is_an_error_and_not_left_out() -> None:
    with pytest.raises((KeyError, TypeError)):
        _form(lambda report, value, at: value)


def test_a_version_that_an_editor_reads_as_a_number_is_fine() -> None:
    assert SCHEMA.fits({"id": "w", "version": 1.1, "steps": [{"id": "a", "type": "end"}]})


# --- difference ------------------------------------------------------------------------------------------------------


def between(old: str, new: str) -> Any:
    workflows = [workflow(text) for text in (old, new)]
    return difference(workflows[0].definition, workflows[1].definition, *workflows)


def workflow(steps: str, version: str = "1") -> Workflow:
    lines = "\n".join(f"  - {{{line.strip()}, type: tool_call, tool: t.pure}}" for line in steps.strip().splitlines())
    return compiled(f'id: w\nversion: "{version}"\nsteps:\n{lines}\n')


def test_steps_that_came_went_and_changed_are_told_apart() -> None:
    found = between("id: a, timeout: 5\nid: b\nid: c", "id: a, timeout: 6\nid: c\nid: d")
    assert (found.added, found.removed, list(found.changed)) == (("d",), ("b",), ["a"])
    assert [change.to_json() for change in found.changed["a"]] == [{"key": "timeout", "from": 5, "to": 6}]
    assert not found.moved
    assert [(e["source"], e["target"]) for e in found.added_edges] == [("a", "c"), ("c", "d")]
    assert found.to_text().splitlines() == [
        "w 1 -> 1", "- step b", "+ step d", "~ step a", "    timeout: 5 -> 6",
        "- a -> b (row)", "- b -> c (row)", "+ a -> c (row)", "+ c -> d (row)",
    ]  # fmt: skip


def test_a_new_order_is_a_difference_and_the_same_is_none() -> None:
    assert between("id: a\nid: b", "id: b\nid: a").moved
    same = between("id: a\nid: b", "id: a\nid: b")
    assert same.same
    assert same.to_text() == "w 1 -> 1\n  no difference\n"


def test_true_is_not_one() -> None:
    old, new = [{"id": "w", "version": "1", "output": {"n": value}, "steps": []} for value in (1, True)]
    found = difference(old, new, None, None)
    assert [change.key for change in found.keys] == ["output"]
    assert found.to_json()["edges"] is None


# --- pictures --------------------------------------------------------------------------------------------------------


def test_a_picture_has_every_step_and_edge_and_no_script() -> None:
    """REQ-40: names are text."""
    made = compiled(
        'id: w\nversion: "1"\nsteps:\n'
        '  - {id: a, type: tool_call, tool: t.pure, name: "<img src=x onerror=alert(1)>]-->&", on_success: b, on_failure: c}\n'
        "  - {id: b, type: tool_call, tool: t.pure, on_success: a}\n"
        "  - {id: c, type: tool_call, tool: t.pure}\n"
    )
    picture = graph_svg(made)
    root = ET.fromstring(picture)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "title", "style", "defs", "marker", "path", "g", "rect", "text",
    }  # fmt: skip
    assert sum(element.tag.endswith("rect") for element in root.iter()) == 3
    assert len(made.body.edges) == sum(element.get("marker-end") is not None for element in root.iter())
    assert "http" not in picture.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "<img" not in picture
    assert "<img" not in graph_mermaid(made)


# --- made-up values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "integer", "minimum": 3}}},
        {"type": "array", "items": {"type": "string", "minLength": 5}, "minItems": 2},
        {"enum": ["x", "y"]},
        {"const": 4},
        {"type": ["string", "null"], "maxLength": 3},
        {"anyOf": [{"type": "number", "exclusiveMinimum": 2}, {"type": "string"}]},
        {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "boolean"}}, "type": "object"}]},
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "required": ["at"], "properties": {"at": {"format": "date-time"}}}}},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"type": "array", "maxItems": 0},
        {"type": "null"},
        True,
    ],
)
def test_a_made_up_value_fits_plain_schemas(schema: Any) -> None:
    assert Schema.compile(schema).fits(sample(schema, "some text"))


def test_a_schema_that_branches_without_end_is_cut_off() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"$ref": "#"} for n in range(50)}, "required": [f"p{n}" for n in range(50)]}
    assert len(str(sample(wide))) < 100_000
