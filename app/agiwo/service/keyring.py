"""Who calls, by the configured keys and by those in the storage.

What the storage said of a key counts for a moment, so that a revoked key stops within seconds on every node and a storm of calls asks
little. It changes no key but for when it was used.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections import OrderedDict
from dataclasses import replace
from uuid import UUID

from agiwo.clock import Clock
from agiwo.errors import Unauthenticated
from agiwo.ports.keys import KeyStore, StoredKey
from agiwo.ports.store import StoreUnavailable
from agiwo.service.callers import ApiKeys, Caller, bearer, digest_of, unknown_credential

PREFIX = "agw_"
#: Seconds for which an answer of the storage counts, and after which a use is noted again.
FRESH, NOTED = 2.0, 60.0
_LARGEST = 10_000
_AT_ONCE = 2  # look-ups: unknown keys must not take the connections of those who are known


def text_of(id: UUID, secret: str) -> str:
    """A key as its owner has it."""
    return f"{PREFIX}{id.hex}_{secret}"


def id_in(text: str) -> UUID | None:
    """The id in a key's text; None if it is no key of this form."""
    found = text.removeprefix(PREFIX).partition("_")[0]
    if not text.startswith(PREFIX) or len(found) != 32 or not found.isascii() or not found.isalnum():
        return None
    try:
        return UUID(hex=found)
    except ValueError:
        return None


class KeyRing:
    """Credentials over `configured` keys and the keys in the storage; `fresh` in seconds."""

    def __init__(self, configured: ApiKeys, keys: KeyStore, clock: Clock, *, fresh: float = FRESH) -> None:
        self._configured = configured
        self._keys = keys
        self._clock = clock
        self._fresh = fresh
        self._seen: OrderedDict[UUID, tuple[float, StoredKey | None]] = OrderedDict()
        self._looking = asyncio.Semaphore(_AT_ONCE)
        self._any: bool | None = None
        self._any_until = 0.0

    async def open(self) -> bool:
        """Whether there are no keys. Once there was one there are keys for good; a storage that is away changes nothing of what is known.

        Raises StoreUnavailable if it never answered.
        """
        if self._configured.configured:
            return False
        if not self._any and self._clock.monotonic() >= self._any_until:
            try:
                self._any = await self._keys.any()
            except StoreUnavailable:
                if self._any is None:
                    raise
            self._any_until = self._clock.monotonic() + self._fresh
        return not self._any

    async def caller(self, authorization: str | None) -> Caller | None:
        """As Credentials has it. Raises StoreUnavailable."""
        if authorization is None:
            return self._configured.nobody if await self.open() else None
        text = bearer(authorization)
        if (known := self._configured.known(text)) is not None:
            return known
        id = id_in(text)
        key = None if id is None else await self._key(id)
        if key is None or not hmac.compare_digest(key.digest, digest_of(text)):
            raise unknown_credential()
        now = self._clock.now()
        if key.revoked_at is not None:
            raise Unauthenticated("this API key was revoked", code="key_revoked")
        if key.expires_at is not None and key.expires_at <= now:
            raise Unauthenticated("this API key has expired", code="key_expired")
        if key.last_used_at is None or key.last_used_at < now - NOTED:
            self._seen[key.id] = (self._seen[key.id][0], replace(key, last_used_at=now))
            with contextlib.suppress(StoreUnavailable):
                await self._keys.used(key.id, now)
        return Caller(key.tenant, f"key:{key.name}", frozenset(key.roles))

    async def _key(self, id: UUID) -> StoredKey | None:
        if (found := self._seen.get(id)) is not None and found[0] > self._clock.monotonic():
            return found[1]
        async with self._looking:
            if (found := self._seen.get(id)) is not None and found[0] > self._clock.monotonic():
                return found[1]
            key = await self._keys.find(id)
            self._seen[id] = (self._clock.monotonic() + self._fresh, key)
            self._seen.move_to_end(id)
            if len(self._seen) > _LARGEST:
                self._seen.popitem(last=False)
            return key
