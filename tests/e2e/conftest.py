"""Services of one test or one module, each on a database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.process import ROOT, Service, Start, end_all, starter


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[Start]:
    """Starts services on this test's database, in a folder without workflows."""
    started: list[Service] = []
    yield starter(database, tmp_path, started)
    end_all(started)


@pytest.fixture(scope="module")
def service(module_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for a module, with the workflows that are shipped."""
    started: list[Service] = []
    yield starter(module_database, tmp_path_factory.mktemp("service"), started)("--workflows", str(ROOT / "workflows"))
    end_all(started)
