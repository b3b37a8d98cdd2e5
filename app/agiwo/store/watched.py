"""Runs a server as a child that cannot outlive its owner, however the owner dies.

It knows signals and pipes only; what the server is and when it is ready is the caller's matter.

Between owner and server stands a small watcher process, this very file run as a script. It holds the reading end of a pipe whose
writing end the owner keeps open: when the pipe closes (stop, exit, crash or kill -9 of the owner) the watcher ends the server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

#: Seconds that the server has after the first signal, and then after the second, before the next harder one.
GRACE = (20.0, 5.0)


@dataclass(frozen=True, slots=True)
class Account:
    """The account of the operating system that a server runs under."""

    name: str
    uid: int
    gid: int


class Watched:
    """A server process that ends with this one.

    `stop_signals` are sent one after the other, each after the grace time of the one before; the last resort is SIGKILL.
    With `account` the server drops to it (this process must be root); the watcher itself stays what this process is.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: IO[bytes],
        stop_signals: Sequence[signal.Signals],
        account: Account | None = None,
    ) -> None:
        reading, self._writing = os.pipe()
        try:
            self._watcher = subprocess.Popen(
                [
                    sys.executable, "-I", "-S", str(Path(__file__).resolve()),
                    str(reading),
                    f"{account.uid}:{account.gid}" if account else "-",
                    ",".join(str(int(s)) for s in stop_signals),
                    *command,
                ],
                env=dict(environment),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(reading,),
                # Ctrl-C in the terminal reaches the owner alone, which then stops the server in its own order.
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(self._writing)
            raise
        finally:
            os.close(reading)
        self._open = True

    def ended(self) -> int | None:
        """The exit status once the server has ended, None while it runs."""
        return self._watcher.poll()

    def stop(self) -> int:
        """Ends the server, waits until it is gone and gives its exit status; a second call changes nothing."""
        if self._open:
            self._open = False
            os.close(self._writing)
        return self._watcher.wait(sum(GRACE) + 10)


def _end_when_closed(reading: int, server: subprocess.Popen[bytes], stop_signals: Sequence[int]) -> None:
    with contextlib.suppress(OSError):
        while os.read(reading, 1):
            pass
    for number, grace in zip(stop_signals, GRACE, strict=False):
        server.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(grace)
            return
    server.kill()


def _watch(arguments: Sequence[str]) -> int:
    reading, account, stop_signals, *command = arguments
    # A signal to the whole group of processes is the owner's to answer; the watcher goes when the server is gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def restore() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    uid, gid = (int(part) for part in account.split(":")) if account != "-" else (None, None)
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, user=uid, group=gid, extra_groups=[] if uid is not None else None, preexec_fn=restore
    )
    threading.Thread(target=_end_when_closed, args=(int(reading), server, [int(n) for n in stop_signals.split(",")]), daemon=True).start()
    status = server.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(_watch(sys.argv[1:]))
