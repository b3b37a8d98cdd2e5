"""Brings a database to the present schema, once, however many processes start together.

Knows nothing of what the tables mean; the migrations themselves lie in `alembic/` of the checkout, or in the package when installed.

All that is pending runs in one transaction that holds a row lock: a second process waits, looks again and finds nothing to do; one that is
killed half-way leaves nothing behind and its lock falls with its connection.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agiwo.store.schema import SCHEMA
from agiwo.store.url import plain_url

_PACKAGE = Path(__file__).resolve().parents[1]

#: `if not exists` looks before it takes the name, so two first starts may still collide; the loser tries again and finds it there.
_COLLISIONS = {"23505", "42P06", "42P07", "40001", "40P01", "XX000"}
_TRIES = 10


def folder() -> Path:
    """Where the migrations lie: in the installed package, else beside `app/` in the checkout. Raises FileNotFoundError if in neither."""
    for place in (_PACKAGE / "_alembic", _PACKAGE.parents[1] / "alembic"):
        if (place / "env.py").is_file():
            return place
    raise FileNotFoundError(f"no migrations in {_PACKAGE / '_alembic'} and none beside the checkout's app folder")


def head() -> str:
    """The revision that this release wants."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:
        raise FileNotFoundError(f"no migration in {folder() / 'versions'}")
    return revision


def upgrade(url: str) -> None:
    """Bring the database at `url` to `head`; does nothing if it is there. Blocks; call it from a thread where an event loop runs.

    A database that a newer release has migrated is left as it is: migrations keep the previous release working.
    Raises what the driver raises if the database cannot be reached.
    """
    asyncio.run(_upgrade(url))


async def current(url: str) -> str | None:
    """The revision that the database at `url` has, None if it was never migrated."""
    connection = await asyncpg.connect(plain_url(url))
    try:
        if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.alembic_version") is None:
            return None
        revision: str | None = await connection.fetchval(f"SELECT version_num FROM {SCHEMA}.alembic_version")
        return revision
    finally:
        await connection.close()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    return config


async def _upgrade(url: str) -> None:
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(plain_url(url)), poolclass=NullPool)
    try:
        for last in [False] * (_TRIES - 1) + [True]:
            try:
                async with engine.begin() as connection:
                    await connection.run_sync(_make_lock)
                break
            except DBAPIError as exc:
                if last or getattr(exc.orig, "sqlstate", None) not in _COLLISIONS:
                    raise
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade_locked)
    finally:
        await engine.dispose()


def _make_lock(connection: Connection) -> None:
    connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
    connection.execute(text(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.migration_lock (one boolean PRIMARY KEY DEFAULT true CHECK (one))"))
    connection.execute(text(f"INSERT INTO {SCHEMA}.migration_lock DEFAULT VALUES ON CONFLICT DO NOTHING"))


def _upgrade_locked(connection: Connection) -> None:
    connection.execute(text(f"SELECT one FROM {SCHEMA}.migration_lock FOR UPDATE")).one()
    # Read only now: whoever held the lock before may have done it all.
    here = MigrationContext.configure(connection, opts={"version_table_schema": SCHEMA}).get_current_revision()
    if here == head():
        return
    config = _config()
    if here is not None and here not in {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}:
        # A newer release was here; its migrations keep the previous release working, so there is nothing to do.
        return
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
