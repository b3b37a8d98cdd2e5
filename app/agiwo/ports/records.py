"""The services' side of the storage: what is put to instances from outside, decisions, published versions, and the journal.

Every method is scoped by tenant in the query itself: another tenant's things look as if they did not exist. All raise StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID


class Posted(StrEnum):
    """What became of something put into an inbox."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # something of that `dedup` name was already accepted for this instance
    ENDED = "ended"  # the instance is over
    UNKNOWN = "unknown"  # no such instance of this tenant


class DecisionAnswer(StrEnum):
    """What became of a person's decision."""

    DECIDED = "decided"
    REPEATED = "repeated"  # the same person decided the same before; `approval` is as it was decided then
    CONFLICT = "conflict"  # somebody decided otherwise, or somebody else was first
    EXPIRED = "expired"  # too late
    GONE = "gone"  # cancelled or void: nobody waits for it any more
    CHANGED = "changed"  # the digest is another one than the caller saw
    UNKNOWN = "unknown"  # no such approval of this tenant


@dataclass(frozen=True, slots=True)
class StoredApproval:
    """A question to people as it stands; times in seconds since 1970.

    `state` is pending, approved, rejected, expired, cancelled or void.
    """

    id: UUID
    instance_id: UUID
    tenant: str
    path: str
    step: str
    digest: str
    title: str
    body: Mapping[str, Any]
    approvers: tuple[str, ...]
    state: str
    asked_at: float
    expires_at: float
    decided_by: str | None = None
    decided_at: float | None = None
    channel: str | None = None
    comment: str | None = None
    answer: Any = None


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """The answer, and the approval as it stands now (None if unknown)."""

    answer: DecisionAnswer
    approval: StoredApproval | None = None


class Published(StrEnum):
    """What became of a version that was uploaded."""

    CREATED = "created"
    UNCHANGED = "unchanged"  # the same content stands there already
    CONFLICT = "conflict"  # other content stands under this version
    EQUAL_RANK = "equal_rank"  # another spelling of the same version (1.0 and 1.00) stands there
    DELETED = "deleted"  # a version of this name with other content was deleted


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version to publish. `rank` is text that sorts, byte by byte, as versions compare and is equal for equal rank;
    `label` is what follows a dash in the version, "" if nothing does. `source` is the text as written, `document` the compiled one."""

    workflow: str
    version: str
    rank: str
    label: str
    content_hash: str
    source: str
    document: Mapping[str, Any]
    created_by: str | None = None


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A published version; `created_at` and `deprecated_at` in seconds since 1970."""

    tenant: str
    workflow: str
    version: str
    rank: str
    label: str
    content_hash: str
    source: str
    document: Mapping[str, Any]
    created_at: float
    created_by: str | None
    is_default: bool
    deprecated_at: float | None


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A published version as a list shows it, without its text."""

    workflow: str
    version: str
    label: str
    content_hash: str
    created_at: float
    created_by: str | None
    is_default: bool
    deprecated_at: float | None


@dataclass(frozen=True, slots=True)
class PublishResult:
    """`existing` is the version in the way, or the one that is there already."""

    answer: Published
    existing: VersionLine | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """Which instance a trigger's key has started, and the digest of that trigger."""

    instance_id: UUID
    request_digest: str


@dataclass(frozen=True, slots=True)
class RejectedTrigger:
    """A trigger that started nothing, and why."""

    workflow: str
    code: str
    problems: Sequence[Mapping[str, Any]]
    version: str | None = None
    actor: str | None = None
    trace_id: str | None = None


class Records(Protocol):
    """What services write, and the reads that those writes need."""

    async def put_inbox(self, instance: UUID, tenant: str, kind: str, body: Mapping[str, Any], dedup: str | None = None) -> Posted:
        """Store something for an instance and wake it, in one transaction. `dedup` names it, so that a repetition changes nothing."""
        ...

    async def posted(self, tenant: str, instance: UUID, dedup: str) -> Mapping[str, Any] | None:
        """What was put into a live instance's inbox under this name, whether it was taken up yet or not; None if nothing was."""
        ...

    async def count_inbox(self, tenant: str, instance: UUID, kind: str, most: int, *, waiting: bool = False) -> int:
        """How much of a kind was ever put into an inbox under a name, or (`waiting`) is still to be taken up; counts to `most`."""
        ...

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
        """Decide a pending approval: its row, an inbox item of kind `decision` and the wake-up, in one transaction; exactly one counts.

        `action` is approve or reject. The inbox body holds approval, path, action, by, channel, comment and answer.
        """
        ...

    async def get_approval(self, tenant: str, approval: UUID) -> StoredApproval | None: ...

    async def promise(self, tenant: str, key: str) -> Promise | None:
        """What a trigger's key stands for, None if for nothing (any more)."""
        ...

    async def publish_version(self, tenant: str, version: NewVersion) -> PublishResult:
        """Keep a version for ever. Of two parallel uploads one creates; the other gets unchanged or conflict.

        The name of a deleted version is taken again by the same content alone. A draft under this name is done with.
        """
        ...

    async def get_version(self, tenant: str, workflow: str, version: str) -> StoredVersion | None: ...

    async def version_line(self, tenant: str, workflow: str, version: str) -> VersionLine | None: ...

    async def deleted_content(self, tenant: str, workflow: str, version: str) -> str | None:
        """The content hash of a version that was deleted; None if no such one was."""
        ...

    async def default_version(self, tenant: str, workflow: str) -> str | None:
        """The version marked default, else the highest that is neither deprecated nor labelled; None if there is none."""
        ...

    async def list_versions(
        self, tenant: str, workflow: str | None = None, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[VersionLine]:
        """Versions by workflow, highest first within each; those after the (workflow, rank) of the last line of the page before."""
        ...

    async def reject_trigger(self, tenant: str, rejected: RejectedTrigger) -> None:
        """Note a trigger that was refused."""
        ...

    async def audit(self, tenant: str, actor: str, action: str, object: str, data: Mapping[str, Any] | None = None) -> None:
        """Note who did what to what."""
        ...
