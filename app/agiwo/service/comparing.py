"""The verb `diff`: what two published versions of a workflow differ in.

A version whose tools this process does not know is compared by its text alone.
"""

from __future__ import annotations

from agiwo.definition.compiled import Workflow
from agiwo.definition.difference import Difference, difference
from agiwo.errors import DefinitionRefused
from agiwo.service.beside import beside
from agiwo.service.callers import Caller
from agiwo.service.definitions import Catalog


class Comparing:
    """Compares versions."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def versions(self, caller: Caller, workflow: str, old: str, new: str) -> Difference:
        """From `old` to `new`. Raises NotFound."""
        documents = [(await self._catalog.stored(caller.tenant, workflow, version)).document for version in (old, new)]
        graphs = [await self._graph(caller, workflow, version) for version in (old, new)]
        return await beside(difference, documents[0], documents[1], graphs[0], graphs[1])

    async def _graph(self, caller: Caller, workflow: str, version: str) -> Workflow | None:
        try:
            return await self._catalog.get(caller.tenant, workflow, version)
        except DefinitionRefused:
            return None
