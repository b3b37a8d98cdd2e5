"""The commands against a running service: text for people, JSON for programs, exit statuses for shells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.process import Service, agiwo, free_port

APPROVED = """
workflow:
  id: ask
  version: "1.0"
  output: "{{ steps.say.output }}"
  steps:
    - id: say
      type: tool_call
      tool: debug.echo
      requires_approval: true
      parameters: {value: done}
"""

TOOLS = """
from agiwo.toolkit import tool


@tool(name="mine.double", effect="pure")
async def double(n: int) -> int:
    return 2 * n
"""


@pytest.fixture(scope="module")
def ask(service: Service, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Id of a published workflow that waits for a decision."""
    path = tmp_path_factory.mktemp("definitions") / "ask.yaml"
    path.write_text(APPROVED)
    assert service.call("publish", str(path)).status == 0
    return "ask"


def waiting(service: Service, workflow: str) -> str:
    """A new instance that stands at its approval."""
    view = service.call("trigger", workflow, "--wait", "30", "--json").json
    assert view["status"] == "WAITING"
    return str(view["instance_id"])


def test_what_lies_in_the_folder_is_published_at_start(service: Service) -> None:
    done = service.call("trigger", "hello", "--input", '{"name": "Ada"}', "--wait", "30")
    assert done.status == 0, done.err
    assert 'output: {"greeting": "HELLO, ADA!"}' in done.out


def test_publishing_again_changes_nothing_and_other_content_is_refused(service: Service, ask: str, tmp_path: Path) -> None:
    path = tmp_path / "ask.yaml"
    path.write_text(APPROVED)
    again = service.call("publish", str(path))
    assert again.status == 0
    assert "is there already" in again.out
    path.write_text(APPROVED.replace("value: done", "value: other"))
    other = service.call("publish", str(path))
    assert other.status == 1
    assert "a version never changes" in other.err or "is published with another value" in other.err


def test_trigger_that_breaks_the_schema_fails_with_the_place(service: Service) -> None:
    done = service.call("trigger", "hello", "--input", '{"name": ""}')
    assert done.status == 1
    assert "/input/name" in done.err
    machine = service.call("trigger", "hello", "--input", '{"name": ""}', "--json")
    assert machine.status == 1
    assert machine.json["code"] == "input_invalid"


def test_input_may_come_from_a_file_or_standard_input(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"name": "Grace"}')
    assert "HELLO, GRACE!" in service.call("trigger", "hello", "--input", f"@{file}", "--wait", "30").out
    assert "HELLO, ALAN!" in service.call("trigger", "hello", "--input", "@-", "--wait", "30", given='{"name": "Alan"}').out
    wrong = service.call("trigger", "hello", "--input", "{name: x}")
    assert wrong.status == 2
    assert "--input" in wrong.err


def test_a_repeated_key_starts_one_instance(service: Service) -> None:
    first, second = (service.call("trigger", "hello", "--input", '{"name": "K"}', "--key", "once", "--json").json for _ in range(2))
    assert first["instance_id"] == second["instance_id"]


def test_a_signal_from_the_command_line_ends_a_wait(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "wait.yaml"
    path.write_text('id: wait_paid\nversion: "1"\nsteps: [{id: w, type: wait_for_signal, event: paid}]\noutput: "{{ steps.w.output }}"\n')
    assert service.call("publish", str(path)).status == 0
    instance = service.call("trigger", "wait_paid", "--json").json["instance_id"]
    sent = service.call("signal", instance, "paid", "--payload", '{"amount": 5}', "--id", "p1")
    assert (sent.status, sent.out.strip()) == (0, "paid: accepted as p1"), sent.err
    watched = service.call("watch", instance)
    assert "got a signal: paid" in watched.out
    assert 'output: {"amount": 5}' in watched.out
    assert service.call("resume", instance).status == 1


def test_approving_by_the_id_of_the_instance(service: Service, ask: str) -> None:
    instance = waiting(service, ask)
    shown = service.call("show", instance)
    assert "waits for a decision on say: agiwo approve " in shown.out
    done = service.call("approve", instance, "--comment", "good")
    assert done.status == 0, done.err
    assert "approved" in done.out
    watched = service.call("watch", instance)
    assert watched.status == 0
    assert "was decided: approved by key:local" in watched.out
    assert "output: done" in watched.out


def test_rejecting_by_the_id_of_the_approval_fails_the_instance(service: Service, ask: str) -> None:
    instance = waiting(service, ask)
    wait = service.call("show", instance, "--json").json["waiting_for"][0]
    assert service.call("reject", wait["approval_id"], "--json").json["status"] == "rejected"
    watched = service.call("watch", instance, "--json")
    assert watched.status == 1
    records = [json.loads(line) for line in watched.out.splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert records[-1]["type"] == "instance.ended"


def test_unknown_instance_fails_and_a_malformed_id_is_wrong_use(service: Service) -> None:
    unknown = service.call("show", "0191d3b0-0000-7000-8000-000000000000")
    assert unknown.status == 1
    assert "Traceback" not in unknown.err
    assert service.call("show", "not-an-id").status == 2


def test_unreachable_service_has_a_status_of_its_own() -> None:
    done = agiwo("show", "0191d3b0-0000-7000-8000-000000000000", "--server", f"http://127.0.0.1:{free_port()}", "--json")
    assert done.status == 3
    assert done.json["code"] == "not_reached"


def test_validate_names_every_mistake_with_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(APPROVED.replace("debug.echo", "debug.ecko").replace("version:", "verson:"))
    done = agiwo("validate", str(path))
    assert done.status == 1
    assert f"{path}:9:13: error: " in done.out
    assert "debug.echo" in done.out
    assert f"{path}:4:3: error: " in done.out
    assert agiwo("validate", str(path), "--json").json["valid"] is False


def test_validate_knows_the_tools_of_a_named_module(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    (tmp_path / "flow.yaml").write_text(APPROVED.replace("debug.echo", "mine.double").replace("value: done", "n: 4"))
    assert agiwo("validate", "flow.yaml", cwd=tmp_path).status == 1
    assert agiwo("validate", "flow.yaml", "--tools", "my_tools.py", cwd=tmp_path).status == 0
    missing = agiwo("validate", "flow.yaml", "--tools", "no_such_module", cwd=tmp_path)
    assert missing.status == 2
    assert "no_such_module" in missing.err


def test_tools_are_listed_and_one_is_shown_with_its_parameters(service: Service) -> None:
    listed = service.call("tools")
    assert listed.status == 0 and "debug.echo (pure): " in listed.out and "notify.send (write): " in listed.out
    shown = service.call("tools", "notify.send")
    assert "  text: string, needed. The message." in shown.out and "  channel: string, optional." in shown.out
    assert service.call("tools", "notify.send", "--json").json["effect"] == "write"
    assert service.call("tools", "no.such").status == 1


def test_validate_knows_the_tools_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text("name: my.list\ndescription: Lists.\neffect: read\ncommand: [/bin/ls]\n")
    (tmp_path / "w.yaml").write_text('id: w\nversion: "1"\nsteps: [{id: a, type: tool_call, tool: my.list}]\n')
    assert agiwo("validate", str(tmp_path / "w.yaml"), "--tools-dir", str(tmp_path / "tools.yaml")).status == 0
    assert agiwo("validate", str(tmp_path / "w.yaml")).status == 1


def test_an_instance_is_started_under_what_signals_find_it_by(service: Service) -> None:
    made = service.call("trigger", "hello", "--input", '{"name": "K"}', "--correlation-key", "order-9", "--json").json
    assert service.call("show", made["instance_id"], "--json").json["correlation_key"] == "order-9"
