"""Fixtures that every kind of test shares: real servers, fresh databases, Hypothesis profiles.

They start on first use, one of each per test process, so unit tests pay nothing and pytest-xdist needs no coordination.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from hypothesis import HealthCheck, settings

from agiwo.store.embedded import EmbeddedPostgres
from agiwo.testing.servers import RedisServer

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=SLOW_IS_FINE)
# The same examples on every run, so that a change is judged by what it changes; "nightly" is the one that searches.
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, suppress_health_check=SLOW_IS_FINE)
settings.register_profile("nightly", max_examples=5000, deadline=None, suppress_health_check=SLOW_IS_FINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives property tests more time than others: a failing one searches for its smallest example, and that is what one wants to see."""
    for item in items:
        if "property" in item.path.parts:
            item.add_marker(pytest.mark.timeout(600))


class Databases:
    """Makes and drops databases on one real Postgres; every method may also be called from inside a running event loop."""

    def __init__(self, server_url: str) -> None:
        self.server_url = server_url
        self._prefix = f"agiwo_test_{os.getpid()}"
        self._numbers = itertools.count(1)
        self._template: str | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="databases")

    def url(self, name: str) -> str:
        return urlunsplit(urlsplit(self.server_url)._replace(path=f"/{name}"))

    def empty(self) -> str:
        """A new database without any table; gives its URL."""
        return self._create("template0")

    def migrated(self) -> str:
        """A new database with the present schema; gives its URL."""
        if self._template is None:
            self._template = self._migrated_template()
        return self._create(self._template)

    def drop(self, url: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{urlsplit(url).path[1:]}" WITH (FORCE)')

    def close(self) -> None:
        if self._template is not None:
            self.drop(self.url(self._template))
        self._thread.shutdown()

    def _migrated_template(self) -> str:
        # Here and not above, so that tests of the lower floors do not need the storage.
        from agiwo.store.migrate import upgrade  # noqa: PLC0415

        url = self.empty()
        self._thread.submit(upgrade, url).result()
        return urlsplit(url).path[1:]

    def _create(self, template: str) -> str:
        name = f"{self._prefix}_{next(self._numbers)}"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" ENCODING \'UTF8\'')
        return self.url(name)

    def _execute(self, statement: str) -> None:
        async def run() -> None:
            connection = await asyncpg.connect(self.server_url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        self._in_thread(run())

    def _in_thread(self, work: Coroutine[Any, Any, None]) -> None:
        self._thread.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a database on a real Postgres where databases can be made: AGIWO_TEST_DATABASE_URL, else an embedded one."""
    if given := os.environ.get("AGIWO_TEST_DATABASE_URL"):
        yield given.replace("postgresql+asyncpg://", "postgresql://")
        return
    # Not in pytest's own folder: that is closed to others, and as root the server runs under another account.
    with tempfile.TemporaryDirectory(prefix="agiwo-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with EmbeddedPostgres(Path(folder), throwaway=True, report=print) as server:
            yield server.url


@pytest.fixture(scope="session")
def databases(postgres_url: str) -> Iterator[Databases]:
    """The factory behind the fixtures below, for tests that need several databases: `migrated()`, `empty()`, `drop(url)`."""
    made = Databases(postgres_url)
    yield made
    made.close()


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    """URL of a fresh database with the present schema, this test's alone."""
    url = databases.migrated()
    yield url
    databases.drop(url)


@pytest.fixture(scope="module")
def module_database(databases: Databases) -> Iterator[str]:
    """URL of a fresh database with the present schema, shared by the tests of one module."""
    url = databases.migrated()
    yield url
    databases.drop(url)


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[str]:
    """URL of a fresh database without tables, for tests of the migrations."""
    url = databases.empty()
    yield url
    databases.drop(url)


@pytest.fixture
async def connection(database: str) -> AsyncIterator[asyncpg.Connection]:
    """An open connection to `database`."""
    opened = await asyncpg.connect(database)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A real Redis-compatible server that a test may stop and start again; it must leave it running."""
    server = RedisServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
async def redis_url(redis_server: RedisServer) -> str:
    """URL of the Redis-compatible server, emptied for this test."""
    from redis.asyncio import Redis  # noqa: PLC0415  (a second to import; most tests need none)

    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
    return redis_server.url
