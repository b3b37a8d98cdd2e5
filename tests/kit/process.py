"""The service as a real process, and the command line as a real command, for the tests of what a user runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
READY = "Agiwo is ready at "
SECRET = "a signing key that only tests use, long enough"


def clean_environment(**own: str) -> dict[str, str]:
    """Ours without any setting of the product, and `own`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGIWO_") or name.startswith("AGIWO_PG_")}
    return {**kept, "PYTHONPATH": str(ROOT / "app"), "PYTHONWARNINGS": "default", **own}


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def agiwo(*arguments: str, given: str = "", cwd: Path = ROOT, **environment: str) -> Done:
    """Run `agiwo` with these arguments to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "agiwo", *arguments],
        input=given,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=clean_environment(**environment),
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Service:
    """`agiwo serve` as a child; `url` once it is ready."""

    def __init__(self, arguments: list[str], environment: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agiwo", "serve", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=clean_environment(**environment),
        )
        self.seen: list[str] = []
        self.url = self.line_with(READY).partition(READY)[2].split('"')[0].strip()

    def line_with(self, text: str) -> str:
        """The next line of its log that holds `text`; waits for it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.seen.append(line)
            if text in line:
                return line
        self.end(signal.SIGKILL)
        raise AssertionError(f"the service ended without saying {text!r}:\n{''.join(self.seen)}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and give the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=60)
        self.seen.append(rest or "")
        return self.process.returncode

    def call(self, *arguments: str, **more: Any) -> Done:
        """Run a command against this service."""
        return agiwo(*arguments, AGIWO_SERVER=self.url, **more)


Start = Callable[..., Service]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def starter(url: str, cwd: Path, started: list[Service]) -> Start:
    """A function that starts services on the database at `url`; they are added to `started`."""

    def start(*arguments: str, port: int | None = None, **environment: str) -> Service:
        own = {"AGIWO_DATABASE_URL": url, "AGIWO_SECRET_KEY": SECRET, **environment}
        service = Service(["--port", str(port or free_port()), *arguments], own, cwd)
        started.append(service)
        return service

    return start


def end_all(started: list[Service]) -> None:
    for service in started:
        service.end(signal.SIGKILL)
