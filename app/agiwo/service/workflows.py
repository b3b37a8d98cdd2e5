"""The life of a workflow after it was published: marks on its versions, pause and resume of new starts, deletion.

A version itself never changes; running instances go on whatever is done here.
"""

from __future__ import annotations

from typing import Any

from agiwo.clock import rfc3339
from agiwo.errors import Conflict, NotFound
from agiwo.ports.records import Records, VersionLine
from agiwo.ports.workflows import COUNTED, Hanging, Hold, Marked, WorkflowRow, WorkflowStore
from agiwo.service.callers import AUTHOR, OPERATOR, Caller
from agiwo.service.changes import Change
from agiwo.service.definitions import Catalog, version_not_found
from agiwo.service.view import API, version_view


class Workflows:
    """The verbs on whole workflows and on their versions."""

    def __init__(self, store: WorkflowStore, records: Records, catalog: Catalog) -> None:
        self._store = store
        self._records = records
        self._catalog = catalog

    async def listed(self, caller: Caller, containing: str | None, after: str | None, limit: int) -> list[WorkflowRow]:
        """By name, those above `after`."""
        return await self._store.workflows(caller.tenant, containing, after, limit)

    async def view(self, caller: Caller, workflow: str) -> dict[str, Any]:
        """One workflow with the names of its highest versions. Raises NotFound."""
        row = await self._row(caller, workflow)
        lines = await self._catalog.versions(caller.tenant, workflow, None, COUNTED)
        return {**workflow_view(row), "versions": [line.version for line in lines]}

    async def mark_default(self, caller: Caller, workflow: str, version: str | None, change: Change) -> dict[str, Any]:
        """Let triggers that name no version take this one; None takes the mark away. Gives the workflow as it is then.

        Raises Denied for a caller who is no author, NotFound.
        """
        caller.need(AUTHOR)
        row = await self._row(caller, workflow)
        if version is not None:
            await self._catalog.line(caller.tenant, workflow, version)
        if not change.dry:
            marked = await self._store.mark_default(caller.tenant, workflow, version)
            await self._marked(caller, marked, workflow, version, "default", change, {"version": version, "before": row.default})
        return await self.view(caller, workflow)

    async def deprecate(self, caller: Caller, workflow: str, version: str, deprecated: bool, change: Change) -> dict[str, Any]:
        """Take a version out of the choice of triggers that name none, or take that back. Gives the version as it is then.

        Raises Denied for a caller who is no author, NotFound.
        """
        caller.need(AUTHOR)
        line = await self._catalog.line(caller.tenant, workflow, version)
        if change.dry:
            return version_view(line)
        marked = await self._store.mark_deprecated(caller.tenant, workflow, version, deprecated)
        await self._marked(caller, marked, workflow, version, "deprecate" if deprecated else "undeprecate", change, {})
        return version_view(await self._catalog.line(caller.tenant, workflow, version))

    async def _marked(
        self, caller: Caller, marked: Marked, workflow: str, version: str | None, action: str, change: Change, data: dict[str, Any]
    ) -> None:
        self._catalog.changed(caller.tenant, workflow)
        if marked is Marked.UNKNOWN:
            raise version_not_found(workflow, version or "")
        if marked is Marked.CHANGED:
            object = f"workflow/{workflow}" if version is None or action == "default" else f"workflow/{workflow}/{version}"
            await self._records.audit(caller.tenant, caller.principal, action, object, {**data, "reason": change.reason})

    async def pause(self, caller: Caller, workflow: str, change: Change) -> dict[str, Any]:
        """Start nothing new of a workflow: once this has returned no node does. What runs goes on. Gives the workflow as it is then.

        Raises Denied for a caller who is no operator, NotFound, Conflict (`already_paused`) if somebody else has paused it.
        """
        caller.need(OPERATOR)
        hold = (await self._row(caller, workflow)).hold
        if hold is None and not change.dry:
            hold = await self._store.pause(caller.tenant, workflow, caller.principal, change.reason)
            if hold.by == caller.principal:
                await self._records.audit(caller.tenant, caller.principal, "pause", f"workflow/{workflow}", {"reason": change.reason})
        if hold is not None and hold.by != caller.principal:
            raise paused(hold, "already_paused")
        return await self.view(caller, workflow)

    async def resume(self, caller: Caller, workflow: str, change: Change) -> dict[str, Any]:
        """Let new starts go on; resuming what is not paused changes nothing. Raises Denied for a caller who is no operator, NotFound."""
        caller.need(OPERATOR)
        await self._row(caller, workflow)
        if not change.dry and (hold := await self._store.resume(caller.tenant, workflow)) is not None:
            data = {"reason": change.reason, "paused_by": hold.by, "paused_since": rfc3339(hold.since)}
            await self._records.audit(caller.tenant, caller.principal, "resume", f"workflow/{workflow}", data)
        return await self.view(caller, workflow)

    async def delete(self, caller: Caller, workflow: str, version: str | None, change: Change) -> tuple[str, ...]:
        """Delete a version, or a workflow with all its versions and drafts; gives the versions that are gone.

        A version that any stored instance uses stays, for its instances are shown by it, and so does the default version while it has
        the mark. Raises Denied for a caller who is no author, NotFound, Conflict (`in_use`, `is_default`).
        """
        caller.need(AUTHOR)
        lines = await self._standing(caller, workflow, version)
        if version is not None and lines[0].is_default:
            raise Conflict(
                f"{version} is the default version of {workflow}: mark another one, or none, first",
                code="is_default",
                present_status="DEFAULT",
                actions=[_action("default", workflow)],
            )
        if change.dry:
            if (hanging := await self._store.hanging(caller.tenant, workflow, version)) is not None:
                raise _in_use(workflow, version, hanging)
            return tuple(line.version for line in lines)
        made = await self._store.delete(caller.tenant, workflow, version, caller.principal)
        if made.hanging is not None:
            raise _in_use(workflow, version, made.hanging)
        if not made.versions:
            raise version_not_found(workflow, version or lines[0].version)
        for gone in made.versions:
            self._catalog.forget(caller.tenant, workflow, gone)
        object = f"workflow/{workflow}" if version is None else f"workflow/{workflow}/{version}"
        data = {"reason": change.reason, "versions": {line.version: line.content_hash for line in lines if line.version in made.versions}}
        await self._records.audit(caller.tenant, caller.principal, "delete", object, data)
        return made.versions

    async def _standing(self, caller: Caller, workflow: str, version: str | None) -> list[VersionLine]:
        if version is None:
            return await self._catalog.all_versions(caller.tenant, workflow)
        return [await self._catalog.line(caller.tenant, workflow, version)]

    async def _row(self, caller: Caller, workflow: str) -> WorkflowRow:
        row = await self._store.workflow(caller.tenant, workflow)
        if row is None:
            raise NotFound(f"there is no workflow {workflow[:200]!r}", code="workflow_not_found")
        return row


def workflow_view(row: WorkflowRow) -> dict[str, Any]:
    """A workflow as lists show it."""
    here = f"{API}/workflows/{row.workflow}"
    hold = row.hold
    return {
        "workflow_id": row.workflow,
        "version": row.version,
        "newest": row.newest,
        "default": row.default,
        "version_count": row.versions,
        "draft_count": row.drafts,
        "paused": None if hold is None else {"by": hold.by, "since": rfc3339(hold.since), "reason": hold.reason},
        "actions": [_action(verb, row.workflow) for verb in (("trigger", "pause") if hold is None else ("resume",))],
        "links": {
            "self": here,
            "versions": f"{here}/versions",
            "drafts": f"{here}/drafts",
            "graph": f"{here}/graph",
            "trigger": f"{here}/trigger",
        },
    }


def paused(hold: Hold, code: str = "workflow_paused") -> Conflict:
    """What whoever starts an instance of a paused workflow is told."""
    why = f": {hold.reason}" if hold.reason else ""
    return Conflict(
        f"{hold.workflow} is paused by {hold.by} since {rfc3339(hold.since)}{why}",
        code=code,
        present_status="PAUSED",
        paused_by=hold.by,
        paused_since=rfc3339(hold.since),
        reason=hold.reason,
        actions=[_action("resume", hold.workflow)],
    )


def _in_use(workflow: str, version: str | None, hanging: Hanging) -> Conflict:
    what = workflow if version is None else f"version {version} of {workflow}"
    more = "or more " if hanging.live >= COUNTED else ""
    live = f"{hanging.live} {more}live instance{'' if hanging.live == 1 else 's'}"
    why = live if hanging.live else "ended instances, which are shown by it"
    return Conflict(
        f"{what} cannot be deleted: it is used by {why}; deprecate it to keep it from new starts",
        code="in_use",
        present_status="IN_USE",
        live=hanging.live,
        instances=[str(id) for id in hanging.some],
        ended=hanging.ended,
        actions=[_action("deprecate", workflow), _action("pause", workflow)],
    )


def _action(verb: str, workflow: str) -> dict[str, Any]:
    return {"name": verb, "method": "POST", "href": f"{API}/workflows/{workflow}/{verb}"}
