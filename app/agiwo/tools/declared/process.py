"""Runs one program to its end: no shell, an environment of its own, bounded output, and nothing left of it however the call ends.

The program leads a process group of its own, and the whole group is killed when the program has ended, is too loud, or is no longer wanted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from agiwo.errors import StepError

#: Seconds for what the group still wrote to be read once it is killed; a descendant that left the group may hold the pipe for ever.
_LAST_WORDS = 0.5
MAX_ERRORS = 65_536


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: the program by its absolute path, with its arguments; `stdin` is all that it can read."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str | None
    stdin: bytes | None
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended: the exit code, or minus the number of the signal that ended it; the errors are cut at MAX_ERRORS bytes."""

    code: int
    output: bytes
    errors: bytes


async def run(program: Program) -> Ended:
    """Run a program to its end; cancelled, it is killed with all its descendants of the group before the cancellation goes on.

    Raises StepError: NotFound or PermissionDenied (`not_done`) if it cannot be started, PayloadTooLarge if it writes too much.
    """
    given = None if program.stdin is None else await asyncio.to_thread(_file, program.stdin)
    output, errors = _Pipe(program.max_bytes), _Pipe(MAX_ERRORS, cut=True)
    try:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *program.arguments, stdin=DEVNULL if given is None else given, stdout=output.inlet, stderr=errors.inlet,
                env=dict(program.environment), cwd=program.folder, start_new_session=True,
            )
        )  # fmt: skip
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(OSError, ValueError):
                await _end(await starting)
            raise
        except OSError as exc:
            raise _not_started(program, exc) from None
        except ValueError as exc:  # a NUL in an argument
            raise StepError(f"the program cannot be started: {exc}", type="ValidationError", not_done=True) from None
        finally:
            output.close_inlet()
            errors.close_inlet()
        return await _watched(process, program, output, errors)
    finally:
        output.close()
        errors.close()
        if given is not None:
            given.close()


async def _watched(process: Process, program: Program, output: _Pipe, errors: _Pipe) -> Ended:
    await output.open()
    await errors.open()
    ended = asyncio.ensure_future(process.wait())
    try:
        waited: set[asyncio.Future[Any]] = {ended, output.too_much}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(process, ended)
    if not output.too_much.done():
        await asyncio.wait({output.all_read, errors.all_read}, timeout=_LAST_WORDS)
    if output.too_much.done():
        raise StepError(f"the program wrote more than {program.max_bytes} bytes and was ended", type="PayloadTooLarge")
    return Ended(ended.result(), bytes(output.read), bytes(errors.read))


async def _end(process: Process, ended: asyncio.Future[int] | None = None) -> None:
    # The program leads its group; the number cannot be another's while a member of the group lives, and without one there is none to kill.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.shield(ended or asyncio.ensure_future(process.wait()))


def _file(data: bytes) -> IO[bytes]:
    """A file without a name: a program that reads nothing of it keeps nobody waiting."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever asked for it
    file.write(data)
    file.seek(0)
    return file


def _not_started(program: Program, exc: OSError) -> StepError:
    named = "NotFound" if isinstance(exc, FileNotFoundError) else "PermissionDenied" if isinstance(exc, PermissionError) else "ToolError"
    return StepError(f"the program {program.arguments[0]} cannot be started: {exc.strerror or exc}", type=named, not_done=True)


class _Pipe(asyncio.Protocol):
    """What a program writes: at most `most` bytes are kept; with `cut` the rest is read and forgotten, else `too_much` is told."""

    def __init__(self, most: int, *, cut: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.read = bytearray()
        self.all_read: asyncio.Future[None] = loop.create_future()
        self.too_much: asyncio.Future[None] = loop.create_future()
        self._most = most
        self._cut = cut
        self._outlet: int | None
        self._inlet: int | None
        self._outlet, self._inlet = os.pipe()
        self._transport: asyncio.ReadTransport | None = None

    @property
    def inlet(self) -> int:
        assert self._inlet is not None, "closed once the program is started"
        return self._inlet

    async def open(self) -> None:
        """Begin to read."""
        assert self._outlet is not None, "opened once"
        file = os.fdopen(self._outlet, "rb", buffering=0)
        self._outlet = None
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, file)

    def close_inlet(self) -> None:
        if self._inlet is not None:
            os.close(self._inlet)
            self._inlet = None

    def close(self) -> None:
        self.close_inlet()
        if self._outlet is not None:
            os.close(self._outlet)
            self._outlet = None
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        room = self._most - len(self.read)
        self.read += data[:room]
        if len(data) > room and not self._cut and not self.too_much.done():
            self.too_much.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.all_read.done():
            self.all_read.set_result(None)
