"""The floors of the package are held by contracts, and the contracts by these tests."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "app" / "agiwo"
CONTRACTS = {c["id"]: c for c in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]}


def lint_imports(sources: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=ROOT,
        env={"PYTHONPATH": str(sources), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the source root to break."""
    shutil.copytree(PACKAGE, tmp_path / "agiwo", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_every_contract_is_kept() -> None:
    done = lint_imports(PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["attic/__init__.py", "attic.py"])
def test_new_folder_or_module_fails_until_it_has_a_floor(sources: Path, name: str) -> None:
    (sources / "agiwo" / name).parent.mkdir(exist_ok=True)
    (sources / "agiwo" / name).touch()
    done = lint_imports(sources)
    assert done.returncode == 1
    assert "agiwo.attic" in done.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("machine/intruder.py", "import asyncio", "pure"),
        ("template/intruder.py", "from time import time", "pure"),
        ("definition/intruder.py", "from agiwo.machine import state", "floors"),
        ("engine/intruder.py", "import asyncpg", "ports"),
        ("store/intruder.py", "from agiwo.tools import registry", "adapters"),
        ("service/intruder.py", "from agiwo.store import embedded", "plugs"),
        ("api/intruder.py", "from agiwo.store import embedded", "plugs"),
        ("api/intruder.py", "from agiwo.settings import Settings", "settings"),
    ],
)
def test_import_across_the_floors_is_refused(sources: Path, module: str, line: str, broken: str) -> None:
    (sources / "agiwo" / module).write_text(line + "\n")
    done = lint_imports(sources)
    assert done.returncode == 1
    assert f"{CONTRACTS[broken]['name']} BROKEN" in done.stdout, done.stdout + done.stderr


def test_pure_floors_take_only_the_formatting_from_the_clock() -> None:
    pure = [PACKAGE / name.removeprefix("agiwo.") for name in CONTRACTS["pure"]["source_modules"]]
    taken = {
        alias.name
        for path in pure
        for file in ([path.with_suffix(".py")] if path.with_suffix(".py").exists() else path.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "agiwo.clock"
        for alias in node.names
    }
    assert taken <= {"rfc3339"}


def test_no_import_stands_inside_a_function_but_for_heavy_extras() -> None:
    allowed = {"openai", "anthropic", "mcp", "apprise", "aiosmtpd", "ray"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and not _roots(node) <= allowed
    ]
    assert not found, f"move these imports to the top of their files: {', '.join(found)}"


def test_one_module_speaks_http_to_others() -> None:
    """Our own client is httpx, so that its successor is a change of one file."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom) and "httpx" in _roots(node)
    }
    assert len(found) <= 1, f"httpx is imported in {', '.join(sorted(found))}"


def _roots(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {name.name.split(".")[0] for name in node.names}
    return {(node.module or "").split(".")[0]}
