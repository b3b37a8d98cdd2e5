"""The service of `agiwo dev`: like `serve`, but it loads first and begins when it is told, and ends with the process that started it.

So the next one stands ready before the last one leaves, and one that cannot load never takes its place.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from agiwo.cli.dev.folder import DevFolder
from agiwo.cli.screen import tell
from agiwo.cli.serving import serve
from agiwo.cli.shown import ended_line
from agiwo.engine.events import Event, Happening
from agiwo.service.services import Services
from agiwo.settings import Settings


def serve_child(
    folder: Path, config: Path | None, port: int | None, data_dir: Path | None, tools: tuple[str, ...] | None, tools_dir: Path | None,
    messages: int, drain: float | None, log_level: str | None,
) -> None:  # fmt: skip
    """Serve the folder. Standard input says by one line when to load, by another when to begin, and ends when it is time to leave;
    `messages` is the file descriptor that takes one line in between.

    Raises CommandEnds like serve.
    """
    _wait_for_line()

    def loaded(settings: Settings) -> None:
        # What an interactive terminal sends goes to the first process alone; it ends this one.
        with open(messages, "w", encoding="utf-8") as line:
            line.write(json.dumps({"modules": [str(path) for path in own_modules(settings.tools)]}) + "\n")
        _wait_for_line()
        threading.Thread(target=_end_with_owner, daemon=True).start()

    serve(
        config, True, False, loaded=loaded, definitions=_followed, observe=_observe,
        host="127.0.0.1", port=port, data_dir=data_dir, workflows_dir=folder, tools=tools, tools_dir=tools_dir,
        drain=drain, log_level=log_level, say=tell,
    )  # fmt: skip


def _wait_for_line() -> None:
    if not sys.stdin.buffer.readline():
        raise SystemExit(0)


def _end_with_owner() -> None:
    # By the descriptor: the lock of `sys.stdin` in the hands of a daemon thread kills the interpreter at its end.
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def own_modules(tools: Iterable[str]) -> list[Path]:
    """The files of the modules that were loaded from beside the named tools: theirs, and what they import from there."""
    roots = {Path(name).parent.resolve() if name.endswith(".py") else Path.cwd() for name in tools}
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name.partition(".")[0] in ("agiwo", "__main__"):
            continue
        path = Path(file).resolve()
        if "site-packages" not in path.parts and any(path.is_relative_to(root) for root in roots):
            found.add(path)
    return sorted(found)


def _observe(event: Event) -> None:
    if event.name is Happening.ENDED and event.where is not None:
        tell(ended_line(event.where.workflow, event.where.version, str(event.where.instance_id), event.data))


@asynccontextmanager
async def _followed(settings: Settings, services: Services) -> AsyncIterator[None]:
    assert settings.workflows_dir is not None, "the folder is always named"
    folder = DevFolder(services, settings.workflows_dir, settings.tenant, tell)
    await folder.begin()
    following = asyncio.create_task(folder.follow())
    try:
        yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
