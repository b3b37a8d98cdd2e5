"""Published definitions, compiled and cached: a version never changes, so what was compiled once serves for ever.

Which version a trigger takes is remembered for a moment only, since other processes publish too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping

from agiwo.clock import Clock
from agiwo.definition import compile_workflow
from agiwo.definition.compiled import Workflow
from agiwo.definition.contract import ToolContract
from agiwo.errors import NotFound
from agiwo.ports.records import Records, StoredVersion, VersionLine
from agiwo.service.beside import beside
from agiwo.service.ranks import rank

_PAGE = 500

Key = tuple[str, str, str]


class Catalog:
    """Fulfils agiwo.ports.definitions.Definitions.

    `tools` gives the contracts by name; `most` is how many compiled versions are kept; `fresh` the seconds for which this process may still
    take a version as it stood before another process published, marked or deleted one (what it does itself counts at once).
    """

    def __init__(
        self, records: Records, tools: Callable[[], Mapping[str, ToolContract]], clock: Clock, *, most: int = 2000, fresh: float = 1.0
    ) -> None:
        self._records = records
        self._tools = tools
        self._clock = clock
        self._most = most
        self._fresh = fresh
        self._compiled: OrderedDict[Key, Workflow] = OrderedDict()
        self._newest: dict[tuple[str, str], tuple[str, float]] = {}
        self._lines: dict[Key, tuple[VersionLine, float]] = {}
        self._compiling: dict[Key, asyncio.Lock] = {}
        self._changes = 0
        self._asking: dict[tuple[str, str], asyncio.Lock] = {}

    async def get(self, tenant: str, workflow: str, version: str) -> Workflow:
        """Raises NotFound if it was never published."""
        key = (tenant, workflow, version)
        found = self._compiled.get(key)
        if found is not None:
            self._compiled.move_to_end(key)
            return found
        # One at a time: many instances of one version that are taken over together must not compile it many times.
        try:
            async with self._compiling.setdefault(key, asyncio.Lock()):
                found = self._compiled.get(key)
                if found is None:
                    stored = await self.stored(tenant, workflow, version)
                    found = await beside(compile_workflow, stored.document, self._tools())
                    self.keep(tenant, found)
                return found
        finally:
            self._compiling.pop(key, None)

    def keep(self, tenant: str, workflow: Workflow) -> None:
        """Remember a compiled version."""
        self._compiled[(tenant, workflow.id, workflow.version)] = workflow
        while len(self._compiled) > self._most:
            self._compiled.popitem(last=False)

    async def newest(self, tenant: str, workflow: str) -> Workflow:
        """The version that a trigger takes without being told: the default, else the highest without a label that is not deprecated.

        Raises NotFound.
        """
        key = (tenant, workflow)
        version = self._fresh_newest(key)
        if version is None:
            # One asks for all that wait: a storm of triggers must not become a storm of questions.
            try:
                async with self._asking.setdefault(key, asyncio.Lock()):
                    version = self._fresh_newest(key)
                    if version is None:
                        asked, changes = self._clock.monotonic(), self._changes
                        version = await self._records.default_version(tenant, workflow)
                        if version is not None and changes == self._changes:
                            self._newest[key] = (version, asked + self._fresh)
            finally:
                self._asking.pop(key, None)
        if version is None:
            self._newest.pop(key, None)
            raise await self._explanation(tenant, workflow)
        return await self.get(tenant, workflow, version)

    def _fresh_newest(self, key: tuple[str, str]) -> str | None:
        known = self._newest.get(key)
        return known[0] if known is not None and known[1] > self._clock.monotonic() else None

    async def _explanation(self, tenant: str, workflow: str) -> NotFound:
        if await self._records.list_versions(tenant, workflow, limit=1):
            return NotFound(
                f"every version of {workflow!r} has a label or is deprecated; name the one that you want", code="no_default_version"
            )
        return NotFound(f"there is no workflow {workflow[:200]!r}", code="workflow_not_found")

    def changed(self, tenant: str, workflow: str) -> None:
        """A version was published, marked or deleted here: what a trigger takes may be another one now."""
        self._changes += 1
        self._newest.pop((tenant, workflow), None)
        for key in [key for key in self._lines if key[:2] == (tenant, workflow)]:
            del self._lines[key]

    def forget(self, tenant: str, workflow: str, version: str) -> None:
        """A version was deleted, here or by another process."""
        self.changed(tenant, workflow)
        self._compiled.pop((tenant, workflow, version), None)

    async def line(self, tenant: str, workflow: str, version: str) -> VersionLine:
        """A version with its marks, as it is this very moment. Raises NotFound."""
        line = await self._records.version_line(tenant, workflow, version)
        if line is None:
            raise version_not_found(workflow, version)
        return line

    async def known_line(self, tenant: str, workflow: str, version: str) -> VersionLine:
        """A version with its marks as they were within the last moment. Raises NotFound."""
        key = (tenant, workflow, version)
        known = self._lines.get(key)
        if known is not None and known[1] > self._clock.monotonic():
            return known[0]
        asked, changes = self._clock.monotonic(), self._changes
        line = await self.line(tenant, workflow, version)
        if changes == self._changes:
            self._lines[key] = (line, asked + self._fresh)
            while len(self._lines) > self._most:
                del self._lines[next(iter(self._lines))]
        return line

    async def standing(self, tenant: str, workflow: str, version: str | None) -> Workflow:
        """The version that is named, or the one that a trigger takes, for showing it. Raises NotFound, for a deleted one too."""
        if version is None:
            return await self.newest(tenant, workflow)
        await self.line(tenant, workflow, version)
        return await self.get(tenant, workflow, version)

    async def stored(self, tenant: str, workflow: str, version: str) -> StoredVersion:
        """A version with its text as it was sent. Raises NotFound."""
        stored = await self._records.get_version(tenant, workflow, version)
        if stored is None:
            raise version_not_found(workflow, version)
        return stored

    async def versions(self, tenant: str, workflow: str, after: str | None, limit: int) -> list[VersionLine]:
        """A page of the versions below `after`, the highest first. Raises NotFound if there is none at all."""
        place = None if after is None else (workflow, rank(after))
        lines = await self._records.list_versions(tenant, workflow, after=place, limit=limit)
        if not lines and after is None:
            raise NotFound(f"there is no workflow {workflow[:200]!r}", code="workflow_not_found")
        return lines

    async def all_versions(self, tenant: str, workflow: str) -> list[VersionLine]:
        """All versions, the highest first. Raises NotFound if there is none."""
        lines = page = await self.versions(tenant, workflow, None, _PAGE)
        while len(page) == _PAGE:
            page = await self.versions(tenant, workflow, page[-1].version, _PAGE)
            lines = [*lines, *page]
        return lines


def version_not_found(workflow: str, version: str) -> NotFound:
    return NotFound(f"there is no version {version[:100]!r} of a workflow {workflow[:200]!r}", code="version_not_found")
