"""The named statements: each can be prepared on the migrated schema, and none of them reads a large table from end to end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from agiwo.store.line import SESSION
from agiwo.store.schema import LARGE
from agiwo.store.statements import STATEMENTS, parse

#: Run by services, on connections with the planner's usual settings.
SERVICES = (
    {"put_inbox_and_wake", "look_for_inbox", "decide_approval_if_open", "get_approval", "get_promise"}
    | {f"{verb}_answered_call" for verb in ("hold", "look_at", "renew", "keep", "free")}
    | {"insert_webhook", "change_webhook_if_unchanged", "disable_webhook", "delete_webhook", "read_webhook_news", "list_subscriptions"}
    | {"deliver_again"}
    | {"list_workflows", "look_for_instances", "forbid_versions", "allow_versions_that_stand", "delete_forbidden_versions"}
    | {"keep_last_good", "find_last_good"}
)

#: Partial indexes that hold only what a living or dead node has in its hands at the moment.
SMALL_INDEXES = {"run_owner", "outbox_owner"}

ROWS = 100_000

#: Ids whose byte 7 is the shard, as `agiwo.ids` makes them.
FILL = f"""
CREATE TEMP TABLE made AS
SELECT n, ('0190' || lpad(to_hex(n), 8, '0') || '70' || lpad(to_hex(n % 256), 2, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid AS id,
       (n % 256)::smallint AS shard, 't' || n % 50 AS tenant
FROM generate_series(1, {ROWS}) AS n;

INSERT INTO agiwo.instance (shard, id, tenant, workflow, version, content_hash, status, trace_id, created_at)
SELECT shard, id, tenant, 'w', '1', 'h', 'WAITING', 't', now() FROM made;

INSERT INTO agiwo.run (shard, id, tenant, workflow, version, owner, due_at)
SELECT shard, id, tenant, 'w', '1', CASE WHEN n % 100 = 0 THEN n % 3 END, CASE WHEN n % 50 = 1 THEN now() ELSE 'infinity' END FROM made;

INSERT INTO agiwo.history (shard, instance_id, seq, first_seq, tenant, epoch, node, at, records)
SELECT shard, id, 1, 1, tenant, 1, 1, now(), '[]' FROM made;

INSERT INTO agiwo.snapshot (shard, instance_id, tenant, seq, body) SELECT shard, id, tenant, 1, '{{}}' FROM made;

INSERT INTO agiwo.inbox (shard, instance_id, tenant, number, kind, dedup, body, owner, taken_at)
SELECT shard, id, tenant, 1, 'signal', 'd', '{{}}', CASE WHEN n % 100 = 0 THEN n % 3 END, now() FROM made;

INSERT INTO agiwo.usage (shard, instance_id, path, attempt, number, tenant, workflow, at, purpose, profile, kind, model_asked, status)
SELECT shard, id, 'a', 1, 1, tenant, 'w', now(), 'main', 'p', 'openai', 'm', 'ok' FROM made;

INSERT INTO agiwo.idempotency (tenant, key, request_digest, shard, instance_id, expires_at)
SELECT tenant, n::text, '', shard, id, now() + n * interval '1 second' FROM made;

INSERT INTO agiwo.answered_call (tenant, principal, key, digest, claim, expires_at)
SELECT tenant, 'key:ops', n::text, '', id, now() + n * interval '1 second' FROM made;

INSERT INTO agiwo.last_good (tenant, tool, digest, result, at, expires_at)
SELECT tenant, 'http.request', n::text, '1', now(), now() + n * interval '1 second' FROM made;

INSERT INTO agiwo.approval (shard, id, instance_id, tenant, path, step, digest, title, body, approvers, asked_at, expires_at)
SELECT shard, id, id, tenant, 'a', 'a', 'd', 't', '{{}}', '{{}}', now(), 'infinity' FROM made WHERE n % 4 = 0;

INSERT INTO agiwo.outbox (shard, id, instance_id, tenant, kind, target, body, state, settled_at)
SELECT shard, id, id, tenant, 'notice', 'x', '{{}}', CASE WHEN n % 40 = 0 THEN 'pending' ELSE 'delivered' END,
       CASE WHEN n % 40 <> 0 THEN now() END
FROM made WHERE n % 4 = 0;
"""


@pytest.fixture(scope="module")
async def large(module_database: str) -> AsyncIterator[str]:
    """A database where every large table is large."""
    connection = await asyncpg.connect(module_database)
    await connection.execute("SET synchronous_commit = off; SET maintenance_work_mem = '256MB'")
    await connection.execute(FILL)
    await connection.execute("ANALYZE")
    await connection.close()
    yield module_database


async def open_session(url: str, name: str) -> asyncpg.Connection[Any]:
    settings = {"search_path": "pg_catalog", "plan_cache_mode": "force_generic_plan"} if name in SERVICES else SESSION
    return await asyncpg.connect(url, server_settings=settings)


async def plan(connection: asyncpg.Connection[Any], text: str) -> dict[str, Any]:
    await connection.execute("DEALLOCATE ALL")
    await connection.execute(f"PREPARE tried AS {text}")
    count = await connection.fetchval("SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'tried'")
    values = f"({', '.join(['NULL'] * count)})" if count else ""
    found: dict[str, Any] = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE tried{values}"))[0]["Plan"]
    return found


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def reads_all(node: dict[str, Any]) -> bool:
    if node.get("Relation Name") not in LARGE:
        return False
    if node["Node Type"] == "Seq Scan":
        return True
    scans = node["Node Type"] in ("Index Scan", "Index Only Scan")
    return scans and "Index Cond" not in node and node["Index Name"] not in SMALL_INDEXES


@pytest.mark.parametrize("name", sorted(STATEMENTS))
async def test_a_statement_can_be_prepared_and_reads_no_table_whole_while_all_are_new(module_database: str, name: str) -> None:
    connection = await open_session(module_database, name)
    try:
        found = await plan(connection, STATEMENTS[name].text)
        if name not in SERVICES:
            assert [node for node in nodes(found) if reads_all(node)] == []
    finally:
        await connection.close()


@pytest.mark.parametrize("name", sorted(STATEMENTS))
async def test_a_statement_reads_no_large_table_whole(large: str, name: str) -> None:
    connection = await open_session(large, name)
    try:
        found = list(nodes(await plan(connection, STATEMENTS[name].text)))
    finally:
        await connection.close()
    assert [node for node in found if reads_all(node)] == []
    assert name in SERVICES or [node for node in found if node["Node Type"] in ("Hash Join", "Merge Join")] == []


def test_a_file_of_statements_says_what_each_is_for() -> None:
    (found,) = parse("-- name: a_thing\n-- What it is for.\nSELECT 1;\n")
    assert (found.name, found.purpose, found.text) == ("a_thing", "What it is for.", "SELECT 1")
    with pytest.raises(ValueError, match="begins with"):
        parse("SELECT 1;\n-- name: a\n-- b\nSELECT 2")
    with pytest.raises(ValueError, match="a_thing is empty"):
        parse("-- name: a_thing\n-- What.\n;\n")


def test_every_table_is_named_with_its_schema() -> None:
    """So that no search path can slip another table in."""
    for statement in STATEMENTS.values():
        for table in LARGE:
            for word in ("FROM", "JOIN", "INTO", "UPDATE"):
                assert f"{word} {table} " not in statement.text, statement.name
