"""The storage of what people do with definitions: drafts, marks on versions, holds on new starts, deletion, and the list of workflows.

Every method is scoped by tenant in the query itself, and all raise StoreUnavailable. What a version means is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

#: How many instances that hang on a version are counted, and how many are named.
COUNTED, NAMED = 100, 5


class Marked(StrEnum):
    """What became of a mark."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"  # it stood there already
    UNKNOWN = "unknown"  # no such version of this tenant


class HoldKind(StrEnum):
    """Why new instances are held back."""

    PAUSED = "paused"  # somebody has paused the workflow
    DELETED = "deleted"  # the version was deleted


@dataclass(frozen=True, slots=True)
class Hold:
    """A workflow that starts nothing new: who paused it, when (seconds since 1970) and why."""

    workflow: str
    by: str
    since: float
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DraftLine:
    """A draft as lists have it: without its text, which may be large. `saved_at` in seconds since 1970."""

    workflow: str
    version: str
    errors: int
    warnings: int
    saved_by: str
    saved_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Draft(DraftLine):
    """A document that may still have mistakes, kept under the version that it is to become."""

    source: str = field(kw_only=True)
    problems: Sequence[Mapping[str, Any]] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """A workflow as it is listed.

    `version` is what a trigger takes without being told (None if every version is deprecated or labelled), `newest` the highest there is;
    `versions` and `drafts` are counted up to COUNTED.
    """

    workflow: str
    version: str | None
    newest: str
    default: str | None
    versions: int
    drafts: int
    hold: Hold | None


@dataclass(frozen=True, slots=True)
class Hanging:
    """What stands in the way of a deletion: live instances (counted up to COUNTED, some named) and whether ended ones are kept."""

    live: int = 0
    some: tuple[UUID, ...] = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Deletion:
    """The versions that are gone, or what hangs on them (then nothing is gone)."""

    versions: tuple[str, ...] = ()
    hanging: Hanging | None = None


class WorkflowStore(Protocol):
    """Drafts, marks, holds and deletion."""

    async def workflows(self, tenant: str, containing: str | None, after: str | None, limit: int) -> list[WorkflowRow]:
        """By name, those above `after` whose name has `containing` in it, small letters or large; one query."""
        ...

    async def workflow(self, tenant: str, workflow: str) -> WorkflowRow | None:
        """One of them; None if it has no published version."""
        ...

    async def mark_default(self, tenant: str, workflow: str, version: str | None) -> Marked:
        """Let triggers take this version; None takes the mark away."""
        ...

    async def mark_deprecated(self, tenant: str, workflow: str, version: str, deprecated: bool) -> Marked: ...

    async def pause(self, tenant: str, workflow: str, by: str, reason: str | None) -> Hold:
        """Hold back new starts. Once this has returned no node begins an instance of the workflow; the hold that stood before stays."""
        ...

    async def resume(self, tenant: str, workflow: str) -> Hold | None:
        """Let new starts go on; gives the hold that was taken away."""
        ...

    async def hold(self, tenant: str, workflow: str) -> Hold | None: ...

    async def hanging(self, tenant: str, workflow: str, version: str | None) -> Hanging | None:
        """What would keep a version, or all of them, from being deleted."""
        ...

    async def delete(self, tenant: str, workflow: str, version: str | None, by: str) -> Deletion:
        """Delete a version, or the whole workflow with its drafts and its hold, unless instances use it; nothing new can use it then."""
        ...

    async def keep_draft(self, tenant: str, draft: Draft) -> bool:
        """Store a draft in the place of an earlier one of the same version; whether there was none."""
        ...

    async def drafts(self, tenant: str, workflow: str, after: str | None, limit: int) -> list[DraftLine]:
        """By version as text, those above `after`."""
        ...

    async def draft(self, tenant: str, workflow: str, version: str) -> Draft | None: ...

    async def delete_draft(self, tenant: str, workflow: str, version: str) -> bool:
        """Whether there was one."""
        ...
