"""The servers of the demo as child processes: each with its log, each gone when the demo is gone, however it dies.

Knows how they are started and how one sees that they are ready; nothing of what they are for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from agiwo.cli.screen import FAILED, CommandEnds
from agiwo.store.watched import Watched

HOST = "127.0.0.1"
PATIENCE = 90.0  # seconds until a server has to be ready; the first start makes a database


def free_port() -> int:
    """A port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """What the children see: ours, without settings that would make the demo something else, and `own`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AGIWO_") or name.startswith(("AGIWO_LLM_", "AGIWO_PG_", "AGIWO_TRACEBACK"))
    }
    # Children begin in another folder.
    if paths := kept.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.pathsep.join(str(Path(path).absolute()) for path in paths.split(os.pathsep) if path)
    return {**kept, "PYTHONUNBUFFERED": "1", **own}


class Server:
    """One child: a module of Python with its arguments, its log at `log`."""

    def __init__(self, name: str, log: Path, arguments: Sequence[str], own: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as written:
            self._process = Watched(
                [sys.executable, "-m", *arguments], environment=environment(own), log=written, stop_signals=[signal.SIGTERM, signal.SIGTERM]
            )

    async def ready(self, works: Callable[[], Awaitable[bool]]) -> None:
        """Return when `works` says so. Raises CommandEnds if the server ends or takes too long."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await works():
                    self.check()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise self._failed(f"is not ready within {PATIENCE:g} s") from None

    def check(self) -> None:
        """Raises CommandEnds with the end of the log if the server has ended."""
        if (status := self._process.ended()) is not None:
            raise self._failed(f"ended with status {status}")

    def stop(self) -> None:
        """End the server and wait until it is gone."""
        self._process.stop()

    def _failed(self, what: str) -> CommandEnds:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        return CommandEnds(FAILED, f"the {self.name} {what}; its log {self.log} ends with:\n{tail}")


async def accepts(port: int) -> bool:
    """Whether something takes connections on this port."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True
