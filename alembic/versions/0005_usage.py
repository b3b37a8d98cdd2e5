"""The ledger of calls of models.

One table more; an older release writes no row into it and misses nothing.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE agiwo.usage (
    shard SMALLINT NOT NULL,
    instance_id UUID NOT NULL,
    path TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    purpose TEXT NOT NULL,
    profile TEXT NOT NULL,
    kind TEXT NOT NULL,
    model_asked TEXT NOT NULL,
    model_answered TEXT,
    input_tokens BIGINT,
    output_tokens BIGINT,
    cache_read_tokens BIGINT,
    cache_write_tokens BIGINT,
    reasoning_tokens BIGINT,
    cost_micro_usd BIGINT,
    price_version TEXT,
    status TEXT NOT NULL,
    latency_ms BIGINT,
    request_id TEXT,
    CONSTRAINT usage_pkey PRIMARY KEY (shard, instance_id, path, attempt, number),
    CONSTRAINT usage_shard_check CHECK (shard = get_byte(uuid_send(instance_id), 7))
);
CREATE INDEX usage_tenant ON agiwo.usage (tenant, at);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
