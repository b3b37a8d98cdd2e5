"""The last good results of tools, for steps that fall back to them.

One table more; an older release does not know it, and knows no definition that asks for it.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE agiwo.last_good (
    tenant TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT NOT NULL,
    result JSON NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT last_good_pkey PRIMARY KEY (tenant, tool, digest)
);
CREATE INDEX last_good_expires ON agiwo.last_good (expires_at);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
