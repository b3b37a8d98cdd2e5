"""Where the engine gets the compiled definition of an instance that it takes over."""

from __future__ import annotations

from typing import Protocol

from agiwo.definition.compiled import Workflow


class Definitions(Protocol):
    """Compiled versions, cached; a published version never changes."""

    async def get(self, tenant: str, workflow: str, version: str) -> Workflow:
        """Raises agiwo.errors.NotFound if it was never published."""
        ...
