"""Lists of deliveries read their page by an index, however many were made."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql

from agiwo.store.deliveries import PostgresDeliveries
from agiwo.store.pool import service_engine

FILL = """
INSERT INTO agiwo.outbox (shard, id, tenant, kind, target, body, state, settled_at)
SELECT (n % 256)::smallint,
       ('019' || lpad(to_hex(n), 9, '0') || '70' || lpad(to_hex(n % 256), 2, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid,
       't' || n % 2, 'webhook', 'w' || n % 8, '{}', CASE WHEN n % 9999 = 0 THEN 'dead' ELSE 'delivered' END, now()
FROM generate_series(1, 40000) AS n;
ANALYZE agiwo.outbox;
"""


class Explained(PostgresDeliveries):
    """Keeps the plan of what it asks."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.plan = ""

    async def _deliveries(self, statement: Any) -> Any:
        said = statement.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
        async with self._engine.connect() as connection:
            self.plan = "\n".join((await connection.execute(text(f"EXPLAIN {said}".replace(":", r"\:")))).scalars())
        return await super()._deliveries(statement)


@pytest.mark.parametrize(
    ("target", "state", "index"),
    [("w2", None, "outbox_target"), ("w2", "dead", "outbox_open"), ("w2", "pending", "outbox_open"), (None, None, "outbox_list")],
)
async def test_a_list_of_deliveries_reads_its_page_and_not_the_table(
    module_database: str, target: str | None, state: str | None, index: str
) -> None:
    connection = await asyncpg.connect(module_database)
    if not await connection.fetchval("SELECT count(*) FROM agiwo.outbox"):
        await connection.execute(FILL)
    await connection.close()
    pool = service_engine(module_database)
    try:
        asked = Explained(pool)
        found = await asked.listed("t0", target, state, UUID(int=2**128 - 1), 50)
        assert index in asked.plan and "Seq Scan" not in asked.plan, asked.plan
        assert [one.id for one in found] == sorted((one.id for one in found), reverse=True)
        assert len(found) == {None: 50, "dead": len(found), "pending": 0}[state]
    finally:
        await pool.dispose()
