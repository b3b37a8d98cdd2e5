"""How the service begins, refuses to begin, leaves, and comes back."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from kit.process import SECRET, Start, agiwo, free_port

SLEEPER = """
workflow:
  id: sleeper
  version: "1.0"
  output: "{{ steps.after.output }}"
  steps:
    - {id: before, type: tool_call, tool: debug.echo, parameters: {value: 1}}
    - {id: nap, type: tool_call, tool: debug.sleep, parameters: {seconds: 3}, timeout: 60s}
    - {id: after, type: tool_call, tool: debug.echo, parameters: {value: rested}}
"""


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ((), {}, "set AGIWO_DATABASE_URL, or say --embedded"),
        (("--embedded",), {"AGIWO_DATABASE_URL": "postgresql://h/d"}, "which database shall it be?"),
        ((), {"AGIWO_DATABASE_URL": "postgresql://h/d"}, "AGIWO_SECRET_KEY is not set"),
        (("--embedded", "--host", "0.0.0.0"), {}, "without API keys"),
        (("--embedded",), {"AGIWO_DATABSE_URL": "x"}, "did you mean AGIWO_DATABASE_URL?"),
        (("--embedded", "--port", "70000"), {}, "--port"),
        (("--embedded",), {"AGIWO_LLM_BASE_URL": "http://127.0.0.1:1/v1"}, "AGIWO_LLM_MODEL is not"),
        ((), {"AGIWO_DATABASE_URL": "mysql://h/d", "AGIWO_SECRET_KEY": SECRET}, "begins with postgresql://"),
    ],
)
def test_what_must_be_said_in_words_is_asked_for(
    arguments: tuple[str, ...], environment: dict[str, str], said: str, tmp_path: Path
) -> None:
    given = arguments if "--port" in arguments else (*arguments, "--port", str(free_port()))
    done = agiwo("serve", *given, cwd=tmp_path, **environment)
    assert done.status == 2, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / ".agiwo" / "postgres").exists()


def test_database_that_cannot_be_reached_and_a_taken_port_are_told(tmp_path: Path) -> None:
    away = agiwo(
        "serve", "--port", str(free_port()), cwd=tmp_path,
        AGIWO_DATABASE_URL=f"postgresql://u:very-secret@127.0.0.1:{free_port()}/d", AGIWO_SECRET_KEY=SECRET,
    )  # fmt: skip
    assert away.status == 3
    assert "the database cannot be used" in away.err
    assert "very-secret" not in away.err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = agiwo("serve", "--embedded", "--port", str(taken.getsockname()[1]), cwd=tmp_path)
    assert done.status == 1
    assert "cannot listen on 127.0.0.1" in done.err


def test_off_loopback_it_serves_with_keys_and_asks_for_them(start: Start) -> None:
    service = start("--host", "0.0.0.0", AGIWO_API_KEYS="first-key-0123456789,second-key-0123456789")
    url = service.url.replace("0.0.0.0", "127.0.0.1")
    nobody = agiwo("trigger", "hello", "--json", AGIWO_SERVER=url)
    assert nobody.json["code"] == "unauthenticated"
    known = agiwo("trigger", "hello", "--json", AGIWO_SERVER=url, AGIWO_API_KEY="second-key-0123456789")
    assert known.json["code"] == "workflow_not_found"


def talk(port: int, sent: bytes) -> bytes:
    """What the service answers to these bytes, to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_what_is_no_http_is_a_problem_like_any_other_and_who_hangs_up_is_no_fault(start: Start) -> None:
    service = start()
    port = int(service.url.rpartition(":")[2])
    head = b"POST /v1/workflows/x/trigger HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    for sent in (
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ):
        lines, _, body = talk(port, sent).partition(b"\r\n\r\n")
        assert lines.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/problem+json" in lines
        assert json.loads(body)["code"] == "malformed"
    talk(port, head + b"Content-Length: 100\r\n\r\n{")
    assert service.end() == 0
    assert "Traceback" not in "".join(service.seen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_leaves_with_status_0(start: Start, number: signal.Signals) -> None:
    service = start()
    assert service.end(number) == 0, "".join(service.seen)
    assert '"event":"left"' in "".join(service.seen)


def test_killed_service_takes_its_instances_over_at_its_next_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "sleeper.yaml").write_text(SLEEPER)
    port = free_port()
    service = start(port=port, AGIWO_LOG_LEVEL="debug")
    instance = service.call("trigger", "sleeper", "--json").json["instance_id"]
    service.line_with('"path":"nap"')  # the call is under way
    service.end(signal.SIGKILL)

    again = start(port=port)
    watched = again.call("watch", instance, "--json")
    assert watched.status == 0, watched.out + watched.err
    records = [json.loads(line) for line in watched.out.splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    done = [record["path"] for record in records if record["type"] == "step.succeeded"]
    assert done == ["before", "nap", "after"]


def test_definitions_with_problems_do_not_keep_the_service_from_starting(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "definitions"
    folder.mkdir()
    (folder / "wrong.yaml").write_text("workflow:\n  id: wrong\n  version: '1'\n  steps: 7\n")
    (folder / "right.yaml").write_text(SLEEPER)
    service = start("--workflows", str(folder))
    assert any(f"{folder / 'wrong.yaml'}:4:10: error: " in line for line in service.seen), "".join(service.seen)
    assert service.call("trigger", "sleeper", "--json").status == 0


def test_upgrade_of_a_fresh_and_of_a_present_database(empty_database: str) -> None:
    first = agiwo("db", "upgrade", "--json", AGIWO_DATABASE_URL=empty_database)
    assert first.status == 0, first.err
    assert first.json["before"] is None
    second = agiwo("db", "upgrade", AGIWO_DATABASE_URL=empty_database)
    assert second.status == 0
    assert "already" in second.out


def test_an_unknown_model_profile_is_refused_where_profiles_are_configured(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "asks.yaml"
    path.write_text(
        "workflow:\n  id: asks\n  version: '1'\n  steps:\n    - {id: a, type: llm_task, task_prompt: hi, llm: {profile: defualt}}\n"
    )
    service = start(AGIWO_LLM_BASE_URL="http://127.0.0.1:1/v1", AGIWO_LLM_MODEL="m")
    done = service.call("publish", str(path))
    assert done.status == 1
    assert "defualt" in done.err and "default" in done.err
