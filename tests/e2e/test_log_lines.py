"""The log of a real service: one JSON object a line, each with what it belongs to, and no secret in any of them (R124, R130)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kit.process import Start, free_port

FLOW = """
workflow:
  id: logged
  version: "1.0"
  steps:
    - {id: works, type: tool_call, tool: debug.echo, parameters: {value: "{{ secrets.PASSWORD }}"}}
    - {id: fails, type: tool_call, tool: debug.fail, parameters: {error: ToolError, message: "no: {{ secrets.PASSWORD }}"}}
"""
ASKS = """
id: asks
version: "1.0"
steps:
  - id: say
    type: tool_call
    tool: debug.echo
    parameters: {value: 1}
    approval: {notify: [mail], approvers: ["user:ann@example.com"]}
"""
PASSWORD = "hunter2-is-not-it"


def test_every_line_is_json_says_where_it_belongs_and_shows_no_secret(start: Start, tmp_path: Path) -> None:
    service = start(AGIWO_LOG_LEVEL="debug", AGIWO_SECRET_PASSWORD=PASSWORD, AGIWO_NODE_NAME="node-a")
    path = tmp_path / "logged.yaml"
    path.write_text(FLOW)
    assert service.call("publish", str(path)).status == 0
    view = service.call("trigger", "logged", "--wait", "20", "--json").json
    assert view["status"] == "FAILED"
    assert service.call("trigger", "nowhere").status == 1
    assert service.end() == 0
    lines: list[dict[str, Any]] = [json.loads(line) for text in service.seen for line in text.splitlines()]
    assert all({"at", "level", "event", "node"} <= line.keys() for line in lines)
    assert {line["node"] for line in lines} == {"node-a"}
    of_it = [line for line in lines if line.get("instance") == view["instance_id"]]
    assert {line["trace_id"] for line in of_it} == {view["trace_id"]}
    assert [line["level"] for line in of_it if line["event"] == "instance_started"] == ["info"]
    assert [line["event"] for line in lines[-2:]] == ["leaving", "left"]
    assert {line["step"] for line in of_it if "step" in line} >= {"works", "fails"}
    assert [line["level"] for line in of_it if line["event"] == "attempt_returned" and line.get("step") == "fails"][-1] == "warning"
    (refused,) = [line for line in lines if line["event"] == "trigger_refused"]
    assert (refused["workflow"], refused["code"], refused["level"]) == ("nowhere", "workflow_not_found", "warning")
    assert PASSWORD not in json.dumps(lines)


def test_at_the_usual_level_too_everything_is_json_and_failed_deliveries_have_their_trace(start: Start, tmp_path: Path) -> None:
    (tmp_path / "agiwo.yaml").write_text(
        f'connections: {{mail: {{kind: smtp, url: "smtp://127.0.0.1:{free_port()}", sender: "a@example.com"}}}}\n'
    )
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "broken.yaml").write_text("id: broken\nsteps: nothing\n")
    (tmp_path / "asks.yaml").write_text(ASKS)
    service = start("--config", str(tmp_path / "agiwo.yaml"), AGIWO_LOG_LEVEL="warning")
    assert service.call("publish", str(tmp_path / "asks.yaml")).status == 0
    view = service.call("trigger", "asks", "--wait", "20", "--json").json
    line = json.loads(service.line_with("not_delivered"))
    assert (line["trace_id"], line["instance"], line["target"]) == (view["trace_id"], view["instance_id"], "mail")
    assert service.end() == 0
    lines = [json.loads(line) for text in service.seen for line in text.splitlines()]
    assert any("broken.yaml" in line["event"] for line in lines), "what is wrong with a definition is told at every level"
