"""Plain functions in processes of their own: answers, failures, deaths, and an end that is one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agiwo.errors import StepError
from agiwo.tools.context import ToolContext
from agiwo.tools.processes import ToolProcesses
from kit.engine import until

sys.path.insert(0, str(Path(__file__).parent))
import isolated_tools  # noqa: E402 - found as an operator's own module is


@pytest.fixture
async def processes() -> AsyncIterator[ToolProcesses]:
    found = ToolProcesses(2)
    yield found
    await found.close()


async def test_a_tool_answers_from_another_process_and_sees_no_setting_of_ours(
    processes: ToolProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGIWO_SECRET_KEY", "not for tools")
    lines: list[tuple[str, dict[str, Any]]] = []
    signs: list[Any] = []
    context = ToolContext(step="s", idempotency_key="k", log=lambda text, **more: lines.append((text, more)), heartbeat=signs.append)
    said = await processes.call(isolated_tools.echo, {"value": [1, 10**40, "é"]}, context)
    assert said["value"] == [1, 10**40, "é"]
    assert said["pid"] != os.getpid()
    assert (said["key"], said["secret"]) == ("k", False)
    assert (lines, signs) == ([("seen", {"step": "s"})], [{"at": 1}])
    again = await processes.call(isolated_tools.echo, {"value": 1}, context)
    assert again["pid"] == said["pid"], "a warm process is used again"


@pytest.mark.parametrize(("how", "type", "message"), [
    ("raise", "NotFound", "no such customer"),
    ("exit", "ToolError", "SystemExit"),
    ("die", "NodeLost", "SIGKILL"),
])  # fmt: skip
async def test_what_goes_wrong_there_is_a_failure_here(processes: ToolProcesses, how: str, type: str, message: str) -> None:
    with pytest.raises(StepError, match=message) as caught:
        await processes.call(isolated_tools.fail, {"how": how}, ToolContext())
    assert caught.value.type == type
    assert (await processes.call(isolated_tools.echo, {"value": 1}, ToolContext()))["value"] == 1


async def test_a_cancelled_call_is_really_ended_with_all_that_it_started(processes: ToolProcesses, tmp_path: Path) -> None:
    """REQ-11: nothing of a stopped attempt runs on beside the next one."""
    file = tmp_path / "pids"
    task = asyncio.create_task(processes.call(isolated_tools.hang, {"file": str(file)}, ToolContext()))
    await until(file.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in map(int, file.read_text().split()):
        await until(lambda pid=pid: _gone(pid))


def _gone(pid: int) -> bool:
    """Not there, or dead and waiting for whoever adopted it."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
