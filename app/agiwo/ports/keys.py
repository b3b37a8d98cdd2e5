"""The API keys that are kept in the storage: hashed, with what they allow and how long they last.

A key's text is never here; only whoever got it at its creation has it. Times are seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key: `digest` is the SHA-256 of its text in hex, `expires_at` its planned end, `revoked_at` when somebody took it back."""

    id: UUID
    tenant: str
    name: str
    digest: str
    roles: tuple[str, ...]
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def live(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


class KeyStore(Protocol):
    """The keys. All methods raise StoreUnavailable."""

    async def any(self) -> bool:
        """Whether there has ever been a key, of any tenant; revoked and expired ones count."""
        ...

    async def add(self, key: StoredKey) -> None: ...

    async def add_if_free(self, key: StoredKey) -> StoredKey | None:
        """Add a key unless a live one of its tenant has its name: that one is given then. Of two that come at once one is added."""
        ...

    async def find(self, id: UUID) -> StoredKey | None:
        """A key of whatever tenant, for finding out who calls."""
        ...

    async def get(self, tenant: str, id: UUID) -> StoredKey | None: ...

    async def named(self, tenant: str, name: str) -> list[StoredKey]:
        """All keys of a name, the newest first."""
        ...

    async def listed(self, tenant: str, before: UUID | None, limit: int) -> list[StoredKey]:
        """The newest first."""
        ...

    async def revoke(self, tenant: str, id: UUID, at: float) -> StoredKey | None:
        """Take a key back. None if there is no such key, or it is revoked already."""
        ...

    async def end(self, tenant: str, id: UUID, at: float) -> None:
        """Let a key expire at this time, unless it does so before."""
        ...

    async def used(self, id: UUID, at: float) -> None:
        """Note that a key was used."""
        ...
