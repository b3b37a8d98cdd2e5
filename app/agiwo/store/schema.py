"""The tables, described once; migrations must give exactly this, and a test holds them to it.

Holds no statement and opens no connection.

Every key of a table that belongs to an instance begins with `shard`, byte 7 of the id, so that an id alone finds its row and the schema
can be spread over machines as it is. Records, snapshots and bodies are `json`, never `jsonb`: jsonb keeps numbers as numeric, which
turns -0.0 into 0 and rewrites floats, while json keeps the text that was written.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB, TIMESTAMP, UUID

SCHEMA = "agiwo"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    },
)

#: Tables that grow with the number of instances; no hot statement may read one of them from end to end.
LARGE = (
    "run",
    "instance",
    "history",
    "snapshot",
    "inbox",
    "approval",
    "outbox",
    "idempotency",
    "answered_call",
    "last_good",
    "audit",
    "rejected_trigger",
)


#: The machine's instance states as the database knows them; a test compares the two, so that the tables need not load the machine.
LIVE_STATES = ("RUNNING", "WAITING", "CANCELLING")
ENDED_STATES = ("SUCCESS", "FAILED", "CANCELLED", "TIMED_OUT")


def _words(values: Any) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _shard_of(column: str) -> CheckConstraint:
    return CheckConstraint(f"shard = get_byte(uuid_send({column}), 7)", name="shard")


def _one_of(column: str, *values: str) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({_words(values)})", name=column)


def _time(name: str, *, nullable: bool = False, default: str | None = None) -> Column[Any]:
    return Column(name, TIMESTAMP(timezone=True), nullable=nullable, server_default=text(default) if default else None)


def _shard() -> Column[Any]:
    return Column("shard", SmallInteger, nullable=False)


def _uuid(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, UUID(as_uuid=True), nullable=nullable)


def _text(name: str, *, nullable: bool = False, default: str | None = None) -> Column[Any]:
    return Column(name, Text, nullable=nullable, server_default=text(f"'{default}'") if default is not None else None)


def _int(name: str, *, nullable: bool = False, default: int | None = None, kind: Any = Integer) -> Column[Any]:
    return Column(name, kind, nullable=nullable, server_default=text(str(default)) if default is not None else None)


#: The live instance, and the only row that changes by step. No column that changes by step (seq) stands in an index, so those updates
#: stay on their page. `owner` is the incarnation of the node that drives it; `due_at` says when somebody must look, infinity for never.
run = Table(
    "run",
    metadata,
    _shard(),
    _uuid("id"),
    _text("tenant"),
    _text("workflow"),
    _text("version"),
    _int("owner", nullable=True, kind=BigInteger),
    _int("epoch", default=0),
    _int("seq", default=0),
    _int("inbox_seq", default=0),
    _int("deaths", default=0, kind=SmallInteger),
    _int("lane", default=1, kind=SmallInteger),
    _time("due_at", default="now()"),
    PrimaryKeyConstraint("shard", "id"),
    _shard_of("id"),
    CheckConstraint("epoch >= 0 AND seq >= 0 AND inbox_seq >= 0 AND deaths >= 0", name="counters"),
    Index("run_due", "due_at", postgresql_where=text("owner IS NULL")),
    Index("run_owner", "owner", postgresql_where=text("owner IS NOT NULL")),
    Index("run_tenant", "tenant", "due_at", postgresql_where=text("owner IS NULL")),
    postgresql_with={"fillfactor": 60, "autovacuum_vacuum_scale_factor": 0.02, "autovacuum_vacuum_cost_delay": 0},
)

#: What lists and searches read; written at the start, when the instance parks, when its status changes, and at the end.
#: Labels are text by text, so jsonb loses nothing there.
instance = Table(
    "instance",
    metadata,
    _shard(),
    _uuid("id"),
    _text("tenant"),
    _text("workflow"),
    _text("version"),
    _text("content_hash"),
    _text("status"),
    _text("trace_id"),
    _text("starter", nullable=True),
    Column("labels", JSONB, nullable=False, server_default=text("'{}'")),
    _text("correlation_key", nullable=True),
    _text("callback_url", nullable=True),
    _int("priority", default=1, kind=SmallInteger),
    _uuid("parent_id", nullable=True),
    _uuid("root_id", nullable=True),
    _text("waiting_for", nullable=True),
    Column("error", JSON, nullable=True),
    _time("created_at"),
    _time("ended_at", nullable=True),
    PrimaryKeyConstraint("shard", "id"),
    _shard_of("id"),
    _one_of("status", *LIVE_STATES, *ENDED_STATES),
    CheckConstraint(f"(ended_at IS NOT NULL) = (status IN ({_words(ENDED_STATES)}))", name="ended"),
    CheckConstraint("ended_at IS NULL OR waiting_for IS NULL", name="waiting"),
    Index("instance_list", "tenant", text("id DESC")),
    Index("instance_status", "tenant", "status", text("id DESC")),
    Index("instance_workflow", "tenant", "workflow", text("id DESC")),
    Index("instance_trace", "tenant", "trace_id", text("id DESC")),
    Index("instance_error", "tenant", text("(error ->> 'type')"), text("id DESC"), postgresql_where=text("error IS NOT NULL")),
    Index("instance_correlation", "tenant", "correlation_key", text("id DESC"), postgresql_where=text("correlation_key IS NOT NULL")),
    Index(
        "instance_live_correlation",
        "tenant",
        "correlation_key",
        "id",
        postgresql_where=text("correlation_key IS NOT NULL AND ended_at IS NULL"),
    ),
    Index("instance_parent", "parent_id", postgresql_where=text("parent_id IS NOT NULL")),
)

#: What was decided, append only: one row a write, with all its records. `seq` is the number of the last, `first_seq` of the first.
#: `epoch` and `node` say who wrote it, so that a write sent twice after a lost connection is recognised.
history = Table(
    "history",
    metadata,
    _shard(),
    _uuid("instance_id"),
    _int("seq"),
    _int("first_seq"),
    _text("tenant"),
    _int("epoch"),
    _int("node", kind=BigInteger),
    _time("at"),
    Column("records", JSON, nullable=False),
    PrimaryKeyConstraint("shard", "instance_id", "seq"),
    _shard_of("instance_id"),
    CheckConstraint("first_seq >= 1 AND first_seq <= seq + 1", name="numbers"),
)

snapshot = Table(
    "snapshot",
    metadata,
    _shard(),
    _uuid("instance_id"),
    _text("tenant"),
    _int("seq"),
    Column("body", JSON, nullable=False),
    PrimaryKeyConstraint("shard", "instance_id"),
    _shard_of("instance_id"),
)

#: What comes from outside, numbered by arrival. `owner` is the node that held the instance then: it alone has to be told.
#: A row with a `dedup` name stays until the instance ends (`taken_at`), so that a late repetition is known.
inbox = Table(
    "inbox",
    metadata,
    _shard(),
    _uuid("instance_id"),
    Column("id", UUID(as_uuid=True), nullable=False, server_default=text("gen_random_uuid()")),
    _text("tenant"),
    _int("number"),
    _text("kind"),
    _text("dedup", nullable=True),
    Column("body", JSON, nullable=False),
    _int("owner", nullable=True, kind=BigInteger),
    _time("created_at", default="now()"),
    _time("taken_at", nullable=True),
    PrimaryKeyConstraint("shard", "instance_id", "id"),
    _shard_of("instance_id"),
    CheckConstraint("taken_at IS NULL OR dedup IS NOT NULL", name="taken"),
    Index("inbox_dedup", "shard", "instance_id", "dedup", unique=True, postgresql_where=text("dedup IS NOT NULL")),
    Index("inbox_owner", "owner", postgresql_where=text("owner IS NOT NULL AND taken_at IS NULL")),
)

APPROVAL_STATES = ("pending", "approved", "rejected", "expired", "cancelled", "void")

approval = Table(
    "approval",
    metadata,
    _shard(),
    _uuid("id"),
    _uuid("instance_id"),
    _text("tenant"),
    _text("path"),
    _text("step"),
    _text("digest"),
    _text("title"),
    Column("body", JSON, nullable=False),
    Column("approvers", ARRAY(Text), nullable=False),
    _text("state", default="pending"),
    _time("asked_at"),
    _time("expires_at"),
    _text("decided_by", nullable=True),
    _time("decided_at", nullable=True),
    _text("channel", nullable=True),
    _text("comment", nullable=True),
    Column("answer", JSON, nullable=True),
    PrimaryKeyConstraint("shard", "id"),
    _shard_of("id"),
    _one_of("state", *APPROVAL_STATES),
    CheckConstraint("(state IN ('approved', 'rejected')) = (decided_by IS NOT NULL)", name="decided"),
    CheckConstraint("(decided_by IS NULL) = (decided_at IS NULL)", name="decided_at"),
    Index("approval_instance", "shard", "instance_id"),
    Index("approval_open", "tenant", text("id DESC"), postgresql_where=text("state = 'pending'")),
    Index("approval_list", "tenant", text("id DESC")),
)

#: Deliveries, at least once each and in order of an instance and target: `seq` is the write that caused it, `position` its place therein;
#: `last_status` is what the other side answered at last.
outbox = Table(
    "outbox",
    metadata,
    _shard(),
    _uuid("id"),
    _uuid("instance_id", nullable=True),
    _text("tenant"),
    _int("seq", default=0),
    _int("position", default=0, kind=SmallInteger),
    _text("kind"),
    _text("target"),
    Column("body", JSON, nullable=False),
    _int("tries", default=0),
    _time("due_at", default="now()"),
    _int("owner", nullable=True, kind=BigInteger),
    _text("state", default="pending"),
    _text("last_error", nullable=True),
    _int("last_status", nullable=True, kind=SmallInteger),
    _time("created_at", default="now()"),
    _time("settled_at", nullable=True),
    PrimaryKeyConstraint("shard", "id"),
    _shard_of("id"),
    _one_of("state", "pending", "delivered", "dead"),
    CheckConstraint("(settled_at IS NULL) = (state = 'pending') AND (owner IS NULL OR state = 'pending')", name="settled"),
    Index("outbox_due", "due_at", postgresql_where=text("owner IS NULL AND state = 'pending'")),
    Index("outbox_owner", "owner", postgresql_where=text("owner IS NOT NULL")),
    Index("outbox_order", "shard", "instance_id", "seq", "position"),
    Index("outbox_line", "shard", "instance_id", "target", "state", "seq", "position"),
    Index("outbox_list", "tenant", text("id DESC")),
    Index("outbox_target", "tenant", "target", text("id DESC")),
    Index("outbox_open", "tenant", "target", text("id DESC"), postgresql_where=text("state <> 'delivered'")),
    Index("outbox_settled", "settled_at", postgresql_where=text("settled_at IS NOT NULL")),
    postgresql_with={"fillfactor": 70},
)

#: The ledger: one row a call of a model, written with the record of the attempt and never changed. A cost that nobody knows is null.
usage = Table(
    "usage",
    metadata,
    _shard(),
    _uuid("instance_id"),
    _text("path"),
    _int("attempt"),
    _int("number"),
    _text("tenant"),
    _text("workflow"),
    _time("at"),
    _text("purpose"),
    _text("profile"),
    _text("kind"),
    _text("model_asked"),
    _text("model_answered", nullable=True),
    _int("input_tokens", nullable=True, kind=BigInteger),
    _int("output_tokens", nullable=True, kind=BigInteger),
    _int("cache_read_tokens", nullable=True, kind=BigInteger),
    _int("cache_write_tokens", nullable=True, kind=BigInteger),
    _int("reasoning_tokens", nullable=True, kind=BigInteger),
    _int("cost_micro_usd", nullable=True, kind=BigInteger),
    _text("price_version", nullable=True),
    _text("status"),
    _int("latency_ms", nullable=True, kind=BigInteger),
    _text("request_id", nullable=True),
    PrimaryKeyConstraint("shard", "instance_id", "path", "attempt", "number"),
    _shard_of("instance_id"),
    Index("usage_tenant", "tenant", "at"),
)

#: Where to send which events of a tenant. `secrets` has a list for each: sealed text, since when it signs, until when (or null).
webhook = Table(
    "webhook",
    metadata,
    _text("tenant"),
    _uuid("id"),
    _text("url"),
    Column("events", ARRAY(Text), nullable=False),
    _text("workflow", nullable=True),
    _text("description", nullable=True),
    Column("header_names", ARRAY(Text), nullable=False),
    _text("headers", nullable=True),
    Column("secrets", JSON, nullable=False),
    Column("include_output", Boolean, nullable=False),
    Column("active", Boolean, nullable=False),
    _text("disabled_reason", nullable=True),
    _time("created_at"),
    _text("created_by", nullable=True),
    _time("updated_at"),
    _int("revision", kind=BigInteger),
    PrimaryKeyConstraint("tenant", "id"),
)

#: One row, whose number grows with every change of a webhook.
webhook_news = Table(
    "webhook_news",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    _int("number", kind=BigInteger),
    CheckConstraint("id = 1", name="one"),
)

#: The promise behind a trigger's key. A key knows no shard before its instance is found, so the tenant leads here.
idempotency = Table(
    "idempotency",
    metadata,
    _text("tenant"),
    _text("key"),
    _text("request_digest"),
    _shard(),
    _uuid("instance_id"),
    _time("expires_at"),
    PrimaryKeyConstraint("tenant", "key"),
    _shard_of("instance_id"),
    Index("idempotency_expires", "expires_at"),
)

#: The answers of calls under an `Idempotency-Key`; without `status` the call still runs, and `expires_at` is the end of its hold.
answered_call = Table(
    "answered_call",
    metadata,
    _text("tenant"),
    _text("principal"),
    _text("key"),
    _text("digest"),
    _uuid("claim"),
    _time("expires_at"),
    _int("status", nullable=True, kind=SmallInteger),
    Column("headers", JSON(none_as_null=True), nullable=True),
    Column("body", LargeBinary, nullable=True),
    PrimaryKeyConstraint("tenant", "principal", "key"),
    CheckConstraint("(status IS NULL) = (body IS NULL) AND (status IS NULL) = (headers IS NULL)", name="answer"),
    Index("answered_call_expires", "expires_at"),
)

#: The newest good result of each call whose step may fall back to it; `expires_at` is when no step asks for it any more.
last_good = Table(
    "last_good",
    metadata,
    _text("tenant"),
    _text("tool"),
    _text("digest"),
    Column("result", JSON, nullable=False),
    _time("at"),
    _time("expires_at"),
    PrimaryKeyConstraint("tenant", "tool", "digest"),
    Index("last_good_expires", "expires_at"),
)

#: One row an incarnation of a node: `id` is random and never used twice, not even after a failover to a standby that lags.
node = Table(
    "node",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    _text("name"),
    _time("started_at", default="now()"),
    _time("lease_until"),
    _text("state", default="alive"),
    _one_of("state", "alive", "dead", "left"),
    Index("node_name", "name", postgresql_where=text("state = 'alive'")),
    postgresql_with={"fillfactor": 20},
)

#: `rank` is text that sorts, byte by byte, as versions compare; equal ranks are one version spelled twice. `label` is what follows a dash.
workflow_version = Table(
    "workflow_version",
    metadata,
    _text("tenant"),
    _text("workflow"),
    _text("version"),
    Column("rank", String(collation="C"), nullable=False),
    _text("label", default=""),
    _text("content_hash"),
    _text("source"),
    Column("document", JSON, nullable=False),
    _time("created_at", default="now()"),
    _text("created_by", nullable=True),
    Column("is_default", Boolean, nullable=False, server_default=text("false")),
    _time("deprecated_at", nullable=True),
    PrimaryKeyConstraint("tenant", "workflow", "version"),
    UniqueConstraint("tenant", "workflow", "rank"),
    Index("workflow_version_default", "tenant", "workflow", unique=True, postgresql_where=text("is_default")),
)

#: Drafts of definitions, by the version that they are to become; `problems` are what was wrong when it was saved.
workflow_draft = Table(
    "workflow_draft",
    metadata,
    _text("tenant"),
    _text("workflow"),
    _text("version"),
    _text("source"),
    Column("problems", JSON, nullable=False),
    _int("errors"),
    _int("warnings"),
    _text("saved_by"),
    _time("saved_at", default="now()"),
    PrimaryKeyConstraint("tenant", "workflow", "version"),
)

#: What starts no new instance: a paused workflow (`version` is empty), or a version that was deleted (`content_hash` is what it had).
#: Every first write of an instance looks here, under a lock that a new row waits for.
start_hold = Table(
    "start_hold",
    metadata,
    _text("tenant"),
    _text("workflow"),
    _text("version", default=""),
    _text("kind"),
    _text("held_by"),
    _text("reason", nullable=True),
    _text("content_hash", nullable=True),
    _time("since", default="now()"),
    PrimaryKeyConstraint("tenant", "workflow", "version"),
    _one_of("kind", "paused", "deleted"),
    CheckConstraint("(kind = 'paused') = (version = '') AND (kind = 'deleted') = (content_hash IS NOT NULL)", name="held"),
)

rejected_trigger = Table(
    "rejected_trigger",
    metadata,
    _text("tenant"),
    _uuid("id"),
    _time("at", default="now()"),
    _text("workflow"),
    _text("version", nullable=True),
    _text("actor", nullable=True),
    _text("trace_id", nullable=True),
    _text("code"),
    Column("problems", JSON, nullable=False),
    PrimaryKeyConstraint("tenant", "id"),
)

audit = Table(
    "audit",
    metadata,
    _text("tenant"),
    _uuid("id"),
    _time("at", default="now()"),
    _text("actor"),
    _text("action"),
    _text("object"),
    Column("data", JSON(none_as_null=True), nullable=True),
    PrimaryKeyConstraint("tenant", "id"),
    Index("audit_object", "tenant", "object", text("id DESC")),
)

#: Keys that may call the API, found by their own id before their tenant is known. Rows are never deleted: a service that has had a key
#: never again takes calls without one.
api_key = Table(
    "api_key",
    metadata,
    _uuid("id"),
    _text("tenant"),
    _text("name"),
    _text("digest"),
    Column("roles", ARRAY(Text), nullable=False),
    _time("created_at"),
    _text("created_by"),
    _time("expires_at", nullable=True),
    _time("revoked_at", nullable=True),
    _time("last_used_at", nullable=True),
    PrimaryKeyConstraint("id"),
    Index("api_key_list", "tenant", text("id DESC")),
    Index("api_key_name", "tenant", "name"),
)

#: Columns worth a quick compression; lz4 costs a little space and a third of the default's CPU. Not every server was built with it.
COMPRESSED = (("history", "records"), ("snapshot", "body"), ("approval", "body"), ("outbox", "body"))
