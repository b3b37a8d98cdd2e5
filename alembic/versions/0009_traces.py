"""Indexes by which traces are found: by the trace's id, and by the type of the error that an instance ended with."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = """
CREATE INDEX instance_trace ON agiwo.instance (tenant, trace_id, id DESC);
CREATE INDEX instance_error ON agiwo.instance (tenant, (error ->> 'type'), id DESC) WHERE error IS NOT NULL;
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
