"""The first process of `agiwo dev`: it owns the database, starts the service, and changes it for a new one when tools change.

It imports no tool itself: what a module is can only be told by a process that has not loaded it before.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agiwo.cli.dev.changes import Marks, changed, differing, marks
from agiwo.cli.screen import FAILED, WRONG_USE, CommandEnds, tell
from agiwo.settings import Settings, load_settings
from agiwo.settings.parts import SettingsRefused
from agiwo.store.embedded import EmbeddedPostgres
from agiwo.store.pgbinaries import EmbeddedPostgresError

#: Seconds that running steps have when a service makes way for the next one, unless `drain` is set.
DRAIN = 2.0
#: Seconds beyond `drain` that a service has to leave before it is killed.
PATIENCE = 15.0


@dataclass(slots=True)
class Child:
    """A service in a process of its own that has been started, has loaded, or serves."""

    process: asyncio.subprocess.Process
    message: asyncio.Task[bytes]
    modules: list[Path] = field(default_factory=list)

    @classmethod
    async def started(cls, arguments: Sequence[str]) -> Child:
        """A service that has nothing of its user's yet, but all else, which takes the longest."""
        reading, writing = os.pipe()
        message = asyncio.create_task(asyncio.to_thread(_line, reading))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "agiwo", "dev-service", *arguments, "--messages", str(writing),
                stdin=asyncio.subprocess.PIPE, pass_fds=(writing,), start_new_session=True,
                # Files are saved twice within what a cached module's time can tell.
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        finally:
            os.close(writing)
        return cls(process, message)

    async def load(self) -> bool:
        """Let it load settings and tools; False if it could not, and has said why and ended."""
        await self._go_on()
        line = await self.message
        if not line:
            await self.process.wait()
            return False
        self.modules = [Path(path) for path in json.loads(line)["modules"]]
        return True

    async def serve(self) -> None:
        """Let it serve, once it has loaded."""
        await self._go_on()

    async def _go_on(self) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(b"\n")
            await self.process.stdin.drain()

    async def stop(self, within: float) -> None:
        """Let it leave in order, and wait until it is gone; after `within` seconds it is killed. Again it changes nothing."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(within):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


def dev(
    folder: Path | None, config: Path | None, port: int | None, data_dir: Path | None, tools: tuple[str, ...] | None, tools_dir: Path | None
) -> None:
    """Serve until Ctrl-C. Raises CommandEnds if it cannot begin, or if the service ends by itself."""
    folder = folder or (Path("workflows") if Path("workflows").is_dir() else Path())
    try:
        settings = load_settings(config, host="127.0.0.1", port=port, data_dir=data_dir, tools=tools, tools_dir=tools_dir)
        _check(settings, folder)
    except SettingsRefused as exc:
        raise CommandEnds(WRONG_USE, exc.message) from None
    with ExitStack() as stack:
        database = EmbeddedPostgres(settings.data_dir / "postgres", report=tell)
        stack.callback(database.stop)
        try:
            database.start()
        except EmbeddedPostgresError as exc:
            raise CommandEnds(FAILED, f"the embedded Postgres cannot run: {exc}") from None
        named = config or (Path(os.environ["AGIWO_CONFIG"]) if os.environ.get("AGIWO_CONFIG") else None)
        asyncio.run(_Watching(settings, _arguments(settings, folder, config, tools, tools_dir), named).run())


def _check(settings: Settings, folder: Path) -> None:
    if settings.database_url is not None:
        raise SettingsRefused(
            "dev works on a database of its own in the data folder, but AGIWO_DATABASE_URL is set: take it away, or use serve"
        )
    if settings.redis_url is not None:
        raise SettingsRefused("dev works without Redis, but AGIWO_REDIS_URL is set: take it away, or use serve")
    if not folder.is_dir():
        raise SettingsRefused(f"the folder of workflows {folder} does not exist")


def _arguments(settings: Settings, folder: Path, config: Path | None, tools: tuple[str, ...] | None, tools_dir: Path | None) -> list[str]:
    """What the service is started with; it reads the settings anew each time."""
    arguments = [str(folder), "--port", str(settings.port), "--data-dir", str(settings.data_dir)]
    arguments += ["--config", str(config)] if config is not None else []
    arguments += ["--tools-dir", str(tools_dir)] if tools_dir is not None else []
    for name in tools or ():
        arguments += ["--tools", name]
    if "drain" not in settings.model_fields_set:
        arguments += ["--drain", str(DRAIN)]
    if "log_level" not in settings.model_fields_set:
        arguments += ["--log-level", "warning"]
    return arguments


class _Watching:
    """The service that serves now, and what makes it out of date."""

    def __init__(self, settings: Settings, arguments: Sequence[str], config: Path | None) -> None:
        self._arguments = arguments
        self._config = config
        self._tools_dir = settings.tools_dir
        self._files = [Path(name).resolve() for name in settings.tools if name.endswith(".py")]
        self._within = settings.drain + PATIENCE
        self._told = asyncio.Event()

    async def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._told.set)
        known = self._look()
        child = spare = await Child.started(self._arguments)
        try:
            if not await child.load():
                raise CommandEnds(FAILED)
            await child.serve()
            self._knows(child)
            known = {**self._look(), **known}
            while not self._told.is_set():
                if spare is child:
                    spare = await Child.started(self._arguments)
                now = await self._change(child, known)
                if now is None:
                    break
                tell(f"{', '.join(_short(path) for path in differing(known, now))} changed: loading anew")
                known = now
                if await spare.load():
                    # Both know the node by the same name: what the one leaves the other takes up at once.
                    await child.stop(self._within)
                    child = spare
                    await child.serve()
                    self._knows(child)
                    known = {**self._look(), **known}
                else:
                    tell("they cannot be loaded: the service goes on with those of before")
                    spare = child
        finally:
            await asyncio.gather(child.stop(self._within), spare.stop(self._within))

    async def _change(self, child: Child, known: Marks) -> Marks | None:
        """The new marks of the files once they have changed; None if it is time to leave. Raises CommandEnds if the service has ended."""
        change = asyncio.create_task(changed(self._look, known))
        told = asyncio.create_task(self._told.wait())
        ended = asyncio.create_task(child.process.wait())
        try:
            await asyncio.wait({change, told, ended}, return_when=asyncio.FIRST_COMPLETED)
            if self._told.is_set():
                return None
            if ended.done():
                raise CommandEnds(FAILED, f"the service has ended with status {ended.result()}")
            return change.result()
        finally:
            for task in (change, told, ended):
                task.cancel()

    def _knows(self, child: Child) -> None:
        self._files = sorted({*self._files, *child.modules})

    def _look(self) -> Marks:
        """The modules of tools with what lies beside them, the declared tools, the configuration."""
        files = set(self._files)
        for folder in {path.parent for path in self._files}:
            with suppress(OSError):
                files |= set(folder.glob("*.py"))
        if self._tools_dir is not None:
            files.add(self._tools_dir)
            with suppress(OSError):
                files |= {path for path in self._tools_dir.iterdir() if path.suffix in (".yaml", ".yml", ".json")}
        if self._config is not None:
            files.add(self._config)
        return {path: mark for path, mark in marks(files).items() if path != self._tools_dir or path.is_file()}


def _line(reading: int) -> bytes:
    with open(reading, "rb") as messages:
        return messages.readline()


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)
