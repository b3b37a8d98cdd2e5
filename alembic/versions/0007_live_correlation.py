"""Finds the live instances of a correlation key, for signals that are sent to all of them.

One index more; an older release keeps it without knowing.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE INDEX instance_live_correlation ON agiwo.instance (tenant, correlation_key, id)"
        " WHERE correlation_key IS NOT NULL AND ended_at IS NULL"
    )
