"""The program as a shell sees it: every command explains itself, loads nothing it does not need, and completes words."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import typer

from agiwo.cli.commands import app
from kit.process import ROOT, clean_environment

HEAVY = ("sqlalchemy", "fastapi", "pydantic", "asyncpg", "httpx", "uvicorn", "watchfiles", "agiwo.engine.node")


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that name it."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def parse(line: str) -> tuple[str, ...]:
    """The names of the command that a line calls; raises a usage error if the real parser refuses it."""
    program, *words = shlex.split(line.partition(" > ")[0])
    assert program == "agiwo"
    command: Any = typer.main.get_command(app)
    names: list[str] = []
    while hasattr(command, "commands"):
        command = command.commands[words[0]]
        names.append(words.pop(0))
    with command.make_context(" ".join(names), words):
        return tuple(names)


@pytest.mark.parametrize(("path", "command"), [pytest.param(path, command, id=" ".join(path)) for path, command in commands()])
def test_every_command_has_help_and_an_example_that_it_takes(path: tuple[str, ...], command: Any) -> None:
    assert command.help
    if not command.hidden:
        assert command.epilog and command.epilog.startswith("Example: agiwo ")
        assert parse(command.epilog.removeprefix("Example: ")) == path


def test_every_command_but_those_that_serve_gives_json() -> None:
    for path, command in commands():
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options or path[0] in ("serve", "dev", "dev-service"), path


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(**environment), capture_output=True, text=True, cwd=ROOT, check=True, timeout=60
    )
    return done.stdout


def test_help_loads_nothing_that_a_command_needs() -> None:
    code = f"""
import sys
from agiwo.cli import main
sys.argv = ["agiwo", "--help"]
try:
    main()
except SystemExit:
    pass
print("loaded:", [name for name in {HEAVY!r} if name in sys.modules])
"""
    assert run(code).splitlines()[-1] == "loaded: []"


def completed(line: str, **environment: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = line.split(" ")
    own = {"_AGIWO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), **environment}
    return run("import sys; sys.argv = ['agiwo']; from agiwo.cli import main; main()", **own).split()


def test_bash_completes_commands_options_and_commands_of_commands() -> None:
    assert completed("agiwo tr") == ["trigger", "trace"]
    assert completed("agiwo keys r") == ["revoke", "rotate"]
    assert completed("agiwo list --st") == ["--status", "--started-by"]
    assert set(completed("agiwo approve --")) >= {"--comment", "--digest", "--json"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_the_program(shell: str) -> None:
    script = run("import sys; sys.argv = ['agiwo']; from agiwo.cli import main; main()", _AGIWO_COMPLETE=f"source_{shell}")
    assert "_AGIWO_COMPLETE=complete_" + shell in script and "agiwo" in script
    assert os.linesep in script


class _Answers(BaseHTTPRequestHandler):
    """A service that has two workflows, one instance, and asks for a key."""

    def do_GET(self) -> None:
        items = {
            "/v1/workflows?q=we&limit=50": [{"workflow_id": "weekly", "version": "1.0"}, {"workflow_id": "newest", "version": None}],
            "/v1/instances?limit=50": [{"instance_id": "i-1", "workflow_id": "weekly", "status": "RUNNING"}],
            "/v1/approvals?status=pending&limit=50": [{"approval_id": "a-1", "title": "Send it?"}],
        }
        known = self.headers["authorization"] == "Bearer the-key" and self.path in items
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"items": items.get(self.path, [])}).encode())

    def log_message(self, *_: Any) -> None: ...


def test_ids_are_completed_by_what_the_service_knows() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = {"AGIWO_SERVER": f"http://127.0.0.1:{server.server_port}", "AGIWO_API_KEY": "the-key"}
        assert completed("agiwo trigger we", **own) == ["weekly"]
        assert completed("agiwo watch ", **own) == ["i-1"]
        assert completed("agiwo approve a", **own) == ["a-1"]
        assert completed("agiwo trigger we", **{**own, "AGIWO_API_KEY": "another"}) == []
        server.shutdown()


def test_where_nobody_answers_nothing_is_offered_and_nothing_is_said() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert completed("agiwo trigger w", AGIWO_SERVER=f"http://127.0.0.1:{silent.getsockname()[1]}") == []
    assert completed("agiwo trigger w", AGIWO_SERVER="http://127.0.0.1:9") == []
    assert completed("agiwo trigger w", AGIWO_SERVER="no address") == []


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["list", "--no-such-option"], ["no-such-command"]])
def test_without_a_terminal_there_are_no_colours(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agiwo", *words], env=clean_environment(), capture_output=True, text=True, cwd=ROOT, check=False, timeout=60
    )
    assert "\x1b" not in done.stdout + done.stderr
    assert done.returncode == (0 if "--help" in words else 2)
