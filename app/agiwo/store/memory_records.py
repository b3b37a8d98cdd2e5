"""The services' writes in memory, beside `MemoryStore` and on the same database.

Nothing here awaits, so every method is one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from agiwo.clock import Clock, SystemClock
from agiwo.ports.records import (
    DecisionAnswer,
    DecisionResult,
    NewVersion,
    Posted,
    Promise,
    Published,
    PublishResult,
    RejectedTrigger,
    StoredApproval,
    StoredVersion,
    VersionLine,
)
from agiwo.store.memory import MemoryDatabase, kept
from agiwo.values import check


class MemoryRecords:
    """Records on a MemoryDatabase."""

    def __init__(self, database: MemoryDatabase, clock: Clock | None = None) -> None:
        self._db = database
        self._clock = clock or SystemClock()

    async def put_inbox(self, instance: UUID, tenant: str, kind: str, body: Mapping[str, Any], dedup: str | None = None) -> Posted:
        check([tenant, kind, dedup])
        row = self._db.instances.get(instance)
        if row is None or row.tenant != tenant:
            return Posted.UNKNOWN
        if row.ended_at is not None:
            return Posted.ENDED
        if dedup is not None and any(letter.dedup == dedup for letter in self._db.inbox.get(instance, ())):
            return Posted.DUPLICATE
        self._db.wake(instance, self._clock.now(), kind, kept(dict(body)), dedup)
        return Posted.ACCEPTED

    async def posted(self, tenant: str, instance: UUID, dedup: str) -> Mapping[str, Any] | None:
        row = self._db.instances.get(instance)
        if row is None or row.tenant != tenant:
            return None
        return next((letter.item.body for letter in self._db.inbox.get(instance, ()) if letter.dedup == dedup), None)

    async def count_inbox(self, tenant: str, instance: UUID, kind: str, most: int, *, waiting: bool = False) -> int:
        row = self._db.instances.get(instance)
        if row is None or row.tenant != tenant:
            return 0
        letters = self._db.inbox.get(instance, ())
        return min(most, sum(letter.item.kind == kind and not (waiting and letter.taken) for letter in letters))

    async def decide_approval(
        self,
        tenant: str,
        approval: UUID,
        *,
        action: str,
        by: str,
        channel: str,
        digest: str,
        comment: str | None = None,
        answer: Any = None,
    ) -> DecisionResult:
        if action not in ("approve", "reject"):
            raise ValueError(f"a decision is approve or reject, not {action!r}")
        check([by, channel, comment])
        found = await self.get_approval(tenant, approval)
        if found is None:
            return DecisionResult(DecisionAnswer.UNKNOWN)
        now = self._clock.now()
        refusal = self._refusal(found, action, by, answer, digest, now)
        if refusal is not None:
            return DecisionResult(refusal, found)
        state = "approved" if action == "approve" else "rejected"
        decided = replace(found, state=state, decided_by=by, decided_at=now, channel=channel, comment=comment, answer=answer)
        self._db.approvals[approval] = decided
        body = {
            "approval": str(approval), "path": found.path, "action": action, "by": by, "channel": channel, "comment": comment,
            "answer": answer,
        }  # fmt: skip
        self._db.wake(found.instance_id, now, "decision", kept(body), f"decision:{approval}")
        return DecisionResult(DecisionAnswer.DECIDED, decided)

    def _refusal(self, found: StoredApproval, action: str, by: str, answer: Any, digest: str, now: float) -> DecisionAnswer | None:
        if found.state in ("approved", "rejected"):
            first = (found.state == "approved", found.decided_by, found.answer)
            return DecisionAnswer.REPEATED if first == (action == "approve", by, answer) else DecisionAnswer.CONFLICT
        if found.state == "expired":
            return DecisionAnswer.EXPIRED
        if found.state != "pending" or found.instance_id not in self._db.runs:
            return DecisionAnswer.GONE
        if found.digest != digest:
            return DecisionAnswer.CHANGED
        return DecisionAnswer.EXPIRED if found.expires_at <= now else None

    async def get_approval(self, tenant: str, approval: UUID) -> StoredApproval | None:
        found = self._db.approvals.get(approval)
        return found if found is not None and found.tenant == tenant else None

    async def promise(self, tenant: str, key: str) -> Promise | None:
        found = self._db.promises.get((tenant, key))
        return found[0] if found is not None and found[1] > self._clock.now() else None

    async def publish_version(self, tenant: str, version: NewVersion) -> PublishResult:
        at = (tenant, version.workflow, version.version)
        if await self.deleted_content(*at) not in (None, version.content_hash):
            return PublishResult(Published.DELETED)
        same = self._db.versions.get(at)
        if same is not None:
            unchanged = same.content_hash == version.content_hash
            return PublishResult(Published.UNCHANGED if unchanged else Published.CONFLICT, _line(same))
        equal = next((v for v in self._versions(tenant, version.workflow) if v.rank == version.rank), None)
        if equal is not None:
            return PublishResult(Published.EQUAL_RANK, _line(equal))
        made = StoredVersion(
            tenant=tenant,
            workflow=version.workflow,
            version=version.version,
            rank=version.rank,
            label=version.label,
            content_hash=version.content_hash,
            source=version.source,
            document=kept(dict(version.document)),
            created_at=self._clock.now(),
            created_by=version.created_by,
            is_default=False,
            deprecated_at=None,
        )
        self._db.versions[at] = made
        self._db.holds.pop(at, None)
        self._db.drafts.pop(at, None)
        return PublishResult(Published.CREATED, _line(made))

    async def get_version(self, tenant: str, workflow: str, version: str) -> StoredVersion | None:
        return self._db.versions.get((tenant, workflow, version))

    async def version_line(self, tenant: str, workflow: str, version: str) -> VersionLine | None:
        found = self._db.versions.get((tenant, workflow, version))
        return None if found is None else _line(found)

    async def deleted_content(self, tenant: str, workflow: str, version: str) -> str | None:
        held = self._db.holds.get((tenant, workflow, version))
        return None if held is None else held.content_hash

    async def default_version(self, tenant: str, workflow: str) -> str | None:
        versions = self._versions(tenant, workflow)
        wanted = [v for v in versions if v.is_default] or [v for v in versions if not v.label and v.deprecated_at is None]
        return wanted[0].version if wanted else None

    async def list_versions(
        self, tenant: str, workflow: str | None = None, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[VersionLine]:
        found = self._versions(tenant, workflow)
        if after is not None:
            name, rank = after[0], after[1].encode()
            found = [v for v in found if v.workflow > name or (v.workflow == name and v.rank.encode() < rank)]
        return [_line(v) for v in found[:limit]]

    async def reject_trigger(self, tenant: str, rejected: RejectedTrigger) -> None:
        check([tenant, rejected.workflow, rejected.version, rejected.actor, rejected.trace_id, rejected.code])
        self._db.rejected.append((tenant, self._clock.now(), rejected))

    async def audit(self, tenant: str, actor: str, action: str, object: str, data: Mapping[str, Any] | None = None) -> None:
        check([tenant, actor, action, object])
        self._db.journal.append((tenant, self._clock.now(), actor, action, object, None if data is None else kept(dict(data))))

    def _versions(self, tenant: str, workflow: str | None) -> list[StoredVersion]:
        """By workflow, highest first within each; two stable sorts, since only one of them runs backwards."""
        found = [v for v in self._db.versions.values() if v.tenant == tenant and workflow in (None, v.workflow)]
        return sorted(sorted(found, key=lambda v: v.rank.encode(), reverse=True), key=lambda v: v.workflow)


def _line(v: StoredVersion) -> VersionLine:
    return VersionLine(v.workflow, v.version, v.label, v.content_hash, v.created_at, v.created_by, v.is_default, v.deprecated_at)
