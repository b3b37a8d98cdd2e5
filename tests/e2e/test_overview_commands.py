"""The commands that look at a running service as a whole, and at one instance whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from kit.process import Done, Service, Start, agiwo

ASKS = """
id: asks
version: "1.0"
steps: [{id: say, type: tool_call, tool: debug.echo, requires_approval: true, parameters: {value: done}}]
"""
FAILS = """
id: fails
version: "1.0"
steps:
  - {id: good, type: tool_call, tool: debug.echo, parameters: {value: 1}}
  - {id: bad, type: tool_call, tool: debug.fail, parameters: {error: Broken, message: it broke}}
"""


def lines(done: Done) -> list[Any]:
    """The JSON lines of a command that went well."""
    assert done.status == 0, done.out + done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture(scope="module")
def instances(service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Ids of three instances by workflow: one succeeded, one failed, one waits."""
    folder = tmp_path_factory.mktemp("definitions")
    for name, text in (("asks", ASKS), ("fails", FAILS)):
        (folder / f"{name}.yaml").write_text(text)
        assert service.call("publish", str(folder / f"{name}.yaml")).status == 0
    ids = {}
    for workflow, input in (("hello", '{"name": "Ada"}'), ("fails", "{}"), ("asks", "{}")):
        done = service.call("trigger", workflow, "--input", input, "--wait", "30", "--json")
        ids[workflow] = done.json["instance_id"]
    return ids


def test_instances_are_listed_by_what_they_are(service: Service, instances: dict[str, str]) -> None:
    newest = lines(service.call("list", "--json"))
    assert [row["instance_id"] for row in newest[:3]] == [instances["asks"], instances["fails"], instances["hello"]]
    failed = lines(service.call("list", "--status", "failed", "--error", "Broken", "--since", "1h", "--all", "--json"))
    assert [row["instance_id"] for row in failed] == [instances["fails"]]
    assert lines(service.call("list", "--label", "team:nobody", "--json")) == []
    by_trace = lines(service.call("list", "--trace-id", newest[2]["trace_id"], "--json"))
    assert [row["instance_id"] for row in by_trace] == [instances["hello"]]
    shown = service.call("list", "--workflow", "fails")
    assert f"✗ {instances['fails']}" in shown.out and "fails 1.0  FAILED: Broken: it broke" in shown.out
    one = service.call("list", "--limit", "1")
    assert len(one.out.splitlines()) == 1 and "--all shows all" in one.err
    assert service.call("list", "--status", "sleeping").status == 1
    assert service.call("list", "--since", "yesterday").status == 2
    assert service.call("list", "--limit", "0").status == 2


def test_a_trace_tells_each_run_with_its_error(service: Service, instances: dict[str, str]) -> None:
    done = service.call("trace", instances["fails"])
    assert done.status == 0, done.err
    assert "✓ good  debug.echo  SUCCESS" in done.out and "✗ bad  debug.fail  FAILED" in done.out and "Broken: it broke" in done.out
    whole = service.call("trace", instances["fails"], "--json").json
    assert [step["path"] for step in whole["steps"]] == ["good", "bad"] and whole["usage"] == [] and whole["totals"]["calls"] == 0
    assert service.call("trace", "0191d3b0-0000-7000-8000-000000000000").status == 1


def test_workflows_and_approvals_are_listed(service: Service, instances: dict[str, str]) -> None:
    assert "asks  1.0  (1 version)" in service.call("workflows", "--containing", "ask").out
    assert {row["workflow_id"] for row in lines(service.call("workflows", "--json"))} >= {"asks", "fails", "hello"}
    waiting = lines(service.call("approvals", "--all", "--json"))
    assert [row["instance_id"] for row in waiting] == [instances["asks"]]
    assert f"{waiting[0]['approval_id']}  asks say: " in service.call("approvals").out
    nobody = service.call("approvals", "--assignee", "user:nobody@example.com")
    assert (nobody.status, nobody.out) == (0, "") and "nothing waits" in nobody.err


def test_the_workflow_that_was_meant_is_named(service: Service, instances: dict[str, str]) -> None:
    done = service.call("trigger", "helo", "--json")
    assert (done.status, done.json["code"], done.json["nearest"]) == (1, "workflow_not_found", "hello")
    for words in (("trigger", "helo"), ("preview", "helo"), ("diff", "helo", "1", "2")):
        assert "did you mean `hello`?" in service.call(*words).err
    assert "did you mean" not in service.call("trigger", "something_else_entirely").err


def test_who_decided_already_is_said_to_whoever_comes_late(start: Start, tmp_path: Path) -> None:
    service = start(AGIWO_API_KEYS="first-key-0123456789,second-key-0123456789")
    (tmp_path / "asks.yaml").write_text(ASKS)
    first = {"AGIWO_API_KEY": "first-key-0123456789"}
    assert service.call("publish", str(tmp_path / "asks.yaml"), **first).status == 0
    instance = service.call("trigger", "asks", "--wait", "30", "--json", **first).json["instance_id"]
    for _ in range(2):  # the same decision by the same principal again is the same answer
        again = service.call("approve", instance, **first)
        assert again.status == 0 and "approved by key:key-1" in again.out
    late = service.call("reject", instance, AGIWO_API_KEY="second-key-0123456789")
    assert late.status == 1 and "key:key-1 has decided already: approve" in late.err


def test_a_cancelled_instance_ends(service: Service, instances: dict[str, str]) -> None:
    instance = service.call("trigger", "asks", "--wait", "30", "--json").json["instance_id"]
    done = service.call("cancel", instance, "--reason", "not needed")
    assert done.status == 0 and "was told to end" in done.out
    assert service.call("watch", instance, "--json").status == 1
    assert service.call("show", instance, "--json").json["status"] == "CANCELLED"


def test_a_paused_workflow_starts_nothing_until_it_is_resumed(service: Service, instances: dict[str, str]) -> None:
    paused = service.call("pause", "hello", "--reason", "closed today")
    assert (paused.status, paused.out.strip()) == (0, "hello starts nothing new; let it go on with: agiwo resume hello")
    refused = service.call("trigger", "hello", "--input", '{"name": "x"}')
    assert refused.status == 1 and "closed today" in refused.err
    assert "paused by key:local: closed today" in service.call("workflows", "--containing", "hello").out
    assert service.call("resume", "hello", "--json").json["paused"] is None
    assert service.call("trigger", "hello", "--input", '{"name": "x"}').status == 0
    assert "did you mean `hello`?" in service.call("pause", "helo").err


def test_the_version_that_triggers_take_is_marked_and_the_mark_taken_away(service: Service, tmp_path: Path) -> None:
    for version in ("1.0", "1.1"):
        (tmp_path / "v.yaml").write_text(ASKS.replace("asks", "marked").replace("1.0", version))
        assert service.call("publish", str(tmp_path / "v.yaml")).status == 0
    assert service.call("default", "marked", "1.0").out.strip() == "marked: triggers that name no version take 1.0"
    assert service.call("default", "marked", "--none", "--json").json["version"] == "1.1"
    assert service.call("default", "marked").status == 2
    assert service.call("default", "marked", "1.0", "--none").status == 2


def test_what_needs_no_reconciling_is_refused(service: Service, instances: dict[str, str]) -> None:
    refused = service.call("reconcile", instances["fails"], "good", "--done", "--json")
    assert refused.status == 1 and refused.json["status"] == 409
    assert service.call("reconcile", instances["fails"], "good", "--not-done", "--result", "1").status == 2
    assert service.call("reconcile", instances["fails"], "good").status == 2


def test_doctor_finds_a_well_service_well(service: Service) -> None:
    done = service.call("doctor")
    assert done.status == 0, done.out
    assert [line.split(":")[0] for line in done.out.splitlines() if not line.startswith(" ")] == [
        "✓ parts", "✓ promises", "✓ nodes", "✓ queues", "✓ circuits", "✓ deliveries",
    ]  # fmt: skip
    assert len(lines(service.call("nodes", "--json"))) == 1
    assert "alive" in service.call("nodes").out
    assert service.call("doctor", "--json").json["well"] is True


def test_doctor_fails_where_something_is_wrong_and_says_what(service: Service) -> None:
    circuit = f"{service.url}/v1/admin/breakers/http.request"
    httpx.post(f"{circuit}/open?key=example.com", json={"seconds": 600}).raise_for_status()
    done = service.call("doctor", "--json")
    httpx.post(f"{circuit}/reset?key=example.com").raise_for_status()
    circuits = next(finding for finding in done.json["findings"] if finding["name"] == "circuits")
    assert (done.status, done.json["well"], circuits["state"]) == (1, False, "wrong")
    assert circuits["details"][0].startswith("http.request example.com is open")


def test_doctor_says_what_a_key_may_not_see(start: Start) -> None:
    service = start(AGIWO_API_KEYS="admin-key-0123456789")
    made = service.call("keys", "create", "looks", "--role", "viewer", AGIWO_API_KEY="admin-key-0123456789")
    done = service.call("doctor", AGIWO_API_KEY=made.out.strip())
    assert done.status == 0, done.out
    assert "- nodes: " in done.out and "✓ parts" in done.out
    wrong = service.call("doctor", AGIWO_API_KEY="nobody-knows-this-key")
    assert wrong.status == 1 and "Traceback" not in wrong.err


def test_doctor_cannot_reach_what_is_not_there() -> None:
    assert agiwo("doctor", "--server", "http://127.0.0.1:9").status == 3
