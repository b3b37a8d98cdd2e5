"""What people install holds all that the checkout has: pages, styles, statements, migrations."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def kept(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    missing = {f"agiwo/{name}" for name in kept(ROOT / "app" / "agiwo")} - names(wheel)
    assert not missing
    assert "agiwo/py.typed" in names(wheel)


def test_the_migrations_are_in_the_wheel_and_hide_no_library(wheel: Path) -> None:
    assert {f"agiwo/_alembic/{name}" for name in kept(ROOT / "alembic")} <= names(wheel)
    assert not any(name.startswith("alembic/") for name in names(wheel))
    assert not (ROOT / "alembic" / "__init__.py").exists()


def test_the_wheel_carries_nothing_but_the_package(wheel: Path) -> None:
    assert {name.split("/")[0] for name in names(wheel)} == {"agiwo", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}


def test_the_command_and_the_packages_of_the_card_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"agiwo": "agiwo.cli:main"}
    declared = {line.split(">")[0].split("=")[0].split("[")[0] for line in project["dependencies"]}
    card = {"fastapi", "uvicorn", "sqlalchemy", "asyncpg", "redis", "pyyaml", "jinja2", "jsonschema", "pybreaker", "httpx", "alembic"}
    assert card <= declared


def test_the_locks_have_hashes_and_name_no_address() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert [lock.stem for lock in locks] == ["build", "checks", "demo", "dev", "llm", "runtime"]
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text, lock.name
        pinned = [line for line in text.splitlines() if line and line[0] not in " #"]
        assert all("==" in line and line.endswith("\\") for line in pinned), lock.name
        assert text.count("--hash=sha256:") >= len(pinned), lock.name
