"""The engine inside a program: `import agiwo`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import agiwo
from agiwo.errors import InvalidInput, NotFound
from kit.process import ROOT

FLOW = """
workflow:
  id: doubled
  version: "1"
  input_schema: {type: object, required: [n], properties: {n: {type: integer}}}
  output: "{{ steps.double.output }}"
  steps:
    - {id: double, type: tool_call, tool: mine.double, requires_approval: "{{ input.n > 100 }}", parameters: {n: "{{ input.n }}"}}
"""


async def test_tools_of_the_program_run_in_its_workflows(database: str) -> None:
    made = agiwo.Agiwo(database, node_name="program", drain=1)

    @made.tool(name="mine.double", effect="pure")
    async def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    async with made as running:
        assert await running.publish(FLOW) == ("doubled", "1")
        view = await running.run("doubled", {"n": 21}, within=20)
        assert (view["status"], view["output"]) == ("SUCCESS", 42)
        with pytest.raises(InvalidInput):
            await running.trigger("doubled", {"n": "x"})
        with pytest.raises(NotFound):
            await running.trigger("unknown")


def test_importing_the_package_loads_nothing_of_weight() -> None:
    code = "import sys, agiwo; heavy = {'sqlalchemy', 'asyncpg', 'fastapi', 'httpx', 'pydantic', 'yaml'} & set(sys.modules); print(heavy)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "app")})
    assert done.stdout.strip() == "set()"


def test_commands_that_talk_to_a_service_load_no_server() -> None:
    code = "import sys, agiwo.cli.online; print({'sqlalchemy', 'asyncpg', 'fastapi', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "app")})
    assert done.stdout.strip() == "set()"
