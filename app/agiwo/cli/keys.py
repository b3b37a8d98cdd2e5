"""Commands on API keys: over the API, or on the database itself for the very first key.

A key's text is printed once, alone on standard output, so that a program can take it; nothing here keeps it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from agiwo.cli.client import Client
from agiwo.cli.screen import FAILED, NOT_REACHED, WRONG_USE, CommandEnds, give, problem_lines, say, tell
from agiwo.clock import SystemClock
from agiwo.definition import durations
from agiwo.errors import ServiceError
from agiwo.names import nearest
from agiwo.ports.keys import StoredKey
from agiwo.ports.store import StoreUnavailable
from agiwo.service.callers import ADMIN, ROLES, Caller
from agiwo.service.changes import Change
from agiwo.service.keys import OVERLAP, Keys, key_view
from agiwo.settings import Settings, load_settings
from agiwo.settings.parts import SettingsRefused
from agiwo.store.keys import PostgresKeys
from agiwo.store.migrate import upgrade
from agiwo.store.pool import service_engine
from agiwo.store.records import PostgresRecords
from agiwo.wiring.credentials import api_keys

_PATH = "/v1/admin/keys"


class Offline:
    """The same calls as the API takes, on the database itself."""

    def __init__(self, keys: Keys, caller: Caller) -> None:
        self._keys = keys
        self._caller = caller

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        lasts = _seconds(body.get("expires_in"), "--expires-in")
        return self._shown(*await self._keys.create(self._caller, body["name"], body["roles"], lasts, _change(body)))

    async def listed(self) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        before: UUID | None = None
        while page := await self._keys.listed(self._caller, before, 200):
            out += [self._view(key) for key in page]
            before = page[-1].id
        return out

    async def revoke(self, id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._view(await self._keys.revoke(self._caller, UUID(id), _change(body)))

    async def rotate(self, id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        overlap = _seconds(body.get("overlap"), "--overlap")
        lasts = _seconds(body.get("expires_in"), "--expires-in")
        return self._shown(*await self._keys.rotate(self._caller, UUID(id), OVERLAP if overlap is None else overlap, lasts, _change(body)))

    def _view(self, key: StoredKey) -> dict[str, Any]:
        return key_view(key, SystemClock().now())

    def _shown(self, key: StoredKey, text: str | None) -> dict[str, Any]:
        return {**self._view(key), "key": text}


class Online:
    """The calls of the API."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, body: Mapping[str, Any]) -> Any:
        return await self._client.post(_PATH, body, key=f"cli-{uuid4()}")

    async def listed(self) -> list[dict[str, Any]]:
        return [key async for key in self._client.pages(_PATH)]

    async def revoke(self, id: str, body: Mapping[str, Any]) -> Any:
        return await self._client.post(f"{_PATH}/{id}/revoke", body)

    async def rotate(self, id: str, body: Mapping[str, Any]) -> Any:
        return await self._client.post(f"{_PATH}/{id}/rotate", body, key=f"cli-{uuid4()}")


@asynccontextmanager
async def _reached(server: str, key: str | None, offline: bool, config: Path | None, tenant: str | None) -> AsyncIterator[Online | Offline]:
    if not offline:
        async with Client(server, key) as client:
            yield Online(client)
        return
    try:
        settings = load_settings(config)
        configured = api_keys(settings)
    except SettingsRefused as exc:
        raise CommandEnds(WRONG_USE, exc.message) from None
    url = _database(settings)
    pool = service_engine(url, size=1)
    clock = SystemClock()
    try:
        await asyncio.to_thread(upgrade, url)  # before the first `serve` there is no table yet
        keys = Keys(PostgresKeys(pool), PostgresRecords(pool, clock), clock, SystemRandom(), configured)
        yield Offline(keys, Caller(tenant or settings.tenant, "key:command-line", frozenset({ADMIN})))
    except ServiceError as exc:
        raise CommandEnds(FAILED, "\n".join([exc.message, *problem_lines(p.to_json() for p in exc.problems)])) from None
    except (StoreUnavailable, OSError, asyncpg.PostgresError) as exc:
        raise CommandEnds(NOT_REACHED, f"the database cannot be used: {exc}") from None
    finally:
        await pool.dispose()


def _database(settings: Settings) -> str:
    if settings.database_url is None:
        raise CommandEnds(WRONG_USE, "AGIWO_DATABASE_URL is not set: in which database shall the keys be?")
    return settings.database_url.get_secret_value()


async def create(
    server: str,
    key: str | None,
    name: str,
    roles: Sequence[str],
    expires_in: str | None,
    reason: str | None,
    *,
    offline: bool,
    config: Path | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Make a key and print its text."""
    async with _reached(server, key, offline, config, tenant) as keys:
        made = await keys.create(_body(name=name, roles=list(roles), expires_in=expires_in, reason=reason))
    _show_made(made, as_json)


async def listed(server: str, key: str | None, *, offline: bool, config: Path | None, tenant: str | None, as_json: bool) -> None:
    """List the keys, the newest first."""
    async with _reached(server, key, offline, config, tenant) as keys:
        found = await keys.listed()
    if as_json:
        give(found)
        return
    for one in found:
        ends = f", ends {one['expires_at']}" if one["expires_at"] and one["status"] == "active" else ""
        used = f", used {one['last_used_at']}" if one["last_used_at"] else ", never used"
        say(f"{one['key_id']}  {one['name']}  {one['status']}{ends}{used}  ({', '.join(one['roles'])})")


async def revoke(
    server: str, key: str | None, id: str, reason: str | None, *, offline: bool, config: Path | None, tenant: str | None, as_json: bool
) -> None:
    """Take a key back."""
    async with _reached(server, key, offline, config, tenant) as keys:
        done = await keys.revoke(_id(id), _body(reason=reason))
    if as_json:
        give(done)
    else:
        say(f"{done['key_id']}  {done['name']} is {done['status']}")


async def rotate(
    server: str,
    key: str | None,
    id: str,
    overlap: str | None,
    expires_in: str | None,
    reason: str | None,
    *,
    offline: bool,
    config: Path | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Make a key's successor and print its text."""
    async with _reached(server, key, offline, config, tenant) as keys:
        made = await keys.rotate(_id(id), _body(overlap=overlap, expires_in=expires_in, reason=reason))
    _show_made(made, as_json)


def _show_made(made: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        give(made)
        return
    ends = f" until {made['expires_at']}" if made["expires_at"] else ""
    for role in made["roles"]:
        if role not in ROLES and (near := nearest(role, ROLES)) is not None:
            tell(f"{role} is a role of your own, which brings nothing along by itself; if {near} was meant, revoke this key")
    tell(f"the key {made['name']} ({', '.join(made['roles'])}) works{ends}; its id is {made['key_id']}. It is shown this once:")
    say(made["key"])


def _body(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _change(body: Mapping[str, Any]) -> Change:
    return Change(body.get("reason"))


def _seconds(text: str | None, option: str) -> float | None:
    try:
        return None if text is None else durations.seconds(text)
    except ValueError as exc:
        raise CommandEnds(WRONG_USE, f"{option}: {exc}") from None


def _id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise CommandEnds(WRONG_USE, f"{text[:80]!r} is no id of a key; `agiwo keys list` shows them") from None
