"""A Postgres with fsync on, as in production, that outlives every service of these tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiwo.store.embedded import EmbeddedPostgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a database where databases can be made."""
    # Not in pytest's own folder: that is closed to others, and as root the server runs under another account.
    with tempfile.TemporaryDirectory(prefix="agiwo-chaos-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with EmbeddedPostgres(Path(folder), report=print) as server:
            yield server.url
