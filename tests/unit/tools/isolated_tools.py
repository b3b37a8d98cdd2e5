"""Tools that tests run in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from agiwo.toolkit import ToolContext, ToolExecutionError, tool


@tool(name="own.echo", effect="pure")
def echo(value: Any, ctx: ToolContext) -> dict[str, Any]:
    print("this must not get into the answer")
    ctx.log("seen", step=ctx.step)
    ctx.heartbeat({"at": 1})
    return {"value": value, "pid": os.getpid(), "key": ctx.idempotency_key, "secret": "AGIWO_SECRET_KEY" in os.environ}


@tool(name="own.fail", effect="read")
def fail(how: str) -> None:
    if how == "raise":
        raise ToolExecutionError("no such customer", error_code="NOT_FOUND")
    if how == "exit":
        sys.exit(4)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)


@tool(name="own.hang", effect="read")
def hang(file: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(file + ".new", "w") as out:
        out.write(f"{os.getpid()} {child.pid}")
    os.rename(file + ".new", file)
    while True:  # deaf to everything but a kill
        signal.pause()
