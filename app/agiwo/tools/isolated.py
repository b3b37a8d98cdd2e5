"""The other end of `processes`: a child that runs one sync tool at a time, told by frames of JSON on its standard input.

It holds no connection and no secret of the service; whatever the tool prints goes to standard error.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from agiwo.clock import SystemClock
from agiwo.errors import StepError, words_of
from agiwo.tools.calling import step_error, storable
from agiwo.tools.context import CallbackUrls, ToolContext
from agiwo.tools.tool import Tool
from agiwo.values import decode, encode, plain

LENGTH = struct.Struct(">I")
OWNER_GONE = 3  # exit status


def frame(message: Mapping[str, Any]) -> bytes:
    """A message as it goes over a pipe: its length in four bytes, then JSON."""
    body = encode(message).encode()
    return LENGTH.pack(len(body)) + body


class Voice:
    """What this child says to its owner; threads of a tool may speak as well."""

    def __init__(self, said: IO[bytes]) -> None:
        self._said = said
        self._lock = threading.Lock()

    def say(self, kind: str, value: Any) -> None:
        with self._lock:
            self._said.write(frame({kind: value}))
            self._said.flush()

    def log(self, message: str, /, **fields: Any) -> None:
        self.say("log", [plain(message), plain(fields)])

    def sign(self, progress: Any = None) -> None:
        self.say("sign", plain(progress))


def main() -> None:
    """Serve calls until the owner closes the pipe, or is gone."""
    voice = Voice(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # a tool that prints must not speak in between
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    while len(head := sys.stdin.buffer.read(LENGTH.size)) == LENGTH.size:
        call = decode(sys.stdin.buffer.read(LENGTH.unpack(head)[0]))
        voice.say(*_answer(call, voice))


def _end_with(owner: int) -> None:
    gone = threading.Event()
    while os.getppid() == owner:
        gone.wait(1)  # nobody sets it: a pause
    os._exit(OWNER_GONE)


def _answer(call: Any, voice: Voice) -> tuple[str, Any]:
    try:
        tool = _tool(call["module"], call["tool"])
        result = _run(tool, call, voice)
        storable(tool, result)
    except BaseException as exc:  # even SystemExit is only the tool's failure
        return "failure", step_error(exc).failure().to_json()
    return "result", result


def _tool(module: str, name: str) -> Tool:
    try:
        found = vars(importlib.import_module(module)).values()
    except Exception as exc:
        raise StepError(f"the module {module} cannot be imported in a process of its own: {words_of(exc)}", not_done=True) from None
    for value in found:
        for tool in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tool, Tool) and tool.name == name:
                return tool
    raise StepError(f"the module {module} has no tool {name} at its top, so it cannot run in a process of its own", not_done=True)


def _run(tool: Tool, call: Any, voice: Voice) -> Any:
    given = call["arguments"]
    return tool.function(**(given if tool.context is None else {**given, tool.context: _context(call["context"], voice)}))


def _context(given: dict[str, Any], voice: Voice) -> ToolContext:
    clock = SystemClock()
    callback, left = given.pop("callback", None), given.pop("remaining", None)
    return ToolContext(
        **given,
        clock=clock,
        deadline=None if left is None else clock.monotonic() + left,
        log=voice.log,
        heartbeat=voice.sign,
        callback=None if callback is None else CallbackUrls(**callback),
    )


if __name__ == "__main__":
    main()
