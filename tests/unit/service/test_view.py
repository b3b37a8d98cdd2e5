"""What an instance's view says beyond its history."""

from __future__ import annotations

from agiwo.ports.queries import InstanceRow
from agiwo.service.view import instance_view
from kit.machine import Drive, compiled

FLOW = 'id: w\nversion: "1"\nsteps: [{id: a, type: tool_call, tool: t.pure}]\n'


def test_an_instance_that_no_node_could_drive_on_is_named_as_such() -> None:
    instance = Drive(compiled(FLOW)).instance
    reason = "6 nodes died while they drove it"
    row = InstanceRow(instance.id, "w", "1", "RUNNING", "0" * 32, None, {}, None, 1, 1.0, None, None, f"set aside: {reason}")
    view = instance_view(instance, row)
    assert view["status"] == "WAITING"
    assert view["waiting_for"] == [{"kind": "set_aside", "reason": reason}]
    assert [action["name"] for action in view["actions"]] == ["cancel"]


def test_an_instance_that_runs_is_not_called_set_aside() -> None:
    instance = Drive(compiled(FLOW)).instance
    row = InstanceRow(instance.id, "w", "1", "RUNNING", "0" * 32, None, {}, None, 1, 1.0, None, None, None)
    assert instance_view(instance, row)["status"] == "RUNNING"
