"""The commands that show definitions, against a running service."""

from __future__ import annotations

import json
from pathlib import Path

from kit.process import Service, agiwo

TEXT = """\
workflow:
  id: shown
  version: "1.0"
  steps:
    - {id: say, type: tool_call, tool: debug.echo, parameters: {value: "{{ input.word }}"}}
    - {id: loud, type: tool_call, tool: debug.echo, when: "{{ input.word == 'x' }}", parameters: {value: "{{ steps.say.output.deep }}"}}
"""


def test_the_schema_needs_no_service() -> None:
    done = agiwo("schema")
    assert done.status == 0, done.err
    assert json.loads(done.out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_two_versions_are_compared(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "shown.yaml"
    for version, word in (("1.0", "word"), ("1.1", "wort")):
        path.write_text(TEXT.replace("1.0", version).replace("input.word }}", f"input.{word} }}}}"))
        assert service.call("publish", str(path)).status == 0
    done = service.call("diff", "shown", "1.0", "1.1")
    assert done.out.splitlines() == [
        "shown 1.0 -> 1.1", "~ step say", '    parameters: {"value": "{{ input.word }}"} -> {"value": "{{ input.wort }}"}',
    ]  # fmt: skip
    assert service.call("diff", "shown", "1.0", "1.1", "--json").json["same"] is False
    assert service.call("diff", "shown", "1.0", "9").status == 1


def test_a_dry_run_of_a_file_and_of_a_workflow(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "dry.yaml"
    path.write_text(TEXT.replace("id: shown", "id: dry"))
    done = service.call("preview", str(path), "--input", '{"word": "y"}')
    assert done.status == 0, done.err
    assert 'with {"value": "y"}' in done.out and "skipped: when" in done.out and "would end SUCCESS" in done.out
    stopped = service.call("preview", str(path), "--input", '{"word": "x"}')
    assert stopped.status == 1
    assert "stopped at loud" in stopped.out and "give steps.say" in stopped.out
    given = service.call("preview", str(path), "--input", '{"word": "x"}', "--results", '{"say": {"deep": 1}}', "--json")
    assert (given.status, given.json["stopped"]) == (0, None)
    assert service.call("preview", "hello", "--input", '{"name": "Ada"}').status == 0
    assert service.call("preview", "nosuch").status == 1


def test_a_draft_is_kept_with_its_mistakes_and_published_without_them(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "drafted.yaml"
    path.write_text(TEXT.replace("id: shown", "id: drafted").replace("debug.echo", "debug.ehco", 1))
    done = service.call("publish", str(path), "--draft")
    assert done.status == 0, done.err
    assert "did you mean `debug.echo`?" in done.out and done.out.splitlines()[-1].endswith("drafted 1.0 is kept as a draft")
    assert service.call("trigger", "drafted").status == 1
    path.write_text(TEXT.replace("id: shown", "id: drafted"))
    assert service.call("publish", str(path)).out.splitlines()[-1].endswith("drafted 1.0 is published")
