"""The tables against the machine, and what the tables themselves refuse."""

from __future__ import annotations

import secrets
from typing import Any

import asyncpg
import pytest

from agiwo.clock import SystemClock
from agiwo.ids import uuid7
from agiwo.machine.state import ENDED_INSTANCE, InstanceStatus
from agiwo.store.schema import ENDED_STATES, LARGE, LIVE_STATES, metadata

#: Tables of an instance; their keys begin with the shard.
OF_INSTANCES = ("run", "instance", "history", "snapshot", "inbox", "approval", "outbox", "usage")


def test_the_tables_know_the_machines_states() -> None:
    assert {*LIVE_STATES, *ENDED_STATES} == {status.value for status in InstanceStatus}
    assert set(ENDED_STATES) == {status.value for status in ENDED_INSTANCE}


def test_every_key_of_an_instance_begins_with_its_shard_and_every_table_names_its_tenant() -> None:
    tables = {table.name: table for table in metadata.sorted_tables}
    for name in OF_INSTANCES:
        assert [column.name for column in tables[name].primary_key][0] == "shard", name
        for index in tables[name].indexes:
            assert not index.unique or [c.name for c in index.columns][0] == "shard", index.name
    for name in LARGE:
        assert "tenant" in tables[name].c and not tables[name].c.tenant.nullable, name


INSTANCE = """
INSERT INTO agiwo.instance (shard, id, tenant, workflow, version, content_hash, status, trace_id, created_at, ended_at)
VALUES ($1, $2, 't', 'w', '1', 'h', $3, 'x', now(), $4::timestamptz)
"""


@pytest.mark.parametrize(
    ("shard", "status", "ended"),
    [(8, "RUNNING", False), (7, "SUCCESS", False), (7, "RUNNING", True), (7, "DONE", True)],
    ids=["wrong_shard", "ended_without_time", "live_with_end", "no_such_status"],
)
async def test_a_row_that_breaks_an_invariant_is_refused(connection: asyncpg.Connection[Any], shard: int, status: str, ended: bool) -> None:
    id = uuid7(SystemClock().now(), secrets.randbits(66), 7)
    with pytest.raises(asyncpg.CheckViolationError):
        at = await connection.fetchval("SELECT now()") if ended else None
        await connection.execute(INSTANCE, shard, id, status, at)


async def test_updates_of_a_step_stay_on_their_page(connection: asyncpg.Connection[Any]) -> None:
    """No index holds a column that changes by step."""
    rows = await connection.fetch(
        "SELECT i.relname, a.attname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid"
        " JOIN pg_attribute a ON a.attrelid = x.indexrelid WHERE x.indrelid = 'agiwo.run'::regclass"
    )
    assert {row["attname"] for row in rows} == {"shard", "id", "tenant", "owner", "due_at"}
