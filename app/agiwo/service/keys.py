"""Making, listing, revoking and rotating API keys; for admins, each within their tenant.

A key's text leaves once, at its creation; nothing here finds out who calls.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

from agiwo.clock import Clock
from agiwo.errors import Conflict, InvalidInput, NotFound, Problem
from agiwo.ids import SHARDS, uuid7
from agiwo.ports.keys import KeyStore, StoredKey
from agiwo.ports.records import Records
from agiwo.service.callers import ADMIN, ApiKeys, Caller, digest_of
from agiwo.service.changes import Change
from agiwo.service.keyring import text_of
from agiwo.service.view import API, time_text

#: Seconds for which a rotated key still works unless told otherwise.
OVERLAP = 24 * 3600.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


class Keys:
    """The verbs on API keys; `configured` are those of the settings, whose names are taken."""

    def __init__(self, keys: KeyStore, records: Records, clock: Clock, random: Random, configured: ApiKeys) -> None:
        self._keys = keys
        self._records = records
        self._clock = clock
        self._random = random
        self._configured = configured

    async def create(
        self, caller: Caller, name: str, roles: Sequence[str], lasts: float | None, change: Change
    ) -> tuple[StoredKey, str | None]:
        """A new key that lasts so many seconds (None: until it is revoked), and its text; no text if the change is dry.

        Raises Denied for a caller who is no admin, InvalidInput for a bad name or role, or a first key that is no admin's, Conflict
        (`key_exists`) if a live key has the name.
        """
        caller.need(ADMIN)
        _check(name, roles)
        if ADMIN not in roles and not self._configured.configured and not await self._keys.any():
            message = "the first key must be an admin: with it the service asks for keys, and nobody could make another"
            problem = Problem("first_key", message, "/roles", found=", ".join(roles)[:80], expected=ADMIN)
            raise InvalidInput("the key cannot be made", problems=[problem])
        now = self._clock.now()
        if self._configured.has_name(caller.tenant, name):
            raise Conflict(f"a configured key is called {name}", code="key_exists", present_status="configured", actions=[])
        key, text = self._new(caller, name, roles, lasts, now)
        if change.dry:
            other = next((one for one in await self._keys.named(caller.tenant, name) if one.live(now)), None)
        else:
            other = await self._keys.add_if_free(key)
        if other is not None:
            raise Conflict(
                f"there is a live key called {name}; rotate or revoke it, or take another name", code="key_exists",
                key_id=str(other.id), present_status=status_of(other, now), actions=actions(other, now),
            )  # fmt: skip
        if change.dry:
            return key, None
        await self._note(caller, "key.create", key, change)
        return key, text

    async def find(self, caller: Caller, id: UUID) -> StoredKey:
        """Raises NotFound, Denied for a caller who is no admin."""
        caller.need(ADMIN)
        key = await self._keys.get(caller.tenant, id)
        if key is None:
            raise NotFound("there is no such API key", code="key_not_found")
        return key

    async def listed(self, caller: Caller, before: UUID | None, limit: int) -> list[StoredKey]:
        """Newest first. Raises Denied for a caller who is no admin."""
        caller.need(ADMIN)
        return await self._keys.listed(caller.tenant, before, limit)

    async def revoke(self, caller: Caller, id: UUID, change: Change) -> StoredKey:
        """Take a key back; all nodes refuse it within seconds. A revoked one stays as it is. Raises what `find` raises."""
        key = await self.find(caller, id)
        if change.dry or key.revoked_at is not None:
            return key
        revoked = await self._keys.revoke(caller.tenant, id, self._clock.now())
        if revoked is None:  # somebody else was quicker
            return await self.find(caller, id)
        await self._note(caller, "key.revoke", revoked, change)
        return revoked

    async def rotate(self, caller: Caller, id: UUID, overlap: float, lasts: float | None, change: Change) -> tuple[StoredKey, str | None]:
        """A new key of the same name and roles, and its text; the old one works for `overlap` seconds more.

        Without `lasts` the new one lasts as long as the old one was to last. Raises what `find` raises, Conflict for a key that is over.
        """
        key, now = await self.find(caller, id), self._clock.now()
        if not key.live(now):
            raise Conflict("this API key is over", code="key_over", present_status=status_of(key, now), actions=actions(key, now))
        if lasts is None and key.expires_at is not None:
            lasts = key.expires_at - key.created_at
        made, text = self._new(caller, key.name, key.roles, lasts, now)
        if change.dry:
            return made, None
        await self._keys.add(made)
        await self._note(caller, "key.rotate", made, change, replaces=str(id))
        await self._keys.end(caller.tenant, id, now + overlap)
        return made, text

    def _new(self, caller: Caller, name: str, roles: Sequence[str], lasts: float | None, now: float) -> tuple[StoredKey, str]:
        id = uuid7(now, self._random.getrandbits(66), self._random.randrange(SHARDS))
        text = text_of(id, secrets.token_urlsafe(32))
        ends = None if lasts is None else now + lasts
        return StoredKey(id, caller.tenant, name, digest_of(text), tuple(dict.fromkeys(roles)), now, caller.principal, ends), text

    async def _note(self, caller: Caller, action: str, key: StoredKey, change: Change, **more: str) -> None:
        data = {"reason": change.reason, "name": key.name, "roles": list(key.roles), **more}
        await self._records.audit(caller.tenant, caller.principal, action, f"key/{key.id}", data)


def _check(name: str, roles: Sequence[str]) -> None:
    problems = []
    if _NAME.fullmatch(name) is None:
        problems.append(Problem("bad_name", "expected 1 to 100 letters, digits and _ . @ -", "/name", found=name[:80]))
    if not roles:
        problems.append(Problem("missing", "a key needs at least one role", "/roles"))
    for number, role in enumerate(roles):
        if _ROLE.fullmatch(role) is None:
            problems.append(Problem("bad_name", "expected a letter, then letters, digits and _ . -", f"/roles/{number}", found=role[:80]))
    if problems:
        raise InvalidInput("the key cannot be made", problems=problems)


def status_of(key: StoredKey, now: float) -> str:
    """`active`, `expired` or `revoked`."""
    return "active" if key.live(now) else "expired" if key.revoked_at is None else "revoked"


def actions(key: StoredKey, now: float) -> list[dict[str, Any]]:
    """What may be done with a key now."""
    here = f"{API}/admin/keys/{key.id}"
    return [{"name": verb, "method": "POST", "href": f"{here}/{verb}"} for verb in ("revoke", "rotate")] if key.live(now) else []


def key_view(key: StoredKey, now: float) -> dict[str, Any]:
    """A key as it is shown: all but its text."""
    return {
        "key_id": str(key.id),
        "name": key.name,
        "principal": f"key:{key.name}",
        "roles": list(key.roles),
        "status": status_of(key, now),
        "created_at": time_text(key.created_at),
        "created_by": key.created_by,
        "expires_at": time_text(key.expires_at),
        "revoked_at": time_text(key.revoked_at),
        "last_used_at": time_text(key.last_used_at),
        "actions": actions(key, now),
        "links": {"self": f"{API}/admin/keys/{key.id}"},
    }
