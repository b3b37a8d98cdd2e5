"""The services' writes on Postgres: inbox, decisions, versions, journal; each one transaction, each bound to its tenant.

Lists for people stand in `queries`; nothing here touches an instance but through its inbox.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import Float, Row, Select, cast, delete, extract, insert, or_, select, tuple_
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.clock import Clock, SystemClock
from agiwo.ids import uuid7
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
from agiwo.ports.store import StoreUnavailable
from agiwo.store.pool import connected
from agiwo.store.schema import audit, rejected_trigger, start_hold, workflow_draft, workflow_version
from agiwo.store.statements import STATEMENTS
from agiwo.values import decode, encode

#: Tries of something that others' locks, or an instance that changes at this moment, stood in the way of.
TRIES = 10

_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

_v, _s, _d = workflow_version.c, start_hold.c, workflow_draft.c
_CREATED = cast(extract("epoch", _v.created_at), Float).label("created_at")
_DEPRECATED = cast(extract("epoch", _v.deprecated_at), Float).label("deprecated_at")
_LINE = (_v.workflow, _v.version, _v.label, _v.content_hash, _CREATED, _v.created_by, _v.is_default, _DEPRECATED)


class PostgresRecords:
    """Records on a pool made by `service_engine`; `clock` times the ids of journal rows."""

    def __init__(self, engine: AsyncEngine, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()

    async def put_inbox(self, instance: UUID, tenant: str, kind: str, body: Mapping[str, Any], dedup: str | None = None) -> Posted:
        text = encode(dict(body))
        for _ in range(TRIES):
            try:
                if await self._ask("put_inbox_and_wake", tenant, instance, kind, text, dedup):
                    return Posted.ACCEPTED
            except asyncpg.UniqueViolationError:
                return Posted.DUPLICATE
            found = await self._ask("look_for_inbox", tenant, instance, dedup)
            if not found:
                return Posted.UNKNOWN
            if found[0].known:
                return Posted.DUPLICATE
            if found[0].ended:
                return Posted.ENDED
        raise StoreUnavailable(f"the inbox could not be reached in {TRIES} tries")

    async def posted(self, tenant: str, instance: UUID, dedup: str) -> Mapping[str, Any] | None:
        found = await self._ask("get_posted", tenant, instance, dedup)
        if not found:
            return None
        body: Mapping[str, Any] = decode(found[0].body)
        return body

    async def count_inbox(self, tenant: str, instance: UUID, kind: str, most: int, *, waiting: bool = False) -> int:
        found: int = (await self._ask("count_inbox", tenant, instance, kind, most, waiting))[0].found
        return found

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
        text = None if answer is None else encode(answer)
        for _ in range(TRIES):
            counted = await self._ask("decide_approval_if_open", tenant, approval, action, by, channel, digest, comment, text)
            rows = await self._ask("get_approval", tenant, approval)
            stands = _stored(rows[0]) if rows else None
            if counted:
                return DecisionResult(DecisionAnswer.DECIDED, stands)
            verdict = _refusal(rows[0], action, by, text, digest) if rows else DecisionAnswer.UNKNOWN
            if verdict is not None:
                return DecisionResult(verdict, stands)
        raise StoreUnavailable(f"the approval could not be decided in {TRIES} tries")

    async def get_approval(self, tenant: str, approval: UUID) -> StoredApproval | None:
        rows = await self._ask("get_approval", tenant, approval)
        return _stored(rows[0]) if rows else None

    async def promise(self, tenant: str, key: str) -> Promise | None:
        rows = await self._ask("get_promise", tenant, key)
        return Promise(rows[0].instance_id, rows[0].request_digest) if rows else None

    async def publish_version(self, tenant: str, version: NewVersion) -> PublishResult:
        statement = (
            pg_insert(workflow_version)
            .values(
                tenant=tenant,
                workflow=version.workflow,
                version=version.version,
                rank=version.rank,
                label=version.label,
                content_hash=version.content_hash,
                source=version.source,
                document=dict(version.document),
                created_by=version.created_by,
            )
            .on_conflict_do_nothing()
            .returning(*_LINE)
        )
        here = select(*_LINE).where(_v.tenant == tenant, _v.workflow == version.workflow)
        this = (tenant, version.workflow, version.version)
        async with connected(self._engine) as connection:
            gone = (await connection.execute(_deleted(*this))).scalar()
            if gone not in (None, version.content_hash):
                return PublishResult(Published.DELETED)
            made = (await connection.execute(statement)).first()
            if gone is not None:
                await connection.execute(delete(start_hold).where(tuple_(_s.tenant, _s.workflow, _s.version) == this))
            if made is not None:
                await connection.execute(delete(workflow_draft).where(tuple_(_d.tenant, _d.workflow, _d.version) == this))
                return PublishResult(Published.CREATED, _line(made))
            same = (await connection.execute(here.where(_v.version == version.version))).first()
            if same is not None:
                unchanged = same.content_hash == version.content_hash
                return PublishResult(Published.UNCHANGED if unchanged else Published.CONFLICT, _line(same))
            equal = (await connection.execute(here.where(_v.rank == version.rank))).first()
            return PublishResult(Published.EQUAL_RANK, _line(equal) if equal is not None else None)

    async def get_version(self, tenant: str, workflow: str, version: str) -> StoredVersion | None:
        statement = select(*_LINE, _v.tenant, _v.rank, _v.source, _v.document).where(
            _v.tenant == tenant, _v.workflow == workflow, _v.version == version
        )
        async with connected(self._engine) as connection:
            row = (await connection.execute(statement)).first()
        return None if row is None else StoredVersion(**row._mapping)

    async def version_line(self, tenant: str, workflow: str, version: str) -> VersionLine | None:
        statement = select(*_LINE).where(_v.tenant == tenant, _v.workflow == workflow, _v.version == version)
        async with connected(self._engine) as connection:
            row = (await connection.execute(statement)).first()
        return None if row is None else _line(row)

    async def deleted_content(self, tenant: str, workflow: str, version: str) -> str | None:
        async with connected(self._engine) as connection:
            found: str | None = (await connection.execute(_deleted(tenant, workflow, version))).scalar()
            return found

    async def default_version(self, tenant: str, workflow: str) -> str | None:
        statement = (
            select(_v.version)
            .where(_v.tenant == tenant, _v.workflow == workflow)
            .where(or_(_v.is_default, (_v.label == "") & _v.deprecated_at.is_(None)))
            .order_by(_v.is_default.desc(), _v.rank.desc())
            .limit(1)
        )
        async with connected(self._engine) as connection:
            found: str | None = (await connection.execute(statement)).scalar()
            return found

    async def list_versions(
        self, tenant: str, workflow: str | None = None, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[VersionLine]:
        statement = select(*_LINE).where(_v.tenant == tenant).order_by(_v.workflow, _v.rank.desc()).limit(limit)
        if workflow is not None:
            statement = statement.where(_v.workflow == workflow)
        if after is not None:
            statement = statement.where(or_(_v.workflow > after[0], (_v.workflow == after[0]) & (_v.rank < after[1])))
        async with connected(self._engine) as connection:
            return [_line(row) for row in await connection.execute(statement)]

    async def reject_trigger(self, tenant: str, rejected: RejectedTrigger) -> None:
        statement = insert(rejected_trigger).values(
            tenant=tenant,
            id=self._new_id(),
            workflow=rejected.workflow,
            version=rejected.version,
            actor=rejected.actor,
            trace_id=rejected.trace_id,
            code=rejected.code,
            problems=[dict(problem) for problem in rejected.problems],
        )
        async with connected(self._engine) as connection:
            await connection.execute(statement)

    async def audit(self, tenant: str, actor: str, action: str, object: str, data: Mapping[str, Any] | None = None) -> None:
        statement = insert(audit).values(
            tenant=tenant, id=self._new_id(), actor=actor, action=action, object=object, data=None if data is None else dict(data)
        )
        async with connected(self._engine) as connection:
            await connection.execute(statement)

    def _new_id(self) -> UUID:
        return uuid7(self._clock.now(), secrets.randbits(66), secrets.randbits(8))

    async def _ask(self, name: str, *values: Any) -> list[Row[Any]]:
        """Run a named statement, again if it clashed with others' locks. Raises UniqueViolationError as the driver has it."""
        for _ in range(TRIES):
            async with connected(self._engine) as connection:
                try:
                    return list((await connection.exec_driver_sql(STATEMENTS[name].text, values)).all())
                except DBAPIError as exc:
                    cause = getattr(exc.orig, "__cause__", None)
                    if isinstance(cause, asyncpg.UniqueViolationError):
                        raise cause from None
                    if not isinstance(cause, _AGAIN):
                        raise
        raise StoreUnavailable(f"others were in the way of {name} {TRIES} times")


def _refusal(row: Row[Any], action: str, by: str, answer: str | None, digest: str) -> DecisionAnswer | None:
    """Why a decision did not count; None if nothing stands in its way any more."""
    if row.state in ("approved", "rejected"):
        first = (row.state == "approved", row.decided_by, row.answer)
        return DecisionAnswer.REPEATED if first == (action == "approve", by, answer) else DecisionAnswer.CONFLICT
    if row.state == "expired":
        return DecisionAnswer.EXPIRED
    if row.state != "pending" or not row.live:
        return DecisionAnswer.GONE
    if row.digest != digest:
        return DecisionAnswer.CHANGED
    return DecisionAnswer.EXPIRED if row.expired else None


def _stored(row: Row[Any]) -> StoredApproval:
    return StoredApproval(
        id=row.id,
        instance_id=row.instance_id,
        tenant=row.tenant,
        path=row.path,
        step=row.step,
        digest=row.digest,
        title=row.title,
        body=decode(row.body),
        approvers=tuple(row.approvers),
        state=row.state,
        asked_at=row.asked_at,
        expires_at=row.expires_at,
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        channel=row.channel,
        comment=row.comment,
        answer=None if row.answer is None else decode(row.answer),
    )


def _deleted(tenant: str, workflow: str, version: str) -> Select[Any]:
    return select(_s.content_hash).where(_s.tenant == tenant, _s.workflow == workflow, _s.version == version, _s.kind == "deleted")


def _line(row: Any) -> VersionLine:
    return VersionLine(
        workflow=row.workflow,
        version=row.version,
        label=row.label,
        content_hash=row.content_hash,
        created_at=row.created_at,
        created_by=row.created_by,
        is_default=row.is_default,
        deprecated_at=row.deprecated_at,
    )
