"""The cache of published definitions holds what was published, and nothing for what was not."""

from __future__ import annotations

from typing import cast

import pytest

from agiwo.errors import NotFound
from agiwo.ports.records import Records, StoredVersion, VersionLine
from agiwo.ports.store import StoreUnavailable
from agiwo.service.definitions import Catalog
from kit.engine import TestClock


class Nothing:
    """Records without a version, or that are away."""

    away = False

    async def get_version(self, tenant: str, workflow: str, version: str) -> StoredVersion | None:
        return self._answer()

    async def default_version(self, tenant: str, workflow: str) -> str | None:
        return self._answer()

    async def list_versions(self, tenant: str, workflow: str | None = None, *, limit: int = 100) -> list[VersionLine]:
        return []

    def _answer(self) -> None:
        if self.away:
            raise StoreUnavailable("away")


@pytest.mark.parametrize("away", [False, True])
async def test_what_was_asked_for_in_vain_is_not_remembered(away: bool) -> None:
    """Whoever asks for a thousand names that are none must not cost memory."""
    records = Nothing()
    records.away = away
    catalog = Catalog(cast("Records", records), dict, TestClock())
    for number in range(20):
        with pytest.raises((NotFound, StoreUnavailable)):
            await catalog.get("acme", f"w{number}", "1")
        with pytest.raises((NotFound, StoreUnavailable)):
            await catalog.newest("acme", f"w{number}")
    kept = {name: value for name in Catalog.__init__.__code__.co_names if isinstance(value := getattr(catalog, name, None), dict)}
    assert len(kept) == 5
    assert not any(kept.values())
