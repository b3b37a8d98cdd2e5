"""Lists over a million instances: every filter reads its page by an index and not the table, and what it takes is printed.

The plans are asserted; the times are only told.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import asyncpg
import pytest
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ClauseElement, Executable

from agiwo.ports.oversight import AuditFilter
from agiwo.ports.queries import InstanceFilter
from agiwo.store.oversight import PostgresOversight
from agiwo.store.pool import service_engine
from agiwo.store.queries import PostgresQueries

ROWS = 1_000_000
TENANT = "t1"

FILL = f"""
INSERT INTO agiwo.instance (shard, id, tenant, workflow, version, content_hash, status, trace_id, starter, labels, correlation_key, error,
                            created_at, ended_at, waiting_for)
SELECT (n % 256)::smallint,
       ('019' || lpad(to_hex(n), 9, '0') || '70' || lpad(to_hex(n % 256), 2, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid,
       't' || n % 4, 'w' || n % 20, '1', 'h',
       CASE WHEN n % 10 = 0 THEN 'RUNNING' WHEN n % 50 = 1 THEN 'FAILED' ELSE 'SUCCESS' END,
       lpad(to_hex(n), 32, '0'), 'key:' || n % 7, jsonb_build_object('team', n % 1000), CASE WHEN n % 3 = 0 THEN 'c' || n END,
       CASE WHEN n % 50 = 1 AND n % 10 <> 0 THEN '{{"type": "Timeout", "message": ""}}'::json END,
       now(), CASE WHEN n % 10 <> 0 THEN now() END, CASE WHEN n % 20 = 0 THEN 'approval of a' END
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO agiwo.audit (tenant, id, actor, action, object)
SELECT 't' || n % 4, ('019' || lpad(to_hex(n), 9, '0') || '7000800' || lpad(to_hex(n), 13, '0'))::uuid, 'key:' || n % 7, 'cancel',
       'instance/' || n
FROM generate_series(1, {ROWS}) AS n;
"""

FILTERS = {
    "newest": InstanceFilter(),
    "status": InstanceFilter(status="FAILED"),
    "waiting": InstanceFilter(status="WAITING"),
    "running": InstanceFilter(status="RUNNING"),
    "a status that none has": InstanceFilter(status="TIMED_OUT"),
    "workflow": InstanceFilter(workflow="w5"),
    "workflow and status": InstanceFilter(workflow="w5", status="WAITING"),
    "trace": InstanceFilter(trace_id=f"{77:032x}"),
    "correlation key": InstanceFilter(correlation_key="c77777"),
    "error": InstanceFilter(error="Timeout"),
    "an error that none has": InstanceFilter(error="Truncated"),
    "a label": InstanceFilter(labels={"team": "77"}),
    "a label that none has": InstanceFilter(labels={"team": "nobody"}),
    "starter": InstanceFilter(starter="key:3"),
    "a starter that none is": InstanceFilter(starter="key:none"),
    "time": InstanceFilter(since=0.0, until=4e9),
}


@pytest.fixture(scope="module")
async def million(module_database: str) -> AsyncIterator[str]:
    connection = await asyncpg.connect(module_database)
    await connection.execute("SET synchronous_commit = off; SET maintenance_work_mem = '512MB'")
    await connection.execute(FILL, timeout=600)
    await connection.execute("VACUUM ANALYZE agiwo.instance")
    await connection.execute("VACUUM ANALYZE agiwo.audit")
    await connection.close()
    yield module_database


class Explained(PostgresQueries):
    """Keeps the plan of what it asks: the statement goes to the database a second time, behind EXPLAIN."""

    plans: ClassVar[list[dict[str, Any]]] = []

    async def _rows(self, statement: Any) -> Any:
        await self._explain(statement)
        return await super()._rows(statement)

    async def _row(self, statement: Any) -> Any:
        await self._explain(statement)
        return await super()._row(statement)

    async def _explain(self, statement: Any) -> None:
        async with self._engine.connect() as connection:
            (found,) = (await connection.execute(Explain(statement))).scalar_one()
            self.plans.append(found["Plan"])


class Explain(Executable, ClauseElement):
    inherit_cache = False

    def __init__(self, statement: Any) -> None:
        self.statement = statement


@compiles(Explain)
def _compile_explain(element: Explain, compiler: Any, **more: Any) -> str:
    return f"EXPLAIN (FORMAT JSON) {compiler.process(element.statement, **more)}"


def scans(node: dict[str, Any]) -> list[str]:
    inner = [name for child in node.get("Plans", ()) for name in scans(child)]
    return [*inner, node["Node Type"]] if node["Node Type"].endswith("Scan") else inner


@pytest.mark.timeout(900)
async def test_every_list_reads_its_page_and_not_the_table(million: str) -> None:
    """REQ-45."""
    pool = service_engine(million)
    queries = Explained(pool)
    oversight = PostgresOversight(pool)
    try:
        for name, wanted in FILTERS.items():
            queries.plans = []
            begun = time.perf_counter()
            page = await queries.instances(TENANT, wanted, None, 50)
            first = time.perf_counter() - begun
            deep = None
            if page.next is not None:
                begun = time.perf_counter()
                await queries.instances(TENANT, wanted, page.next, 50)
                deep = time.perf_counter() - begun
            for plan in queries.plans:
                assert "Seq Scan" not in scans(plan), (name, plan)
            begun = time.perf_counter()
            sums = await oversight.summary(TENANT, wanted)
            told = f"{deep * 1000:6.1f}" if deep is not None else "     –"
            print(f"{name:24} {len(page.rows):3} rows  {first * 1000:6.1f} ms, next {told} ms, summary of {sums.counted:5} "
                  f"{(time.perf_counter() - begun) * 1000:6.1f} ms")  # fmt: skip
        for wanted_audit in (AuditFilter(), AuditFilter(object="instance/77777"), AuditFilter(actor="key:none")):
            begun = time.perf_counter()
            found = await oversight.audit(TENANT, wanted_audit, None, 50)
            print(f"audit {wanted_audit}: {len(found.rows)} rows, {(time.perf_counter() - begun) * 1000:.1f} ms")
        begun = time.perf_counter()
        await oversight.violations(TENANT, 20)
        print(f"invariants: {(time.perf_counter() - begun) * 1000:.1f} ms")
    finally:
        await pool.dispose()
