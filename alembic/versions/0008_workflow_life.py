"""Drafts of definitions, and what starts no new instance.

Two tables more; an older release keeps no drafts and starts what is held back.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE agiwo.workflow_draft (
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    source TEXT NOT NULL,
    problems JSON NOT NULL,
    errors INTEGER NOT NULL,
    warnings INTEGER NOT NULL,
    saved_by TEXT NOT NULL,
    saved_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT workflow_draft_pkey PRIMARY KEY (tenant, workflow, version)
);
CREATE TABLE agiwo.start_hold (
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT DEFAULT '' NOT NULL,
    kind TEXT NOT NULL,
    held_by TEXT NOT NULL,
    reason TEXT,
    content_hash TEXT,
    since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT start_hold_pkey PRIMARY KEY (tenant, workflow, version),
    CONSTRAINT start_hold_kind_check CHECK (kind IN ('paused', 'deleted')),
    CONSTRAINT start_hold_held_check CHECK ((kind = 'paused') = (version = '') AND (kind = 'deleted') = (content_hash IS NOT NULL))
);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
