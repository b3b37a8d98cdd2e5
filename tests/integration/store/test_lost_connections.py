"""Connections that go away at the worst moment: what was sent is sent again, and counted once."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from agiwo.clock import SystemClock
from agiwo.ids import derived_uuid, uuid7
from agiwo.ports.records import Posted
from agiwo.ports.store import Answer, ApprovalRow, NewInstance, OutboxRow, StoreUnavailable, Verdict, Write, WriteKind
from agiwo.store.pool import connected, service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.records import PostgresRecords

FAR_OFF = 9_000_000_000.0


class Proxy:
    """Stands between a client and the server on a unix socket, and can lose a request, or the answer to one.

    With `lose_answer` the next answer that holds these bytes is thrown away, with `lose_request` the next request is; both ends are
    then cut, and `meanwhile` runs before the next connection is let through. `refuse` cuts every connection at once.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._parts = urlsplit(url)
        self._folder = folder
        self.lose_answer: bytes | None = None
        self.lose_request = False
        self.refuse = False
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.cuts = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        account = f"{self._parts.username}:{self._parts.password or ''}"
        return f"postgresql://{account}@{self._parts.path}?host={quote(str(self._folder))}&port=5432"

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._folder / ".s.PGSQL.5432")

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()
        await self._server.wait_closed()

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        query = parse_qs(self._parts.query)
        port = query["port"][0] if "port" in query else self._parts.port or 5432
        if "host" in query:
            return await asyncio.open_unix_connection(f"{query['host'][0]}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self._parts.hostname, int(port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.close()
            return
        if self.meanwhile is not None:
            work, self.meanwhile = self.meanwhile, None
            await work()
        up_reader, up_writer = await self._upstream()
        self._open |= {writer, up_writer}
        pumps = {asyncio.create_task(self._requests(reader, up_writer)), asyncio.create_task(self._answers(up_reader, writer))}
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, up_writer):
            end.close()
            self._open.discard(end)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.lose_request:
                self.lose_request = False
                self.cuts += 1
                return
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.lose_answer is not None and self.lose_answer in data:
                self.lose_answer = None
                self.cuts += 1
                return
            writer.write(data)
            await writer.drain()


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[Proxy]:
    # Not under pytest's own folder: the path of a socket may not be long.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        made = Proxy(database, Path(folder))
        await made.start()
        yield made
        await made.stop()


@pytest.fixture
async def node(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(proxy.url)
    await store.join("n1")
    # Both write statements are prepared, so that the next answer is the one to a write.
    begun = trigger()
    assert answers(await store.write([begun])) == ["applied"]
    assert answers(await store.write([step(begun), trigger(WriteKind.END, status="FAILED")])) == ["applied", "applied"]
    assert answers(await store.write([step(step(begun))])) == ["applied"]
    assert answers(await store.write([step(step(step(begun)), WriteKind.END)])) == ["applied"]
    yield store
    await store.close()


def trigger(kind: WriteKind = WriteKind.NEW, key: str | None = None, **changes: Any) -> Write:
    id = uuid7(SystemClock().now(), secrets.randbits(66), 7)
    new = NewInstance("w", "1", "h", "t", idempotency_key=key, request_digest="d")
    return Write(**{
        "kind": kind, "id": id, "tenant": "acme", "epoch": 1, "prev_seq": 0, "seq": 1, "records": "[1]", "at": SystemClock().now(),
        "status": "RUNNING", "new": new, **changes,
    })  # fmt: skip


def step(before: Write, kind: WriteKind = WriteKind.STEP, **changes: Any) -> Write:
    status = {WriteKind.STEP: "RUNNING", WriteKind.PARK: "WAITING", WriteKind.END: "SUCCESS"}[kind]
    return Write(**{
        "kind": kind, "id": before.id, "tenant": "acme", "epoch": before.epoch, "prev_seq": before.seq, "seq": before.seq + 1,
        "records": f"[{before.seq + 1}]", "at": SystemClock().now(), "status": status, **changes,
    })  # fmt: skip


def answers(verdicts: list[Verdict]) -> list[str]:
    return [v.answer.value for v in verdicts]


async def numbers(connection: asyncpg.Connection[Any], id: UUID) -> list[int]:
    rows = await connection.fetch("SELECT seq FROM agiwo.history WHERE instance_id = $1 ORDER BY seq", id)
    return [row[0] for row in rows]


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("kind", ["new", "step", "park", "end", "park without records"])
async def test_a_lost_write_is_sent_again_and_counted_once(
    proxy: Proxy, node: PostgresStore, connection: asyncpg.Connection[Any], kind: str, lost: str
) -> None:
    begun = trigger(key="k")
    if kind != "new":
        await node.write([begun])
    write = begun if kind == "new" else step(begun, WriteKind(kind.split()[0]))
    if kind == "park without records":
        write = replace(write, seq=begun.seq, records="[]")
    proxy.lose_request, proxy.lose_answer = lost == "request", b"" if lost == "answer" else None
    assert await node.write([write]) == [Verdict(Answer.APPLIED)]
    assert proxy.cuts == 1
    assert await numbers(connection, begun.id) == list(range(1, write.seq + 1))


async def test_a_transaction_whose_commit_is_not_answered_is_counted_once(
    proxy: Proxy, node: PostgresStore, connection: asyncpg.Connection[Any]
) -> None:
    begun = trigger()
    await node.write([begun])
    approval = ApprovalRow(derived_uuid(begun.id, "ok"), "ok", "ok", "d", "t", {}, (), SystemClock().now(), FAR_OFF)
    notice = OutboxRow(derived_uuid(begun.id, "mail"), "notice", "x", {})
    proxy.lose_answer = b"COMMIT\x00"
    assert answers(await node.write([step(begun, WriteKind.PARK, approvals=(approval,), outbox=(notice,))])) == ["applied"]
    assert proxy.cuts == 1
    assert await connection.fetchval("SELECT count(*) FROM agiwo.approval") == 1
    assert await connection.fetchval("SELECT count(*) FROM agiwo.outbox") == 1


async def test_a_transaction_that_is_cut_before_its_commit_is_written_once(
    proxy: Proxy, node: PostgresStore, connection: asyncpg.Connection[Any]
) -> None:
    begun = trigger()
    await node.write([begun])
    notices = (OutboxRow(derived_uuid(begun.id, "mail"), "notice", "x", {}),)
    proxy.lose_answer = b"BEGIN\x00"
    assert answers(await node.write([step(begun, WriteKind.END, outbox=notices)])) == ["applied"]
    assert await connection.fetchval("SELECT count(*) FROM agiwo.outbox") == 1


async def test_a_park_counts_also_when_another_node_has_gone_on_before_the_second_sending(
    proxy: Proxy, node: PostgresStore, database: str, connection: asyncpg.Connection[Any]
) -> None:
    begun = trigger()
    await node.write([begun])
    other = PostgresStore(database)
    await other.join("n2")

    async def go_on() -> None:
        (claimed,) = await other.claim(1)
        assert answers(await other.write([step(step(begun), epoch=claimed.epoch)])) == ["applied"]

    proxy.lose_answer, proxy.meanwhile = b"", go_on
    assert answers(await node.write([step(begun, WriteKind.PARK, due_at=1.0)])) == ["applied"]
    assert await numbers(connection, begun.id) == [1, 2, 3]
    await other.close()


async def test_a_step_is_fenced_when_it_never_arrived_and_another_node_took_over(
    proxy: Proxy, node: PostgresStore, database: str, connection: asyncpg.Connection[Any]
) -> None:
    begun = trigger()
    await node.write([begun])
    other = PostgresStore(database)

    async def take_over() -> None:
        await other.join("n1")
        (claimed,) = await other.claim(1)
        assert answers(await other.write([step(begun, epoch=claimed.epoch)])) == ["applied"]

    proxy.lose_request, proxy.meanwhile = True, take_over
    assert answers(await node.write([step(begun)])) == ["fenced"]
    assert await numbers(connection, begun.id) == [1, 2]
    await other.close()


async def test_a_database_that_is_away_is_told_and_the_same_batch_goes_through_later(
    proxy: Proxy, node: PostgresStore, connection: asyncpg.Connection[Any]
) -> None:
    begun = trigger(key="k")
    proxy.refuse, proxy.lose_answer = True, b""
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await node.write([begun])
    proxy.refuse = False
    assert answers(await node.write([begun])) == ["applied"]
    assert await node.owned() == [begun.id]
    assert await numbers(connection, begun.id) == [1]


ACTIVE_WRITERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'agiwo-writer' AND datname = current_database() AND state = 'active'
"""


async def test_backends_that_are_ended_during_writes_lose_nothing(node: PostgresStore, connection: asyncpg.Connection[Any]) -> None:
    begun = [trigger() for _ in range(20)]
    await node.write(begun)

    async def write_all() -> None:
        writes = begun
        for _ in range(20):
            writes = [step(w) for w in writes]
            while True:
                try:
                    assert set(answers(await node.write(writes))) == {"applied"}
                    break
                except StoreUnavailable:
                    continue

    writing = asyncio.create_task(write_all())
    ended = 0
    while ended < 10 and not writing.done():
        ended += len(await connection.fetch(ACTIVE_WRITERS))
    await writing
    for w in begun:
        assert await numbers(connection, w.id) == list(range(1, 22))


BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def until_blocked(watcher: asyncpg.Connection[Any]) -> None:
    while not await watcher.fetchval(BLOCKED):
        pass


async def test_a_cancelled_write_leaves_the_store_usable(node: PostgresStore, connection: asyncpg.Connection[Any], database: str) -> None:
    begun = trigger()
    await node.write([begun])
    blocker = await asyncpg.connect(database)
    await blocker.execute("BEGIN")
    await blocker.fetch("SELECT 1 FROM agiwo.run WHERE id = $1 FOR UPDATE", begun.id)
    writing = asyncio.create_task(node.write([step(begun)]))
    await until_blocked(connection)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await blocker.execute("ROLLBACK")
    await blocker.close()
    # Whether the cancelled one was applied or not, the same write is counted once.
    assert answers(await node.write([step(begun)])) in (["applied"], ["fenced"])
    assert await numbers(connection, begun.id) == [1, 2]


async def test_a_write_that_does_not_end_in_time_is_told(database: str, connection: asyncpg.Connection[Any]) -> None:
    store = PostgresStore(database, command_timeout=0.2)
    await store.join("n1")
    begun = trigger()
    await store.write([begun])
    await connection.execute("BEGIN")
    await connection.fetch("SELECT 1 FROM agiwo.run WHERE id = $1 FOR UPDATE", begun.id)
    with pytest.raises(StoreUnavailable):
        await store.write([step(begun)])
    await connection.execute("ROLLBACK")
    assert answers(await store.write([step(begun)])) in (["applied"], ["fenced"])
    await store.close()


async def test_a_deadlock_is_tried_again(node: PostgresStore, connection: asyncpg.Connection[Any], database: str) -> None:
    low, high = sorted([trigger(), trigger()], key=lambda w: w.id.int)
    await node.write([low, high])
    rival = await asyncpg.connect(database)
    await rival.execute("SET deadlock_timeout = '30s'")  # so that the store's own session is the one that is ended
    await rival.execute("BEGIN")
    await rival.fetch("SELECT 1 FROM agiwo.run WHERE id = $1 FOR UPDATE", high.id)
    writing = asyncio.create_task(node.write([step(high), step(low)]))
    await until_blocked(connection)
    await rival.fetch("SELECT 1 FROM agiwo.run WHERE id = $1 FOR UPDATE", low.id)
    await rival.execute("COMMIT")
    await rival.close()
    assert answers(await writing) == ["applied", "applied"]


async def test_cancelled_requests_leave_no_connection_behind(database: str, connection: asyncpg.Connection[Any]) -> None:
    engine = service_engine(database, size=5)
    records = PostgresRecords(engine)
    store = PostgresStore(database)
    await store.join("n1")
    begun = trigger()
    await store.write([begun])
    await connection.execute("BEGIN")
    await connection.fetch("SELECT 1 FROM agiwo.run WHERE id = $1 FOR UPDATE", begun.id)
    watcher = await asyncpg.connect(database)
    for _ in range(8):
        requests = [asyncio.create_task(records.put_inbox(begun.id, "acme", "signal", {})) for _ in range(10)]
        await until_blocked(watcher)
        for request in requests:
            request.cancel()
        assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*requests, return_exceptions=True))
    await connection.execute("ROLLBACK")
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    count = await watcher.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agiwo-services' AND state <> 'active'")
    assert count <= 5
    assert await asyncio.gather(*(records.put_inbox(begun.id, "acme", "signal", {}) for _ in range(20))) == [Posted.ACCEPTED] * 20
    await watcher.close()
    await store.close()
    await engine.dispose()


async def test_statements_that_the_server_has_forgotten_are_prepared_again(
    node: PostgresStore, connection: asyncpg.Connection[Any]
) -> None:
    begun = trigger()
    await node.write([begun])
    await node.claim(1)
    for line in (node._writing, node._claiming):
        assert line._connection is not None
        await line._connection.execute("DEALLOCATE ALL")
    assert answers(await node.write([step(begun)])) == ["applied"]
    with pytest.raises(StoreUnavailable):
        await node.claim(1)
    assert await node.claim(1) == []
    assert await numbers(connection, begun.id) == [1, 2]


async def test_an_error_of_the_services_does_not_quote_what_people_wrote(database: str) -> None:
    engine = service_engine(database)
    with pytest.raises(DBAPIError) as caught:
        async with connected(engine) as open:
            await open.execute(text("SELECT * FROM nowhere WHERE said = :secret"), {"secret": "hunter2"})
    assert "hunter2" not in str(caught.value)
    await engine.dispose()


async def test_services_say_when_the_database_is_away(proxy: Proxy) -> None:
    engine = service_engine(proxy.url)
    records = PostgresRecords(engine)
    assert await records.default_version("acme", "w") is None
    proxy.refuse, proxy.lose_request = True, True
    with pytest.raises(StoreUnavailable):
        await records.default_version("acme", "w")
    proxy.refuse = False
    assert await records.default_version("acme", "w") is None
    await engine.dispose()


async def test_the_lease_is_renewed_while_claims_and_the_reaper_are_stuck(
    node: PostgresStore, connection: asyncpg.Connection[Any], database: str
) -> None:
    """REQ-04: a lease that waits behind a slow claim is a lost lease."""
    await connection.execute("BEGIN")
    await connection.execute("LOCK TABLE agiwo.run, agiwo.outbox IN ACCESS EXCLUSIVE MODE")
    watcher = await asyncpg.connect(database)
    stuck = [asyncio.create_task(one) for one in (node.claim(1), node.take_outbox(1, 1), node.reap())]
    await until_blocked(watcher)
    assert await node.beat(10.0)
    assert not any(task.done() for task in stuck)
    await connection.execute("ROLLBACK")
    await asyncio.gather(*stuck)
    await watcher.close()
