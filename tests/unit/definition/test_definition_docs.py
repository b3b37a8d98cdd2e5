"""docs/language.md says what the code does: its tables come from the code, its list of codes is complete, its example works."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from agiwo.definition import check, load
from agiwo.definition.compiled import Kind
from agiwo.definition.model import COMMON, REDUCERS, STEP
from agiwo.errors import TREE
from agiwo.template import FILTERS, FUNCTIONS, TESTS, Entry
from agiwo.tools.builtin import standard_registry
from kit.definitions import CONTRACTS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "language.md"


def entries(table: Mapping[str, Entry]) -> str:
    lines = [f"| `{name}` | {entry.doc.replace('|', chr(92) + '|')} |" for name, entry in sorted(table.items())]
    return "\n".join(["| name | gives |", "| --- | --- |", *lines])


def step_keys() -> str:
    everywhere = ", ".join(f"`{key}`" for key in sorted(COMMON))
    lines = [f"| every step | {everywhere} |"]
    for kind in Kind:
        own = [f"**`{key}`**" if key in STEP[kind].required else f"`{key}`" for key in sorted(STEP[kind].keys) if key not in COMMON]
        lines.append(f"| `{kind.value}` | {', '.join(own)} |")
    return "\n".join(["| type | keys (needed ones in bold) |", "| --- | --- |", *lines])


def error_tree() -> str:
    lines = []
    for root in (name for name, parent in TREE.items() if parent is None):
        children = ", ".join(f"`{name}`" for name, parent in TREE.items() if parent == root)
        lines.append(f"| `{root}` | {children} |")
    return "\n".join(["| failure | its children |", "| --- | --- |", *lines])


TABLES = {
    "steps": step_keys(),
    "reducers": "Reducers: " + ", ".join(f"`{name}`" for name in REDUCERS) + ".",
    "filters": entries(FILTERS),
    "tests": entries(TESTS),
    "functions": entries(FUNCTIONS),
    "errors": error_tree(),
}


def written(page: str, table: str) -> str:
    return re.sub(
        rf"(<!-- {table} -->\n).*?(\n?<!-- /{table} -->)", lambda m: m[1] + TABLES[table] + f"\n<!-- /{table} -->", page, flags=re.S
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_the_page_is_what_the_code_says(table: str) -> None:
    page = PAGE.read_text("utf-8")
    assert f"<!-- {table} -->" in page
    assert written(page, table) == page


def test_every_code_of_a_problem_stands_on_the_page() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "app/agiwo/definition").rglob("*.py"))
    calls = re.findall(r"(?:\.error|\.warning|\._error|\._problem|refuse|Problem)\(\s*\"([a-z_]+)\"", source)
    calls += re.findall(r"self\._unknown\(\s*\"([a-z_]+)\"", source) + re.findall(r"code, message = \"([a-z_0-9]+)\"", source)
    calls += re.findall(r"code: str = \"([a-z_]+)\"", source) + ["not_utf8"]
    listed = set(re.findall(r"`([a-z_0-9]+)`", PAGE.read_text("utf-8").rpartition("| code | says |")[2]))
    assert len(set(calls)) > 40
    assert set(calls) - listed == set()


def test_the_example_on_the_page_is_accepted() -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert example is not None
    assert check(load(example[1]), CONTRACTS).problems == ()


@pytest.mark.parametrize("file", sorted((ROOT / "workflows").glob("*.yaml")), ids=lambda file: file.name)
def test_what_is_shipped_has_neither_errors_nor_warnings(file: Path) -> None:
    assert check(load(file.read_bytes()), standard_registry().contracts()).problems == ()
