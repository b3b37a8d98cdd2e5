"""`agiwo dev` as a developer uses it: on an embedded database, with files that are saved, broken, mended and removed."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.process import READY, Done, agiwo, clean_environment, free_port

FLOW = """\
workflow:
  id: greet
  version: "1.0"  # ours
  output: "{{ steps.say.output }}"
  steps:
    - {id: say, type: tool_call, tool: mine.hello, parameters: {name: "{{ input.name }}"}}
"""
TOOLS = """\
from beside import WORD

from agiwo.toolkit import tool


@tool(name="mine.hello", effect="pure")
async def hello(name: str) -> str:
    return WORD + " " + name
"""
SLOW = """\
workflow:
  id: slow
  version: "1"
  output: "{{ steps.say.output }}"
  steps:
    - {id: nap, type: tool_call, tool: debug.sleep, parameters: {seconds: 20}, timeout: 60s}
    - {id: say, type: tool_call, tool: mine.hello, parameters: {name: Bob}}
"""


class Dev:
    """`agiwo dev` as a child in `folder`, its lines read one after the other."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.seen: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agiwo", "dev", *arguments, "--port", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=folder, env=clean_environment(**environment),
        )  # fmt: skip

    def line_with(self, text: str) -> str:
        """The next line that holds `text`; waits for it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"dev ended without saying {text!r}:\n{''.join(self.seen)}")

    def call(self, *arguments: str) -> Done:
        return agiwo(*arguments, cwd=self.folder, AGIWO_SERVER=f"http://127.0.0.1:{self.port}")

    def output(self, workflow: str = "greet") -> object:
        return self.call("trigger", workflow, "--input", '{"name": "Ada"}', "--wait", "30", "--json").json["output"]

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=60)
        self.seen.append(rest)
        return self.process.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose database is made once; each test writes its files anew."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "workflows").mkdir(exist_ok=True)
    for path in (folder / "workflows").iterdir():
        path.unlink()
    (folder / "my_tools.py").write_text(TOOLS)
    (folder / "beside.py").write_text('WORD = "Hello"\n')
    return folder


@pytest.fixture
def dev(project: Path) -> Iterator[Dev]:
    (project / "workflows" / "greet.yaml").write_text(FLOW)
    started = Dev(project, "--tools", "my_tools.py")
    yield started
    started.end(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_was_saved_last_is_what_triggers_take_and_what_runs_keeps_its_version(dev: Dev, project: Path) -> None:
    path = project / "workflows" / "greet.yaml"
    dev.line_with("greet.yaml: greet 1.0 is published")
    dev.line_with(READY)
    assert dev.output() == "Hello Ada"

    path.write_text(FLOW.replace('"{{ steps', '"Said: {{ steps'))
    dev.line_with("greet 1.0 has changed: greet 1.0-dev.1 is published, and triggers take it")
    assert dev.output() == "Said: Hello Ada"

    path.write_text(FLOW.replace("steps:", "stps:"))
    assert "workflows/greet.yaml:2:3: error: " in dev.line_with("a workflow needs `steps`")
    dev.line_with("greet 1.0-dev.1 stays what it was")
    assert dev.output() == "Said: Hello Ada"

    path.write_text(FLOW)  # undone: it stands already
    dev.line_with("greet 1.0 stands already, and triggers take it")
    assert dev.output() == "Hello Ada"

    (project / "workflows" / "copy.yaml").write_text(FLOW.replace("input.name", "input.other"))
    dev.line_with("greet 1.0 is in workflows/greet.yaml already")
    (project / "workflows" / "copy.yaml").unlink()
    path.unlink()
    dev.line_with("greet.yaml: is gone; greet 1.0 stays as it is")
    assert dev.output() == "Hello Ada"
    assert dev.end() == 0, "".join(dev.seen)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_changed_tools_are_loaded_anew_and_instances_go_on(dev: Dev, project: Path) -> None:
    (project / "workflows" / "slow.yaml").write_text(SLOW)
    dev.line_with(READY)
    instance = dev.call("trigger", "slow", "--json").json["instance_id"]
    (project / "beside.py").write_text('WORD = "Good day"\n')
    dev.line_with("beside.py changed: loading anew")
    dev.line_with(READY)
    assert dev.output() == "Good day Ada"
    shown = dev.call("show", instance, "--json").json
    assert shown["status"] in ("RUNNING", "WAITING")  # it was taken over

    (project / "my_tools.py").write_text(TOOLS + "def broken(\n")
    dev.line_with("my_tools.py cannot be imported: SyntaxError")
    dev.line_with("the service goes on with those of before")
    assert dev.output() == "Good day Ada"

    (project / "my_tools.py").write_text(TOOLS.replace('" " + name', '", " + name'))
    dev.line_with(READY)
    assert dev.output() == "Good day, Ada"
    assert dev.end(signal.SIGTERM) == 0, "".join(dev.seen)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_declared_tools_are_loaded_anew(project: Path) -> None:
    (project / "tools").mkdir()
    (project / "workflows" / "say.yaml").write_text(
        'id: say\nversion: "1"\noutput: "{{ steps.a.output }}"\n'
        "steps: [{id: a, type: tool_call, tool: debug.echo, parameters: {value: 1}}]\n"
    )
    dev = Dev(project, "--tools-dir", "tools", AGIWO_COMMANDS_ALLOWED="my.list")
    try:
        dev.line_with(READY)
        (project / "tools" / "list.yaml").write_text("name: my.list\ndescription: Lists.\neffect: read\ncommand: [/bin/ls]\n")
        dev.line_with("tools/list.yaml changed: loading anew")
        dev.line_with(READY)
        assert dev.call("tools", "my.list").status == 0
        assert dev.output("say") == 1
    finally:
        assert dev.end() == 0, "".join(dev.seen)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_outlives_a_dev_that_was_killed(dev: Dev, project: Path) -> None:
    dev.line_with(READY)
    children = Path(f"/proc/{dev.process.pid}/task/{dev.process.pid}/children").read_text().split()
    handles = [os.pidfd_open(int(child)) for child in children]
    assert len(handles) >= 2  # the database's watcher, and the service
    dev.end(signal.SIGKILL)
    for handle in handles:
        gone(handle)


def gone(handle: int) -> None:
    """Wait until a process has ended."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    assert poll.poll(60_000)
    os.close(handle)


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ((), {"AGIWO_DATABASE_URL": "postgresql://h/d"}, "AGIWO_DATABASE_URL is set"),
        ((), {"AGIWO_REDIS_URL": "redis://h"}, "AGIWO_REDIS_URL is set"),
        (("nowhere",), {}, "the folder of workflows nowhere does not exist"),
    ],
)
def test_dev_refuses_what_is_not_for_it(arguments: tuple[str, ...], environment: dict[str, str], said: str, tmp_path: Path) -> None:
    done = agiwo("dev", *arguments, cwd=tmp_path, **environment)
    assert done.status == 2, done.err
    assert said in done.err
    assert not (tmp_path / ".agiwo").exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_dev_ends_where_the_tools_cannot_be_loaded_at_its_start(project: Path) -> None:
    (project / "beside.py").write_text("WORD =\n")
    done = agiwo("dev", "--tools", "my_tools.py", "--port", str(free_port()), cwd=project)
    assert done.status == 1
    assert "my_tools.py cannot be imported" in done.err and "Traceback" not in done.err


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ["port", "configuration"])
def test_a_service_that_cannot_begin_says_why_and_nothing_else(fault: str, project: Path) -> None:
    (project / "hooks.yaml").write_text("hooks: {shop: {secret: 'env:NOT_THERE', workflow: greet}}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] if fault == "port" else free_port()
        more = ("--config", "hooks.yaml") if fault == "configuration" else ()
        done = agiwo("dev", "--tools", "my_tools.py", "--port", str(port), *more, cwd=project)
    assert done.status > 0 and {"port": "Address already in use", "configuration": "NOT_THERE"}[fault] in done.err
    assert "Fatal" not in done.err and "Traceback" not in done.err and "status -" not in done.err, done.err
