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

Key = tuple[str, str, str]


class Catalog:
    """Fulfils agiwo.ports.definitions.Definitions.

    `tools` gives the contracts by name; `most` is how many compiled versions are kept; `fresh` the seconds for which this process may still
    take the version that was newest before another process published one (its own publishing counts at once).
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
        async with self._compiling.setdefault(key, asyncio.Lock()):
            found = self._compiled.get(key)
            if found is None:
                stored = await self.stored(tenant, workflow, version)
                found = await beside(compile_workflow, stored.document, self._tools())
                self.keep(tenant, found)
        self._compiling.pop(key, None)
        return found

    def keep(self, tenant: str, workflow: Workflow) -> None:
        """Remember a compiled version."""
        self._compiled[(tenant, workflow.id, workflow.version)] = workflow
        while len(self._compiled) > self._most:
            self._compiled.popitem(last=False)

    async def newest_version(self, tenant: str, workflow: str) -> str | None:
        """The version that a trigger takes without being told, as it is this very moment; None if there is none."""
        return await self._records.default_version(tenant, workflow)

    async def newest(self, tenant: str, workflow: str) -> Workflow:
        """The version that a trigger takes without being told: the default, else the highest without a label that is not deprecated.

        Raises NotFound.
        """
        key = (tenant, workflow)
        version = self._fresh_newest(key)
        if version is None:
            # One asks for all that wait: a storm of triggers must not become a storm of questions.
            async with self._asking.setdefault(key, asyncio.Lock()):
                version = self._fresh_newest(key)
                if version is None:
                    asked, changes = self._clock.monotonic(), self._changes
                    version = await self._records.default_version(tenant, workflow)
                    if version is not None and changes == self._changes:
                        self._newest[key] = (version, asked + self._fresh)
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

    def published(self, tenant: str, workflow: str) -> None:
        """A version was published: what was the newest may be so no more."""
        self._changes += 1
        self._newest.pop((tenant, workflow), None)

    async def stored(self, tenant: str, workflow: str, version: str) -> StoredVersion:
        """A version with its text as it was sent. Raises NotFound."""
        stored = await self._records.get_version(tenant, workflow, version)
        if stored is None:
            raise NotFound(f"there is no version {version[:100]!r} of a workflow {workflow[:200]!r}", code="version_not_found")
        return stored

    async def versions(self, tenant: str, workflow: str) -> list[VersionLine]:
        """All versions, the highest first. Raises NotFound if there is none."""
        lines: list[VersionLine] = []
        while True:
            after = (lines[-1].workflow, lines[-1].version) if lines else None
            page = await self._records.list_versions(tenant, workflow, after=after, limit=500)
            lines += page
            if len(page) < 500:
                break
        if not lines:
            raise NotFound(f"there is no workflow {workflow[:200]!r}", code="workflow_not_found")
        return lines
