"""Deliveries that are pending or dead are found among millions that were made.

An index more; an older release does not need it.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX outbox_open ON agiwo.outbox (tenant, target, id DESC) WHERE state <> 'delivered'")
