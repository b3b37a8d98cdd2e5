"""Drafts: documents that are stored with all their mistakes, replaced at will, and never started.

Publishing one means sending it without `draft`; nothing here judges a document otherwise than publishing does.
"""

from __future__ import annotations

import re
from typing import Any

from agiwo.definition.model import WORKFLOW_ID
from agiwo.definition.versions import MAX_LENGTH, VERSION
from agiwo.errors import Conflict, InvalidInput, NotFound, Problem
from agiwo.ports.records import Records
from agiwo.ports.workflows import Draft, DraftLine, WorkflowStore
from agiwo.service.callers import AUTHOR, Caller
from agiwo.service.changes import Change
from agiwo.service.definitions import Catalog
from agiwo.service.publish import Examined, Publishing
from agiwo.service.view import API, time_text


class Drafts:
    """The verbs on drafts."""

    def __init__(self, store: WorkflowStore, records: Records, catalog: Catalog, publishing: Publishing) -> None:
        self._store = store
        self._records = records
        self._catalog = catalog
        self._publishing = publishing

    async def save(self, caller: Caller, text: bytes, change: Change) -> tuple[Examined, Draft, bool]:
        """Judge a document and store it with what is wrong with it; gives it, and whether there was no draft of that version before.

        Raises Denied for a caller who is no author, InvalidInput (`draft_unnamed`) for a document without a usable id and version, Conflict
        (`version_exists`) for a version that is published.
        """
        caller.need(AUTHOR)
        examined = await self._publishing.validate(text, caller.tenant)
        shown = examined.to_json()
        workflow, version = _named(shown["workflow_id"], WORKFLOW_ID, 128), _named(shown["version"], VERSION.pattern, MAX_LENGTH)
        if workflow is None or version is None:
            missing = Problem("missing_key", "a draft is kept under its id and its version; one of them is missing or wrong", "")
            raise InvalidInput(
                "a draft needs a usable `id` and `version`", code="draft_unnamed", problems=(missing, *examined.checked.problems)
            )
        if await self._records.version_line(caller.tenant, workflow, version) is not None:
            raise Conflict(
                f"version {version} of {workflow} is published and never changes: draft another one",
                code="version_exists",
                present_status="PUBLISHED",
                actions=[],
            )
        errors, warnings = len(examined.checked.errors), len(examined.checked.warnings)
        draft = Draft(workflow, version, errors, warnings, caller.principal, source=examined.source, problems=shown["problems"])
        if change.dry:
            return examined, draft, await self._store.draft(caller.tenant, workflow, version) is None
        new = await self._store.keep_draft(caller.tenant, draft)
        data = {"reason": change.reason, "errors": errors, "warnings": warnings}
        await self._records.audit(caller.tenant, caller.principal, "draft.save", _object(workflow, version), data)
        return examined, draft, new

    async def listed(self, caller: Caller, workflow: str, after: str | None, limit: int) -> list[DraftLine]:
        """By version as text. Raises NotFound if neither a draft nor a version of this workflow was ever stored."""
        found = await self._store.drafts(caller.tenant, workflow, after, limit)
        if not found and after is None and await self._store.workflow(caller.tenant, workflow) is None:
            raise NotFound(f"there is no workflow {workflow[:128]!r}", code="workflow_not_found")
        return found

    async def get(self, caller: Caller, workflow: str, version: str) -> Draft:
        """Raises NotFound."""
        draft = await self._store.draft(caller.tenant, workflow, version)
        if draft is None:
            raise _not_found(workflow, version)
        return draft

    async def delete(self, caller: Caller, workflow: str, version: str, change: Change) -> None:
        """Raises Denied for a caller who is no author, NotFound."""
        caller.need(AUTHOR)
        if change.dry:
            await self.get(caller, workflow, version)
            return
        if not await self._store.delete_draft(caller.tenant, workflow, version):
            raise _not_found(workflow, version)
        await self._records.audit(caller.tenant, caller.principal, "draft.delete", _object(workflow, version), {"reason": change.reason})


def draft_view(draft: DraftLine) -> dict[str, Any]:
    """A draft as lists show it."""
    here = f"{API}/workflows/{draft.workflow}/drafts/{draft.version}"
    return {
        "workflow_id": draft.workflow,
        "version": draft.version,
        "errors": draft.errors,
        "warnings": draft.warnings,
        "saved_by": draft.saved_by,
        "saved_at": time_text(draft.saved_at),
        "links": {"self": here, "source": f"{here}?format=yaml"},
    }


def whole_draft_view(draft: Draft) -> dict[str, Any]:
    """A draft with its text and what is wrong with it."""
    return {**draft_view(draft), "problems": [dict(problem) for problem in draft.problems], "source": draft.source}


def _named(text: Any, pattern: str, longest: int) -> str | None:
    return text if isinstance(text, str) and len(text) <= longest and re.fullmatch(pattern, text) else None


def _object(workflow: str, version: str) -> str:
    return f"workflow/{workflow}/drafts/{version}"


def _not_found(workflow: str, version: str) -> NotFound:
    return NotFound(f"there is no draft {version[:100]!r} of a workflow {workflow[:200]!r}", code="draft_not_found")
