"""Commands that show definitions: the schema for editors, what two versions differ in, what a definition would do.

What is shown the service says; here it becomes text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from agiwo.cli.client import Client
from agiwo.cli.online import given_json, hinting
from agiwo.cli.screen import FAILED, CommandEnds, give, read_file, say, value_text
from agiwo.cli.shown import failure_text
from agiwo.definition.difference import difference_text
from agiwo.definition.json_schema import json_schema


def schema(as_json: bool) -> None:
    """Print the JSON Schema of a definition; it needs no service."""
    if as_json:
        give(json_schema())
        return
    say(json.dumps(json_schema(), indent=2, ensure_ascii=False))


async def diff(server: str, key: str | None, workflow: str, old: str, new: str, as_json: bool) -> None:
    """Show what two published versions differ in."""
    query = urlencode({"from": old, "to": new})
    async with Client(server, key) as client, hinting(client, workflow):
        found = await client.get(f"/v1/workflows/{quote(workflow, safe='')}/diff?{query}")
    if as_json:
        give(found)
        return
    say(difference_text(found).rstrip("\n"))


async def preview(
    server: str,
    key: str | None,
    what: str,
    input: str | None,
    results: str | None,
    decisions: str | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Follow a file's definition, or that of a published workflow, with nothing called."""
    given = (("input", input), ("results", results), ("decisions", decisions))
    body: dict[str, Any] = {name: given_json(text, f"--{name}") for name, text in given if text is not None}
    file = _is_file(what)
    if file:
        body["definition"] = read_file(Path(what)).decode("utf-8", "replace")
    elif version is not None:
        body["version"] = version
    async with Client(server, key) as client, hinting(client, what):
        shown = await client.post("/v1/workflows/preview" if file else f"/v1/workflows/{quote(what, safe='')}/preview", body)
    if as_json:
        give(shown)
    else:
        for line in preview_lines(shown):
            say(line)
    if shown["stopped"] is not None:
        raise CommandEnds(FAILED)


def _is_file(what: str) -> bool:
    return what == "-" or Path(what).is_file()


def preview_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """A dry run as people read it: each step with what it would be called with, and what that rests on."""
    yield f"{shown['workflow_id']} {shown['version']}: nothing is called"
    for step in shown["steps"]:
        yield f"  {step['path']}  {step['type']}  {step['status']}"
        yield from (f"      {line}" for line in _step_lines(step))
    yield from (f"  {id}  not reached ({why})" for id, why in shown["not_run"].items())
    if (stopped := shown["stopped"]) is not None:
        yield f"stopped at {stopped['at'] or 'its end'}: {stopped['why']}"
        yield from (f"  give {name}" for name in stopped["give"])
        return
    yield f"would end {shown['status']}" + (f": {failure_text(shown['error'])}" if shown.get("error") else "")
    if shown.get("output") is not None:
        yield f"output: {value_text(shown['output'], 2000)}"


def _step_lines(step: Mapping[str, Any]) -> Iterator[str]:
    if "when" in step:
        yield f"when {step['when']['expression']}: {value_text(step['when']['values'])}"
    if step["status"] == "SKIPPED":
        evidence = step.get("evidence") or {}
        yield f"skipped: {step.get('reason')}" + (f" {value_text(evidence['values'])}" if "values" in evidence else "")
    if step.get("input"):
        yield f"with {value_text(step['input'], 1000)}"
    if step.get("rests_on"):
        yield f"rests on what was made up: {', '.join(step['rests_on'])}"
    if "approval" in step:
        asked = step["approval"]
        said = f"{asked.get('decided', 'open')}{' (assumed)' if asked.get('assumed') else ''}"
        yield f"asks {', '.join(asked['approvers']) or 'whoever may approve'}: {value_text(asked['title'], 200)} -> {said}"
    if step.get("error"):
        yield failure_text(step["error"])
    elif step.get("output") is not None:
        yield f"gives {value_text(step['output'], 200)}" + (" (made up)" if step.get("output_from") == "placeholder" else "")
