"""The answers of calls under an `Idempotency-Key`.

One table more; an older release does not know it and answers such calls as it always did.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE agiwo.answered_call (
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    claim UUID NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    status SMALLINT,
    headers JSON,
    body BYTEA,
    CONSTRAINT answered_call_pkey PRIMARY KEY (tenant, principal, key),
    CONSTRAINT answered_call_answer_check CHECK ((status IS NULL) = (body IS NULL) AND (status IS NULL) = (headers IS NULL))
);
CREATE INDEX answered_call_expires ON agiwo.answered_call (expires_at);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
