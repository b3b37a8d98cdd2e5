"""Drafts, marks, holds and deletion in memory, beside `MemoryStore` and on the same database.

Nothing here awaits, so every method is one transaction.
"""

from __future__ import annotations

from dataclasses import replace

from agiwo.clock import Clock, SystemClock
from agiwo.ports.records import StoredVersion
from agiwo.ports.workflows import COUNTED, NAMED, Deletion, Draft, DraftLine, Hanging, Hold, HoldKind, Marked, WorkflowRow
from agiwo.store import memory
from agiwo.store.memory import MemoryDatabase, kept
from agiwo.values import check


class MemoryWorkflows:
    """A WorkflowStore on a MemoryDatabase."""

    def __init__(self, database: MemoryDatabase, clock: Clock | None = None) -> None:
        self._db = database
        self._clock = clock or SystemClock()

    async def workflows(self, tenant: str, containing: str | None, after: str | None, limit: int) -> list[WorkflowRow]:
        names = sorted({name for of, name, _ in self._db.versions if of == tenant}, key=str.encode)
        wanted = [
            name for name in names if (containing or "").lower() in name.lower() and (after is None or name.encode() > after.encode())
        ]
        return [self._row(tenant, name) for name in wanted[:limit]]

    async def workflow(self, tenant: str, workflow: str) -> WorkflowRow | None:
        return self._row(tenant, workflow) if self._versions(tenant, workflow) else None

    def _row(self, tenant: str, workflow: str) -> WorkflowRow:
        versions = self._versions(tenant, workflow)
        default = next((v.version for v in versions if v.is_default), None)
        taken = default or next((v.version for v in versions if not v.label and v.deprecated_at is None), None)
        drafts = sum((of, name) == (tenant, workflow) for of, name, _ in self._db.drafts)
        hold = self._hold(tenant, workflow)
        return WorkflowRow(workflow, taken, versions[0].version, default, min(len(versions), COUNTED), min(drafts, COUNTED), hold)

    def _versions(self, tenant: str, workflow: str) -> list[StoredVersion]:
        found = [v for v in self._db.versions.values() if (v.tenant, v.workflow) == (tenant, workflow)]
        return sorted(found, key=lambda v: v.rank.encode(), reverse=True)

    async def mark_default(self, tenant: str, workflow: str, version: str | None) -> Marked:
        versions = self._versions(tenant, workflow)
        if version is not None and all(v.version != version for v in versions):
            return Marked.UNKNOWN
        changed = [v for v in versions if v.is_default != (v.version == version)]
        for v in changed:
            self._db.versions[tenant, workflow, v.version] = replace(v, is_default=not v.is_default)
        return Marked.CHANGED if changed else Marked.UNCHANGED

    async def mark_deprecated(self, tenant: str, workflow: str, version: str, deprecated: bool) -> Marked:
        found = self._db.versions.get((tenant, workflow, version))
        if found is None:
            return Marked.UNKNOWN
        if (found.deprecated_at is not None) == deprecated:
            return Marked.UNCHANGED
        self._db.versions[tenant, workflow, version] = replace(found, deprecated_at=self._clock.now() if deprecated else None)
        return Marked.CHANGED

    async def pause(self, tenant: str, workflow: str, by: str, reason: str | None) -> Hold:
        check([tenant, workflow, by, reason])
        self._db.holds.setdefault((tenant, workflow, ""), memory.Hold(HoldKind.PAUSED, by, self._clock.now(), reason))
        hold = self._hold(tenant, workflow)
        assert hold is not None
        return hold

    async def resume(self, tenant: str, workflow: str) -> Hold | None:
        hold = self._hold(tenant, workflow)
        self._db.holds.pop((tenant, workflow, ""), None)
        return hold

    async def hold(self, tenant: str, workflow: str) -> Hold | None:
        return self._hold(tenant, workflow)

    def _hold(self, tenant: str, workflow: str) -> Hold | None:
        held = self._db.holds.get((tenant, workflow, ""))
        return None if held is None else Hold(workflow, held.by, held.since, held.reason)

    async def hanging(self, tenant: str, workflow: str, version: str | None) -> Hanging | None:
        using = [
            id
            for id, row in self._db.instances.items()
            if (row.tenant, row.new.workflow) == (tenant, workflow) and version in (None, row.new.version)
        ]
        live = sorted((id for id in using if id in self._db.runs), reverse=True)
        return Hanging(min(len(live), COUNTED), tuple(live[:NAMED]), len(live) < len(using)) if using else None

    async def delete(self, tenant: str, workflow: str, version: str | None, by: str) -> Deletion:
        hanging = await self.hanging(tenant, workflow, version)
        if hanging is not None:
            return Deletion(hanging=hanging)
        gone = [v for v in self._versions(tenant, workflow) if version in (None, v.version)]
        for v in gone:
            self._db.holds[tenant, workflow, v.version] = memory.Hold(HoldKind.DELETED, by, self._clock.now(), content_hash=v.content_hash)
            del self._db.versions[tenant, workflow, v.version]
        if version is None:
            self._db.holds.pop((tenant, workflow, ""), None)
            for key in [key for key in self._db.drafts if key[:2] == (tenant, workflow)]:
                del self._db.drafts[key]
        return Deletion(tuple(v.version for v in gone))

    async def keep_draft(self, tenant: str, draft: Draft) -> bool:
        check([tenant, draft.workflow, draft.version, draft.source, draft.saved_by])
        key = (tenant, draft.workflow, draft.version)
        new = key not in self._db.drafts
        self._db.drafts[key] = replace(draft, problems=kept([dict(p) for p in draft.problems]), saved_at=self._clock.now())
        return new

    async def drafts(self, tenant: str, workflow: str, after: str | None, limit: int) -> list[DraftLine]:
        drafts = [draft for key, draft in self._db.drafts.items() if key[:2] == (tenant, workflow)]
        drafts.sort(key=lambda draft: draft.version.encode())
        lines = [DraftLine(d.workflow, d.version, d.errors, d.warnings, d.saved_by, d.saved_at) for d in drafts]
        return [line for line in lines if after is None or line.version.encode() > after.encode()][:limit]

    async def draft(self, tenant: str, workflow: str, version: str) -> Draft | None:
        return self._db.drafts.get((tenant, workflow, version))

    async def delete_draft(self, tenant: str, workflow: str, version: str) -> bool:
        return self._db.drafts.pop((tenant, workflow, version), None) is not None
