"""A folder of definitions, taken as it is and again whenever a file in it changes: what was saved last is what triggers take.

It publishes through the same verbs as everybody; a version never changes, so other content under one gets a name beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from agiwo.cli.dev.changes import Marks, changed, differing, marks
from agiwo.cli.dev.versions import dev_number, next_name, renamed, standing
from agiwo.cli.screen import problem_lines
from agiwo.definition import content_hash
from agiwo.definition.versions import version_key
from agiwo.errors import AgiwoError, Conflict, NotFound, ServiceError
from agiwo.service.callers import AUTHOR, Caller
from agiwo.service.changes import Change
from agiwo.service.services import Services
from agiwo.wiring.folder import definitions_in

#: Names of deleted versions that are passed by until a free one is found.
_PASSED_BY = 100


class DevFolder:
    """The definitions of one folder; `tell` gets a line for each thing that was done or that is wrong."""

    def __init__(self, services: Services, folder: Path, tenant: str, tell: Callable[[str], None]) -> None:
        self._services = services
        self._folder = folder
        self._caller = Caller(tenant, "key:dev", frozenset({AUTHOR}))
        self._tell = tell
        self._marks: Marks = {}
        #: What each file says it is, and the version under which its last good content stands.
        self._said: dict[Path, tuple[str, str]] = {}
        self._stands: dict[Path, str] = {}

    async def begin(self) -> None:
        """Take every file. Raises nothing for a file that is wrong."""
        self._marks = self._look()
        for path in self._marks:
            await self._take(path, first=True)
        count = len(self._marks)
        self._tell(f"watches {self._folder} with {count} definition{'' if count == 1 else 's'}")

    async def follow(self) -> None:
        """Take what changes, for ever."""
        while True:
            now = await changed(self._look, self._marks)
            before, self._marks = self._marks, now
            for path in differing(before, now):
                if path not in now:
                    self._gone(path)
            for path in differing(before, now):
                if path in now:
                    await self._take(path, first=False)

    def _look(self) -> Marks:
        try:
            return marks(definitions_in(self._folder))
        except OSError:
            return {}

    def _gone(self, path: Path) -> None:
        self._said.pop(path, None)
        stands = self._stands.pop(path, None)
        self._tell(f"{path}: is gone" + (f"; {stands} stays as it is" if stands else ""))

    async def _take(self, path: Path, first: bool) -> None:
        try:
            await self._taken(path, await asyncio.to_thread(path.read_bytes), first)
        except ServiceError as exc:
            self._refused(path, [f"{path}: error: {exc.message}", *problem_lines((p.to_json() for p in exc.problems), str(path))])
        except (AgiwoError, OSError) as exc:
            self._refused(path, [f"{path}: error: {exc}"])

    def _refused(self, path: Path, lines: list[str]) -> None:
        for line in lines:
            self._tell(line)
        if path in self._stands:
            self._tell(f"{path}: {self._stands[path]} stays what it was")

    async def _taken(self, path: Path, text: bytes, first: bool) -> None:
        services, tenant = self._services, self._caller.tenant
        examined = await services.publishing.validate(text, tenant)
        workflow, document = examined.checked.workflow, examined.checked.document
        lines = problem_lines((p.to_json() for p in examined.checked.problems), str(path))
        if workflow is None or not isinstance(document, dict):
            self._refused(path, lines)
            return
        id, version = workflow.id, workflow.version
        other = next((name for name, said in self._said.items() if said == (id, version) and name != path), None)
        if other is not None:
            self._refused(path, [f"{path}: error: {id} {version} is in {other} already; one of them needs another id or version"])
            return
        self._said[path] = (id, version)
        try:
            there = {line.version: line.content_hash for line in await services.catalog.all_versions(tenant, id)}
        except NotFound:
            there = {}
        stands = standing(document, there)
        new = stands is None
        if stands is None:
            for line in lines:
                self._tell(line)
            stands = await self._published(text, version, content_hash(document), there)
        before = self._stands.get(path)
        self._stands[path] = f"{id} {stands}"
        marked = await self._marked(id, version, stands, path, new=new, first=first)
        if new or marked or (not first and before != self._stands[path]):
            what = "is published" if new else "stands already"
            told = f"{path}: {id} {stands} {what}" if stands == version else f"{path}: {id} {version} has changed: {id} {stands} {what}"
            self._tell(told + (", and triggers take it" if marked else ""))

    async def _published(self, text: bytes, version: str, hash: str, there: dict[str, str]) -> str:
        """Publish under its own version if that is free, else under the next name beside it; gives that version. Raises ServiceError."""
        taken = dict(there)
        for _ in range(_PASSED_BY):
            name = version if version not in taken else next_name(version, taken)
            try:
                await self._services.publishing.publish(self._caller, text if name == version else renamed(text, name))
            except Conflict as exc:
                if exc.code != "version_deleted":
                    raise
                taken[name] = hash
            else:
                return name
        raise Conflict(f"the next {_PASSED_BY} names for version {version} were all deleted: give it a new version", code="version_deleted")

    async def _marked(self, id: str, version: str, stands: str, path: Path, *, new: bool, first: bool) -> bool:
        """Let triggers take this version if it was saved after the one that they take; says whether it did."""
        view = await self._services.workflows.view(self._caller, id)
        if view["version"] == stands or (first and not _saved_since(version, stands, view["default"], new)):
            return False
        await self._services.workflows.mark_default(self._caller, id, stands, Change(f"agiwo dev: {path.name} was saved"[:500]))
        return True


def _saved_since(version: str, stands: str, default: str | None, new: bool) -> bool:
    """Whether a file seen for the first time was saved after the version that is marked; without a mark the highest counts."""
    if stands != version:
        return new
    if default is None:
        return False
    return dev_number(version, default) is not None or (new and version_key(version) > version_key(default))
