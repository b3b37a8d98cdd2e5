"""The names under which `agiwo dev` publishes what was saved, and the texts that carry them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiwo.cli.dev.changes import changed, differing, marks
from agiwo.cli.dev.versions import dev_name, dev_number, next_name, renamed, standing
from agiwo.definition import content_hash, load
from agiwo.definition.versions import version_key

STEPS = "steps: [{id: a, type: tool_call, tool: debug.echo, parameters: {value: 1}}]"
versions = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}(-[a-z]{1,4}(\.[0-9]{1,2})?)?", fullmatch=True)


@given(versions, st.integers(1, 10_000))
def test_a_name_is_a_version_below_the_one_without_label_and_tells_its_number(version: str, number: int) -> None:
    name = dev_name(version, number)
    assert dev_number(version, name) == number
    assert version_key(name) < version_key(dev_name(version, number + 1))
    if "-" not in version:
        assert version_key(name) < version_key(version)


@pytest.mark.parametrize("name", ["1.0", "1.0-dev", "1.0-dev.", "1.0-dev.01", "1.0-dev.x", "1.0-dev.1.2", "1.00-dev.1", "2.0-dev.1", ""])
def test_other_names_have_no_number(name: str) -> None:
    assert dev_number("1.0", name) is None


def test_the_next_name_is_above_all_that_are_there() -> None:
    assert next_name("1.0", ["1.0"]) == "1.0-dev.1"
    assert next_name("1.0", ["1.0", "1.0-dev.2", "1.0-dev.10", "1.1-dev.30"]) == "1.0-dev.11"
    assert next_name("1.0-rc.1", ["1.0-rc.1"]) == "1.0-rc.1.dev.1"


def test_content_is_found_again_under_its_version_or_a_name() -> None:
    document = {"id": "w", "version": "1.0", "steps": []}
    other = {**document, "steps": [1]}
    there = {"1.0": content_hash(document), "1.0-dev.3": content_hash({**other, "version": "1.0-dev.3"})}
    assert standing(document, there) == "1.0"
    assert standing(other, there) == "1.0-dev.3"
    assert standing({**document, "steps": [2]}, there) is None


@pytest.mark.parametrize(
    "text",
    [
        f'id: w  # ours\nversion: "1.0"  # of today\n{STEPS}\n',
        f"workflow:\n  version: '1.0'\n  id: w\n  {STEPS}\n",
        f"version: 1.0\nid: w\n{STEPS}\n",
        f"version: 1.0 # plain\r\nid: w\r\n{STEPS}\r\n",
        "{id: w, version: 1.0, " + STEPS + "}\n",
        "{" + f'version: "1.0", id: w, {STEPS}' + "}",
        '{"workflow": {"version": "1.0", "id": "w", "steps": [{"id": "ä", "type": "tool_call", "tool": "debug.echo"}]}}',
        f"id: w\nversion:\n  1.0\n{STEPS}\n",
        f'"version": &v "1.0"\nid: w\n{STEPS}\n',
        f"version: >-\n  1.0\nid: w\n{STEPS}\n",
    ],
)
def test_a_renamed_text_says_the_same_under_another_version(text: str) -> None:
    before, after = load(text).document, load(renamed(text.encode(), "1.0-dev.7")).document
    assert isinstance(before, dict)
    assert after == {**before, "version": "1.0-dev.7"}


def test_a_renamed_text_keeps_its_comments_and_lines() -> None:
    text = f'# greets\nid: w  # ours\nversion: "1.0"  # of today\n{STEPS}\n'
    assert renamed(text.encode(), "1.0-dev.1").decode() == text.replace("1.0", "1.0-dev.1")


async def test_a_change_is_told_once_the_files_stand_still(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("1")
    known = marks([first, second])
    waiting = asyncio.create_task(changed(lambda: marks([first, second]), known))
    first.write_text("22")
    second.write_text("3")
    now = await waiting
    assert differing(known, now) == [first, second]
    first.unlink()
    assert differing(now, marks([first, second])) == [first]
