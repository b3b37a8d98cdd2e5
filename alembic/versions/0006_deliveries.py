"""Deliveries in order of instance and target, kept with what the other side answered.

Columns and indexes more; an older release fills none of them and reads all of its rows as before.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

CHANGES = """
ALTER TABLE agiwo.outbox ADD COLUMN last_status SMALLINT;
CREATE INDEX outbox_line ON agiwo.outbox (shard, instance_id, target, state, seq, position);
CREATE INDEX outbox_list ON agiwo.outbox (tenant, id DESC);
CREATE INDEX outbox_target ON agiwo.outbox (tenant, target, id DESC);
CREATE INDEX outbox_settled ON agiwo.outbox (settled_at) WHERE settled_at IS NOT NULL;
"""


def upgrade() -> None:
    for statement in CHANGES.split(";\n"):
        if statement.strip():
            op.execute(statement)
