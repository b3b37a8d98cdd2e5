"""The table of hard cases names every rule and only tests that there are, and each of them says which rule it holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "hard_cases.md"
RULES = [f"REQ-{number:02d}" for number in range(1, 48)]


def rows() -> dict[str, tuple[str, list[str]]]:
    """By rule: what is said of it, and the tests."""
    found = re.findall(r"^\| (REQ-\d+) \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {rule: (said, re.findall(r"`([^`]+)`", tests)) for rule, said, tests in found}


def texts_of(named: str) -> Iterator[str]:
    """The name of a test, its docstring and that of its module; nothing if there is no such test."""
    path, _, name = named.partition("::")
    if (TESTS / path).is_file():
        module = ast.parse((TESTS / path).read_text())
        for node in module.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                yield from (name, ast.get_docstring(node) or "", ast.get_docstring(module) or "")


def test_every_rule_stands_in_the_table_once() -> None:
    assert re.findall(r"^\| (REQ-\d+) ", PAGE.read_text(), re.MULTILINE) == RULES


@pytest.mark.parametrize("rule", RULES)
def test_what_the_table_says_of_a_rule_is_so(rule: str) -> None:
    said, tests = rows()[rule]
    assert tests or "**Not yet:**" in said, "a rule has tests, or what is missing is said"
    missing = [named for named in tests if not list(texts_of(named))]
    assert not missing, "the table names tests that there are"
    spelt = re.compile(rule.replace("-", "[-_]"), re.IGNORECASE)
    assert not tests or any(spelt.search(text) for named in tests for text in texts_of(named)), "a test says that it holds the rule"
