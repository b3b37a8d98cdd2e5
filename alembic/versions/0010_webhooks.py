"""Webhooks of tenants, and where an instance is sent when it has ended.

Two tables and a column more; an older release sends nothing to any of them.
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

CHANGES = """
ALTER TABLE agiwo.instance ADD COLUMN callback_url TEXT;
CREATE TABLE agiwo.webhook (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    url TEXT NOT NULL,
    events TEXT[] NOT NULL,
    workflow TEXT,
    description TEXT,
    header_names TEXT[] NOT NULL,
    headers TEXT,
    secrets JSON NOT NULL,
    include_output BOOLEAN NOT NULL,
    active BOOLEAN NOT NULL,
    disabled_reason TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_by TEXT,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revision BIGINT NOT NULL,
    CONSTRAINT webhook_pkey PRIMARY KEY (tenant, id)
);
CREATE TABLE agiwo.webhook_news (
    id SMALLINT NOT NULL,
    number BIGINT NOT NULL,
    CONSTRAINT webhook_news_pkey PRIMARY KEY (id),
    CONSTRAINT webhook_news_one_check CHECK (id = 1)
);
"""


def upgrade() -> None:
    for statement in CHANGES.split(";\n"):
        if statement.strip():
            op.execute(statement)
