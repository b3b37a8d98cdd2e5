"""API keys in the storage: shown once, hashed, expiring, revoked on every node, rotated with an overlap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import asyncpg
import httpx
import pytest

from agiwo.api import create_app
from agiwo.clock import SystemClock
from agiwo.errors import Conflict, InvalidInput, Unauthenticated
from agiwo.ports.keys import StoredKey
from agiwo.ports.store import StoreUnavailable
from agiwo.service.callers import ADMIN, ApiKey, ApiKeys, Caller
from agiwo.service.changes import PLAIN, Change
from agiwo.service.keyring import KeyRing, id_in
from agiwo.service.keys import Keys
from agiwo.store.keys import PostgresKeys
from agiwo.store.pool import service_engine
from agiwo.store.records import PostgresRecords
from kit.api import World

KEYS = "/v1/admin/keys"
ADMIN_CALLER = Caller("default", "key:test", frozenset({ADMIN}))


class SetClock(SystemClock):
    """Real time, moved on by hand."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Site:
    """Keys and a ring of a node that remembers what the storage says for 2 seconds."""

    def __init__(self, database: str) -> None:
        self.clock = SetClock()
        self.pool = service_engine(database)
        self.store = PostgresKeys(self.pool)
        self.keys = Keys(self.store, PostgresRecords(self.pool, self.clock), self.clock, Random(3), ApiKeys())
        self.ring = KeyRing(ApiKeys(), self.store, self.clock)

    async def key(self, name: str, lasts: float | None = None, roles: tuple[str, ...] = (ADMIN,)) -> tuple[StoredKey, str]:
        key, text = await self.keys.create(ADMIN_CALLER, name, roles, lasts, PLAIN)
        assert text is not None
        return key, text

    async def refusal(self, text: str) -> str:
        with pytest.raises(Unauthenticated) as refused:
            await self.ring.caller(f"Bearer {text}")
        return refused.value.code


@pytest.fixture
async def site(database: str) -> AsyncIterator[Site]:
    made = Site(database)
    yield made
    await made.pool.dispose()


async def made(world: World, name: str, *roles: str, **more: Any) -> dict[str, Any]:
    answer = await world.client.post(KEYS, json={"name": name, "roles": roles or ["operator"], **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def using(world: World, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(world.app), base_url="http://agiwo.test", headers={"authorization": f"Bearer {key}"}, timeout=30
    )


async def test_a_key_is_shown_once_and_then_only_hashed(world: World, module_database: str) -> None:
    headers = {"idempotency-key": "make-ci"}
    first, again = [await world.client.post(KEYS, json={"name": "ci", "roles": ["operator"]}, headers=headers) for _ in range(2)]
    key = first.json()["key"]
    assert key.startswith("agw_") and len(key) > 70 and first.headers["cache-control"] == "no-store"
    assert again.json() == {**first.json(), "key": None}, "a kept answer does not show it again"
    async with using(world, key) as client:
        assert (await client.post("/v1/workflows/echo/trigger", json={})).status_code == 202
        assert (await client.get(KEYS)).json()["code"] == "role_missing"
    shown = (await world.client.get(first.headers["location"])).json()
    assert (shown["name"], shown["status"], shown["created_by"]) == ("ci", "active", "key:ops")
    assert shown["last_used_at"] is not None
    secret = key.rpartition("_")[2] if "_" not in key[37:] else key[37:]
    connection = await asyncpg.connect(module_database)
    try:
        tables = [row[0] for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'agiwo'")]
        for table in tables:
            found = await connection.fetchval(f"SELECT count(*) FROM agiwo.{table} t WHERE t::text LIKE '%' || $1 || '%'", secret)
            assert found == 0, table
    finally:
        await connection.close()


@pytest.mark.parametrize("body", [
    {}, {"name": "x"}, {"name": "a b", "roles": ["viewer"]}, {"name": "x", "roles": []}, {"name": "x", "roles": ["a:b"]},
    {"name": "x", "roles": ["viewer"], "expires_in": "soon"}, {"name": "x", "roles": ["viewer"], "tenant": "other"},
    {"name": "x", "roles": ["viewer"], "expires_in": "9999d"},
])  # fmt: skip
async def test_a_key_that_cannot_be_is_refused_with_its_place(world: World, body: dict[str, Any]) -> None:
    answer = await world.client.post(KEYS, json=body)
    assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"]


async def test_a_revoked_key_is_refused_and_says_so(world: World) -> None:
    key = await made(world, "leaked")
    tried = await world.client.post(f"{KEYS}/{key['key_id']}/revoke?dry_run=true", json={})
    assert tried.json()["present"]["status"] == "active"
    for _ in range(2):
        done = await world.client.post(f"{KEYS}/{key['key_id']}/revoke", json={"reason": "it leaked"})
        assert (done.status_code, done.json()["status"], done.json()["actions"]) == (200, "revoked", [])
    async with using(world, key["key"]) as client:
        for path in ("/v1/tools", "/healthz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "key_revoked")
    over = await world.client.post(f"{KEYS}/{key['key_id']}/rotate", json={})
    assert (over.status_code, over.json()["code"], over.json()["present_status"]) == (409, "key_over", "revoked")


async def test_a_live_name_is_taken_and_may_be_rotated(world: World) -> None:
    old = await made(world, "rotated", "author")
    for name in ("rotated", "ops"):
        again = await world.client.post(KEYS, json={"name": name, "roles": ["viewer"]})
        assert (again.status_code, again.json()["code"]) == (409, "key_exists")
    new = (await world.client.post(f"{KEYS}/{old['key_id']}/rotate", json={"overlap": "1h"})).json()
    assert (new["name"], new["roles"]) == ("rotated", ["author"])
    for key in (old["key"], new["key"]):
        async with using(world, key) as client:
            assert (await client.get("/v1/tools")).status_code == 200
    assert (await world.client.get(f"{KEYS}/{old['key_id']}")).json()["expires_at"] is not None


async def test_keys_are_listed_newest_first_page_by_page_and_by_tenant(world: World) -> None:
    names = [(await made(world, f"listed-{n}"))["name"] for n in range(5)]
    found, cursor = [], ""
    while cursor is not None:
        page = (await world.client.get(f"{KEYS}?limit=2{f'&cursor={cursor}' if cursor else ''}")).json()
        found += page["items"]
        cursor = page["next_cursor"]
    assert [one["name"] for one in found if one["name"] in names] == names[::-1]
    assert all("key" not in one and "digest" not in one for one in found)
    assert (await world.stranger.get(KEYS)).json()["items"] == []
    for verb in ("", "/revoke", "/rotate"):
        call = world.stranger.post if verb else world.stranger.get
        assert (await call(f"{KEYS}/{found[0]['key_id']}{verb}")).json()["code"] == "key_not_found"


async def test_a_revoked_key_stops_within_seconds_on_a_node_that_has_just_seen_it(site: Site) -> None:
    key, text = await site.key("a")
    assert await site.ring.caller(f"Bearer {text}") == Caller("default", "key:a", frozenset({ADMIN}))
    await site.keys.revoke(ADMIN_CALLER, key.id, PLAIN)
    site.clock.ahead += 2.1
    assert await site.refusal(text) == "key_revoked"


async def test_a_key_expires_by_the_clock_and_a_rotated_one_after_its_overlap(site: Site) -> None:
    _, text = await site.key("a", lasts=60)
    old, old_text = await site.key("b")
    _, new_text = await site.keys.rotate(ADMIN_CALLER, old.id, 30, None, PLAIN)
    await site.ring.caller(f"Bearer {text}")
    site.clock.ahead += 31
    await site.ring.caller(f"Bearer {text}")
    assert await site.refusal(old_text) == "key_expired"
    assert (await site.ring.caller(f"Bearer {new_text}")) is not None
    site.clock.ahead += 30
    assert await site.refusal(text) == "key_expired"


async def test_a_use_is_noted_at_most_once_a_minute(site: Site) -> None:
    key, text = await site.key("a")
    noted = []
    for ahead in (0, 10, 51):
        site.clock.ahead += ahead
        await site.ring.caller(f"Bearer {text}")
        found = await site.store.find(key.id)
        assert found is not None
        noted.append(found.last_used_at)
    assert noted[0] == noted[1] and noted[0] is not None and noted[2] is not None and noted[2] > noted[0] + 60


async def test_what_is_no_key_of_ours_is_refused(site: Site) -> None:
    key, text = await site.key("a")
    for wrong in (
        text[:-1],
        text + "x",
        f"agw_{key.id.hex}_",
        "agw_",
        "agw_x_y",
        "agw_" + "é" * 32 + "_x",
        "",
        "other",
        f"agw_{'0' * 32}_x",
    ):
        assert await site.refusal(wrong) == "unauthenticated"
    with pytest.raises(Unauthenticated):
        await site.ring.caller(f"Basic {text}")
    assert id_in(text) == key.id


async def test_once_there_was_a_key_nobody_calls_without_one(site: Site) -> None:
    assert await site.ring.open()
    assert (await site.ring.caller(None)) is not None
    key, _ = await site.key("first", roles=("admin",))
    await site.keys.revoke(ADMIN_CALLER, key.id, PLAIN)
    site.clock.ahead += 2.1
    assert not await site.ring.open()
    assert await site.ring.caller(None) is None


async def test_a_storage_that_is_away_opens_nothing_and_is_told_as_such(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = await site.key("a")

    async def away(*_: object) -> bool:
        raise StoreUnavailable("away")

    monkeypatch.setattr(site.store, "any", away)
    monkeypatch.setattr(site.store, "find", away)
    for given in (None, f"Bearer {text}"):
        with pytest.raises(StoreUnavailable):
            await site.ring.caller(given)


async def test_without_the_storage_a_call_is_503_and_health_still_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = service_engine("postgresql://nobody@127.0.0.1:9/none")
    ring = KeyRing(ApiKeys([ApiKey.of("ops", "secret-a")]), PostgresKeys(pool), SystemClock())
    transport = httpx.ASGITransport(create_app(world.services, keys=ring))
    async with httpx.AsyncClient(transport=transport, base_url="http://agiwo.test") as client:
        answer = await client.get("/v1/tools", headers={"authorization": f"Bearer agw_{'0' * 32}_x"})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/v1/tools", headers={"authorization": "Bearer secret-a"})).status_code == 200
    await pool.dispose()


async def test_of_keys_of_one_name_that_are_made_at_once_one_is_made(site: Site) -> None:
    """Whether the name is free and the taking of it are one step, on however many nodes."""
    results = await asyncio.gather(*(site.key("ci") for _ in range(6)), return_exceptions=True)
    refused = [one for one in results if isinstance(one, Conflict)]
    assert [one.code for one in refused] == ["key_exists"] * 5
    assert len(await site.store.named("default", "ci")) == 1


async def test_a_key_that_two_revoke_at_once_was_revoked_by_one_of_them(site: Site, database: str) -> None:
    key, _ = await site.key("old")
    done = await asyncio.gather(*(site.keys.revoke(ADMIN_CALLER, key.id, PLAIN) for _ in range(4)))
    assert len({one.revoked_at for one in done}) == 1
    assert await deeds(database, "key.revoke") == [f"key/{key.id}"]


async def test_the_trail_of_a_rotation_names_the_key_that_was_replaced(site: Site, database: str) -> None:
    key, _ = await site.key("turning")
    new, _ = await site.keys.rotate(ADMIN_CALLER, key.id, 60.0, None, PLAIN)
    assert await deeds(database, "key.rotate", "data->>'replaces'") == [str(key.id)]
    assert await deeds(database, "key.rotate") == [f"key/{new.id}"]


async def deeds(database: str, action: str, column: str = "object") -> list[str]:
    connection = await asyncpg.connect(database)
    try:
        return [row[0] for row in await connection.fetch(f"SELECT {column} FROM agiwo.audit WHERE action = $1", action)]
    finally:
        await connection.close()


@pytest.mark.parametrize("roles", [("viewer",), ("author", "operator"), ("athor",)])
@pytest.mark.parametrize("dry", [False, True])
async def test_a_first_key_that_could_make_no_other_is_refused_and_shuts_nobody_out(site: Site, roles: tuple[str, ...], dry: bool) -> None:
    with pytest.raises(InvalidInput) as refused:
        await site.keys.create(ADMIN_CALLER, "ci", roles, None, Change(dry=dry))
    (problem,) = refused.value.problems
    assert (problem.code, problem.pointer, problem.found, problem.expected) == ("first_key", "/roles", ", ".join(roles), ADMIN)
    assert await site.ring.open()
    await site.key("boss")
    await site.key("ci", roles=roles)
