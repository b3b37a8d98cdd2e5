"""Drafts, marks, holds and deletion on Postgres, and the list of workflows.

A hold and a deletion wait for the first writes of instances that are under way, so that afterwards no node begins one; nothing here reads
what a definition says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from agiwo.ports.store import StoreUnavailable
from agiwo.ports.workflows import COUNTED, NAMED, Deletion, Draft, DraftLine, Hanging, Hold, Marked, WorkflowRow
from agiwo.store.pool import connected
from agiwo.store.statements import STATEMENTS
from agiwo.values import decode, encode

#: Seconds that a hold waits for first writes under way, while new ones wait behind it.
PATIENCE = 3.0
TRIES = 10

_CLASH = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError)


class PostgresWorkflows:
    """A WorkflowStore on a pool made by `service_engine`; `patience` in seconds as PATIENCE."""

    def __init__(self, engine: AsyncEngine, patience: float = PATIENCE) -> None:
        self.engine = engine
        self._patience = patience

    async def workflows(self, tenant: str, containing: str | None, after: str | None, limit: int) -> list[WorkflowRow]:
        pattern = None if containing is None else f"%{_escaped(containing)}%"
        return [_row(row) for row in await self._ask("list_workflows", tenant, pattern, after, limit, COUNTED, None)]

    async def workflow(self, tenant: str, workflow: str) -> WorkflowRow | None:
        rows = await self._ask("list_workflows", tenant, None, None, 1, COUNTED, workflow)
        return _row(rows[0]) if rows else None

    async def mark_default(self, tenant: str, workflow: str, version: str | None) -> Marked:
        for _ in range(TRIES):
            try:
                async with self._transaction() as connection:
                    if version is not None and not await _say(connection, "has_version", tenant, workflow, version):
                        return Marked.UNKNOWN
                    changed = await _say(connection, "unmark_default", tenant, workflow, version)
                    if version is not None:
                        changed += await _say(connection, "mark_default", tenant, workflow, version)
                return Marked.CHANGED if changed else Marked.UNCHANGED
            except DBAPIError as exc:
                if not isinstance(getattr(exc.orig, "__cause__", None), _CLASH):
                    raise
        raise StoreUnavailable(f"others marked the versions of this workflow {TRIES} times meanwhile")

    async def mark_deprecated(self, tenant: str, workflow: str, version: str, deprecated: bool) -> Marked:
        if await self._ask("mark_deprecated", tenant, workflow, version, deprecated):
            return Marked.CHANGED
        return Marked.UNCHANGED if await self._ask("has_version", tenant, workflow, version) else Marked.UNKNOWN

    async def pause(self, tenant: str, workflow: str, by: str, reason: str | None) -> Hold:
        while True:
            async with self._no_starts() as connection:
                await _say(connection, "pause_workflow", tenant, workflow, by, reason)
            if (hold := await self.hold(tenant, workflow)) is not None:
                return hold
            # Somebody resumed it between the two.

    async def resume(self, tenant: str, workflow: str) -> Hold | None:
        return _hold(workflow, await self._ask("resume_workflow", tenant, workflow))

    async def hold(self, tenant: str, workflow: str) -> Hold | None:
        return _hold(workflow, await self._ask("get_hold", tenant, workflow))

    async def hanging(self, tenant: str, workflow: str, version: str | None) -> Hanging | None:
        (row,) = await self._ask("look_for_instances", tenant, workflow, version, COUNTED)
        return Hanging(len(row.live), tuple(row.live[:NAMED]), row.ended) if row.live or row.ended else None

    async def delete(self, tenant: str, workflow: str, version: str | None, by: str) -> Deletion:
        # Looked for before anything is forbidden, so that a deletion that is refused disturbs nobody.
        if (hanging := await self.hanging(tenant, workflow, version)) is not None:
            return Deletion(hanging=hanging)
        async with self._no_starts() as connection:
            await _say(connection, "forbid_versions", tenant, workflow, version, by)
        if (hanging := await self.hanging(tenant, workflow, version)) is not None:
            await self._ask("allow_versions_that_stand", tenant, workflow, version)
            return Deletion(hanging=hanging)
        async with self._transaction() as connection:
            gone = await _say(connection, "delete_forbidden_versions", tenant, workflow, version)
            if version is None:
                await _say(connection, "resume_workflow", tenant, workflow)
                await _say(connection, "delete_drafts", tenant, workflow, None)
        return Deletion(tuple(row.version for row in gone))

    async def keep_draft(self, tenant: str, draft: Draft) -> bool:
        problems = encode([dict(problem) for problem in draft.problems])
        values = (tenant, draft.workflow, draft.version, draft.source, problems, draft.errors, draft.warnings, draft.saved_by)
        return bool((await self._ask("keep_draft", *values))[0].new)

    async def drafts(self, tenant: str, workflow: str, after: str | None, limit: int) -> list[DraftLine]:
        return [_line(row) for row in await self._ask("list_drafts", tenant, workflow, after, limit)]

    async def draft(self, tenant: str, workflow: str, version: str) -> Draft | None:
        rows = await self._ask("get_draft", tenant, workflow, version)
        return _draft(rows[0]) if rows else None

    async def delete_draft(self, tenant: str, workflow: str, version: str) -> bool:
        return bool(await self._ask("delete_drafts", tenant, workflow, version))

    async def _ask(self, name: str, *values: Any) -> list[Row[Any]]:
        async with connected(self.engine) as connection:
            return await _say(connection, name, *values)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        async with connected(self.engine) as plain:
            connection = await plain.execution_options(isolation_level="READ COMMITTED")
            async with connection.begin():
                yield connection

    @asynccontextmanager
    async def _no_starts(self) -> AsyncIterator[AsyncConnection]:
        """A transaction during which no instance begins, and after which each beginning sees what was done in it."""
        try:
            async with self._transaction() as connection:
                await connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(self._patience * 1000)}")
                # First writes under way are waited for and new ones wait; reads and backups go on. No statement that can be prepared.
                await connection.exec_driver_sql("LOCK TABLE agiwo.start_hold IN EXCLUSIVE MODE")
                yield connection
        except DBAPIError as exc:
            if isinstance(getattr(exc.orig, "__cause__", None), asyncpg.LockNotAvailableError):
                raise StoreUnavailable(f"writes that are under way did not end within {self._patience:g} seconds") from exc
            raise


async def _say(connection: AsyncConnection, name: str, *values: Any) -> list[Row[Any]]:
    result = await connection.exec_driver_sql(STATEMENTS[name].text, values)
    return list(result.all()) if result.returns_rows else []


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _hold(workflow: str, rows: list[Row[Any]]) -> Hold | None:
    return Hold(workflow, rows[0].held_by, rows[0].since, rows[0].reason) if rows else None


def _row(row: Row[Any]) -> WorkflowRow:
    hold = None if row.held_by is None else Hold(row.workflow, row.held_by, row.since, row.reason)
    return WorkflowRow(row.workflow, row.version, row.newest, row.marked, row.versions, row.drafts, hold)


def _line(row: Row[Any]) -> DraftLine:
    return DraftLine(row.workflow, row.version, row.errors, row.warnings, row.saved_by, row.saved_at)


def _draft(row: Row[Any]) -> Draft:
    return Draft(
        row.workflow, row.version, row.errors, row.warnings, row.saved_by, row.saved_at, source=row.source, problems=decode(row.problems)
    )
