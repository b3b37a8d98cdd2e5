"""The first schema.

Plain SQL and frozen: a migration says what was done on its day, the metadata says what is wanted today.
There is no downgrade: an older release runs on the newer schema, and data is never dropped to go back.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE agiwo.approval (
    shard SMALLINT NOT NULL,
    id UUID NOT NULL,
    instance_id UUID NOT NULL,
    tenant TEXT NOT NULL,
    path TEXT NOT NULL,
    step TEXT NOT NULL,
    digest TEXT NOT NULL,
    title TEXT NOT NULL,
    body JSON NOT NULL,
    approvers TEXT[] NOT NULL,
    state TEXT DEFAULT 'pending' NOT NULL,
    asked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    decided_by TEXT,
    decided_at TIMESTAMP WITH TIME ZONE,
    channel TEXT,
    comment TEXT,
    answer JSON,
    CONSTRAINT approval_pkey PRIMARY KEY (shard, id),
    CONSTRAINT approval_shard_check CHECK (shard = get_byte(uuid_send(id), 7)),
    CONSTRAINT approval_state_check CHECK (state IN ('pending', 'approved', 'rejected', 'expired', 'cancelled', 'void')),
    CONSTRAINT approval_decided_check CHECK ((state IN ('approved', 'rejected')) = (decided_by IS NOT NULL)),
    CONSTRAINT approval_decided_at_check CHECK ((decided_by IS NULL) = (decided_at IS NULL))
);
CREATE INDEX approval_instance ON agiwo.approval (shard, instance_id);
CREATE INDEX approval_list ON agiwo.approval (tenant, id DESC);
CREATE INDEX approval_open ON agiwo.approval (tenant, id DESC) WHERE state = 'pending';

CREATE TABLE agiwo.audit (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    data JSON,
    CONSTRAINT audit_pkey PRIMARY KEY (tenant, id)
);
CREATE INDEX audit_object ON agiwo.audit (tenant, object, id DESC);

CREATE TABLE agiwo.history (
    shard SMALLINT NOT NULL,
    instance_id UUID NOT NULL,
    seq INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    node BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    records JSON NOT NULL,
    CONSTRAINT history_pkey PRIMARY KEY (shard, instance_id, seq),
    CONSTRAINT history_shard_check CHECK (shard = get_byte(uuid_send(instance_id), 7)),
    CONSTRAINT history_numbers_check CHECK (first_seq >= 1 AND first_seq <= seq + 1)
);

CREATE TABLE agiwo.idempotency (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    request_digest TEXT NOT NULL,
    shard SMALLINT NOT NULL,
    instance_id UUID NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, key),
    CONSTRAINT idempotency_shard_check CHECK (shard = get_byte(uuid_send(instance_id), 7))
);
CREATE INDEX idempotency_expires ON agiwo.idempotency (expires_at);

CREATE TABLE agiwo.inbox (
    shard SMALLINT NOT NULL,
    instance_id UUID NOT NULL,
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    tenant TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    dedup TEXT,
    body JSON NOT NULL,
    owner BIGINT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    taken_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT inbox_pkey PRIMARY KEY (shard, instance_id, id),
    CONSTRAINT inbox_shard_check CHECK (shard = get_byte(uuid_send(instance_id), 7)),
    CONSTRAINT inbox_taken_check CHECK (taken_at IS NULL OR dedup IS NOT NULL)
);
CREATE UNIQUE INDEX inbox_dedup ON agiwo.inbox (shard, instance_id, dedup) WHERE dedup IS NOT NULL;
CREATE INDEX inbox_owner ON agiwo.inbox (owner) WHERE owner IS NOT NULL AND taken_at IS NULL;

CREATE TABLE agiwo.instance (
    shard SMALLINT NOT NULL,
    id UUID NOT NULL,
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    status TEXT NOT NULL,
    trace_id TEXT NOT NULL,
    starter TEXT,
    labels JSONB DEFAULT '{}' NOT NULL,
    correlation_key TEXT,
    priority SMALLINT DEFAULT 1 NOT NULL,
    parent_id UUID,
    root_id UUID,
    waiting_for TEXT,
    error JSON,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT instance_pkey PRIMARY KEY (shard, id),
    CONSTRAINT instance_shard_check CHECK (shard = get_byte(uuid_send(id), 7)),
    CONSTRAINT instance_status_check CHECK (status IN ('RUNNING', 'WAITING', 'CANCELLING', 'SUCCESS', 'FAILED', 'CANCELLED', 'TIMED_OUT')),
    CONSTRAINT instance_ended_check CHECK ((ended_at IS NOT NULL) = (status IN ('SUCCESS', 'FAILED', 'CANCELLED', 'TIMED_OUT'))),
    CONSTRAINT instance_waiting_check CHECK (ended_at IS NULL OR waiting_for IS NULL)
);
CREATE INDEX instance_correlation ON agiwo.instance (tenant, correlation_key, id DESC) WHERE correlation_key IS NOT NULL;
CREATE INDEX instance_list ON agiwo.instance (tenant, id DESC);
CREATE INDEX instance_parent ON agiwo.instance (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX instance_status ON agiwo.instance (tenant, status, id DESC);
CREATE INDEX instance_workflow ON agiwo.instance (tenant, workflow, id DESC);

CREATE TABLE agiwo.node (
    id BIGINT NOT NULL,
    name TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    lease_until TIMESTAMP WITH TIME ZONE NOT NULL,
    state TEXT DEFAULT 'alive' NOT NULL,
    CONSTRAINT node_pkey PRIMARY KEY (id),
    CONSTRAINT node_state_check CHECK (state IN ('alive', 'dead', 'left'))
) WITH (fillfactor = 20);
CREATE INDEX node_name ON agiwo.node (name) WHERE state = 'alive';

CREATE TABLE agiwo.outbox (
    shard SMALLINT NOT NULL,
    id UUID NOT NULL,
    instance_id UUID,
    tenant TEXT NOT NULL,
    seq INTEGER DEFAULT 0 NOT NULL,
    position SMALLINT DEFAULT 0 NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    body JSON NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    owner BIGINT,
    state TEXT DEFAULT 'pending' NOT NULL,
    last_error TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT outbox_pkey PRIMARY KEY (shard, id),
    CONSTRAINT outbox_shard_check CHECK (shard = get_byte(uuid_send(id), 7)),
    CONSTRAINT outbox_state_check CHECK (state IN ('pending', 'delivered', 'dead')),
    CONSTRAINT outbox_settled_check CHECK ((settled_at IS NULL) = (state = 'pending') AND (owner IS NULL OR state = 'pending'))
) WITH (fillfactor = 70);
CREATE INDEX outbox_due ON agiwo.outbox (due_at) WHERE owner IS NULL AND state = 'pending';
CREATE INDEX outbox_order ON agiwo.outbox (shard, instance_id, seq, position);
CREATE INDEX outbox_owner ON agiwo.outbox (owner) WHERE owner IS NOT NULL;

CREATE TABLE agiwo.rejected_trigger (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT,
    actor TEXT,
    trace_id TEXT,
    code TEXT NOT NULL,
    problems JSON NOT NULL,
    CONSTRAINT rejected_trigger_pkey PRIMARY KEY (tenant, id)
);

CREATE TABLE agiwo.run (
    shard SMALLINT NOT NULL,
    id UUID NOT NULL,
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    owner BIGINT,
    epoch INTEGER DEFAULT 0 NOT NULL,
    seq INTEGER DEFAULT 0 NOT NULL,
    inbox_seq INTEGER DEFAULT 0 NOT NULL,
    deaths SMALLINT DEFAULT 0 NOT NULL,
    lane SMALLINT DEFAULT 1 NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT run_pkey PRIMARY KEY (shard, id),
    CONSTRAINT run_shard_check CHECK (shard = get_byte(uuid_send(id), 7)),
    CONSTRAINT run_counters_check CHECK (epoch >= 0 AND seq >= 0 AND inbox_seq >= 0 AND deaths >= 0)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX run_due ON agiwo.run (due_at) WHERE owner IS NULL;
CREATE INDEX run_owner ON agiwo.run (owner) WHERE owner IS NOT NULL;
CREATE INDEX run_tenant ON agiwo.run (tenant, due_at) WHERE owner IS NULL;

CREATE TABLE agiwo.snapshot (
    shard SMALLINT NOT NULL,
    instance_id UUID NOT NULL,
    tenant TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body JSON NOT NULL,
    CONSTRAINT snapshot_pkey PRIMARY KEY (shard, instance_id),
    CONSTRAINT snapshot_shard_check CHECK (shard = get_byte(uuid_send(instance_id), 7))
);

CREATE TABLE agiwo.workflow_version (
    tenant TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    rank VARCHAR COLLATE "C" NOT NULL,
    label TEXT DEFAULT '' NOT NULL,
    content_hash TEXT NOT NULL,
    source TEXT NOT NULL,
    document JSON NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    created_by TEXT,
    is_default BOOLEAN DEFAULT false NOT NULL,
    deprecated_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT workflow_version_pkey PRIMARY KEY (tenant, workflow, version),
    CONSTRAINT workflow_version_tenant_workflow_rank_key UNIQUE (tenant, workflow, rank)
);
CREATE UNIQUE INDEX workflow_version_default ON agiwo.workflow_version (tenant, workflow) WHERE is_default;
"""

# A server without lz4 keeps its default; nothing else depends on it.
COMPRESSION = """
DO $$
BEGIN
    ALTER TABLE agiwo.history ALTER COLUMN records SET COMPRESSION lz4;
    ALTER TABLE agiwo.snapshot ALTER COLUMN body SET COMPRESSION lz4;
    ALTER TABLE agiwo.approval ALTER COLUMN body SET COMPRESSION lz4;
    ALTER TABLE agiwo.outbox ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
    op.execute(COMPRESSION)
