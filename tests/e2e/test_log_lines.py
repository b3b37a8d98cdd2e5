"""The log of a real service: one JSON object a line, each with what it belongs to, and no secret in any of them (R124, R130)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kit.process import Start

FLOW = """
workflow:
  id: logged
  version: "1.0"
  steps:
    - {id: works, type: tool_call, tool: debug.echo, parameters: {value: "{{ secrets.PASSWORD }}"}}
    - {id: fails, type: tool_call, tool: debug.fail, parameters: {error: ToolError, message: "no: {{ secrets.PASSWORD }}"}}
"""
PASSWORD = "hunter2-is-not-it"


def test_every_line_is_json_says_where_it_belongs_and_shows_no_secret(start: Start, tmp_path: Path) -> None:
    service = start(AGIWO_LOG_LEVEL="debug", AGIWO_SECRET_PASSWORD=PASSWORD)
    path = tmp_path / "logged.yaml"
    path.write_text(FLOW)
    assert service.call("publish", str(path)).status == 0
    view = service.call("trigger", "logged", "--wait", "20", "--json").json
    assert view["status"] == "FAILED"
    assert service.call("trigger", "nowhere").status == 1
    assert service.end() == 0
    lines: list[dict[str, Any]] = [json.loads(line) for text in service.seen for line in text.splitlines() if line.startswith("{")]
    others = [line for text in service.seen for line in text.splitlines() if line and not line.startswith("{")]
    assert others == [line for line in others if line.startswith("Agiwo")], "what is no JSON is what people are told at the start"
    assert all({"at", "level", "event"} <= line.keys() for line in lines)
    of_it = [line for line in lines if line.get("instance") == view["instance_id"]]
    assert {line["trace_id"] for line in of_it} == {view["trace_id"]}
    assert {line["step"] for line in of_it if "step" in line} >= {"works", "fails"}
    assert [line["level"] for line in of_it if line["event"] == "attempt_returned" and line.get("step") == "fails"][-1] == "warning"
    (refused,) = [line for line in lines if line["event"] == "trigger_refused"]
    assert (refused["workflow"], refused["code"], refused["level"]) == ("nowhere", "workflow_not_found", "warning")
    assert PASSWORD not in json.dumps(lines)
