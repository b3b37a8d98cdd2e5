"""Runs the migrations on the connection that `agiwo.store.migrate` hands over, inside its transaction and under its lock.

Opens no connection of its own, so that nobody migrates beside the lock: use `agiwo db upgrade`.
"""

from __future__ import annotations

from alembic import context

from agiwo.store.schema import SCHEMA, metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("migrations run through `agiwo db upgrade`, which holds the lock")

context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table_schema=SCHEMA,
    include_schemas=True,
    transaction_per_migration=False,
)
context.run_migrations()
