"""`agiwo serve` that writes down each call that it makes, and kills itself at a named moment; run as a program by the kill tests.

CHAOS_CALLS names the file of the calls; CHAOS_POINT is a `Point` as JSON, or not set. It ends with whoever holds its standard input open.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from agiwo.cli.screen import CommandEnds, tell
from agiwo.cli.serving import serve
from agiwo.engine.events import Event, Happening


class Watcher:
    """Hears of everything that the engine does, before the engine goes on."""

    def __init__(self, calls: Path, point: str | None) -> None:
        self._calls = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._point: dict[str, Any] | None = json.loads(point) if point else None
        self._seen = 0

    def __call__(self, event: Event) -> None:
        if event.name is Happening.ATTEMPT_STARTED and event.where is not None:
            call = {"instance": str(event.where.instance_id), "path": event.path, "attempt": event.attempt, "pid": os.getpid()}
            os.write(self._calls, json.dumps(call).encode() + b"\n")
        if self._point is not None and _is_meant(event, self._point["happening"], self._point["step"], self._point["record"]):
            self._seen += 1
            if self._seen == self._point["nth"]:
                os.kill(os.getpid(), signal.SIGKILL)


def _is_meant(event: Event, happening: str, step: str | None, record: str | None) -> bool:
    if event.name.value != happening:
        return False
    if record is not None:
        return any(one.type == record and step in (None, one.path) for one in event.data.get("records", ()))
    return step is None or event.path == step


def _end_with_the_owner() -> None:
    while os.read(0, 1024):  # not sys.stdin, whose lock would be in the way at an orderly end
        pass
    os._exit(70)


def main() -> None:
    threading.Thread(target=_end_with_the_owner, daemon=True).start()
    config, workflows, port = sys.argv[1:]
    watcher = Watcher(Path(os.environ["CHAOS_CALLS"]), os.environ.get("CHAOS_POINT"))
    try:
        serve(Path(config), False, False, observe=watcher, workflows_dir=Path(workflows), port=int(port))
    except CommandEnds as exc:
        tell(exc.message)
        sys.exit(exc.status)


if __name__ == "__main__":
    main()
