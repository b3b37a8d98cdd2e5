"""What every storage of drafts, marks, holds and deletion promises, in one suite: on a real Postgres, and in memory."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import pytest

from agiwo.clock import SystemClock
from agiwo.ids import uuid7
from agiwo.ports.records import NewVersion, Published, Records
from agiwo.ports.store import Answer, InstanceStore, NewInstance, Verdict, Write, WriteKind
from agiwo.ports.workflows import Draft, Hold, Marked, WorkflowRow, WorkflowStore
from agiwo.store.memory import MemoryDatabase, MemoryStore
from agiwo.store.memory_records import MemoryRecords
from agiwo.store.memory_workflows import MemoryWorkflows
from agiwo.store.pool import service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.records import PostgresRecords
from agiwo.store.schema import SCHEMA, metadata
from agiwo.store.workflows import PostgresWorkflows

TENANT = "acme"


@dataclass
class World:
    """One set of tables from all its sides."""

    node: InstanceStore
    records: Records
    workflows: WorkflowStore

    async def publish(self, *versions: str, workflow: str = "weekly", tenant: str = TENANT) -> None:
        for text in versions:
            number, _, label = text.partition("-")
            rank = number.replace(".", "") + ("" if label else "!1")
            new = NewVersion(workflow, text, rank, label, f"hash of {text}", f"version: {text}", {"steps": []}, "alice")
            assert (await self.records.publish_version(tenant, new)).answer is Published.CREATED

    async def begin(self, version: str = "1.0", workflow: str = "weekly", tenant: str = TENANT, key: str | None = None) -> Verdict:
        return (await self.node.write([first(version, workflow, tenant, key)]))[0]


@pytest.fixture(params=["postgres", "memory"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        shared = MemoryDatabase()
        node: Any = MemoryStore(shared)
        await node.join("n1")
        yield World(node, MemoryRecords(shared), MemoryWorkflows(shared))
        await node.close()
        return
    url = request.getfixturevalue("module_database")
    connection = await asyncpg.connect(url)
    await connection.execute("TRUNCATE " + ", ".join(f"{SCHEMA}.{table.name}" for table in metadata.sorted_tables))
    await connection.close()
    engine = service_engine(url)
    node = PostgresStore(url)
    await node.join("n1")
    yield World(node, PostgresRecords(engine), PostgresWorkflows(engine))
    await node.close()
    await engine.dispose()


def first(version: str = "1.0", workflow: str = "weekly", tenant: str = TENANT, key: str | None = None) -> Write:
    at = SystemClock().now()
    new = NewInstance(workflow, version, "hash", "trace", idempotency_key=key, request_digest=key)
    id = uuid7(at, secrets.randbits(66), 7)
    return Write(WriteKind.NEW, id, tenant, epoch=1, prev_seq=0, seq=1, records='[{"seq":1}]', at=at, status="RUNNING", new=new)


def end_of(begun: Write) -> Write:
    return replace(begun, kind=WriteKind.END, prev_seq=1, seq=2, records='[{"seq":2}]', status="SUCCESS", new=None)


APPLIED = Verdict(Answer.APPLIED)
PAUSED = Verdict(Answer.HELD_BACK, message="paused")
DELETED = Verdict(Answer.HELD_BACK, message="deleted")


# --- marks -----------------------------------------------------------------------------------------------------------


async def test_the_version_that_is_marked_is_the_default_and_there_is_one_at_most(world: World) -> None:
    await world.publish("1.0", "1.1", "2.0-beta")
    mark, default = world.workflows.mark_default, world.records.default_version
    assert await default(TENANT, "weekly") == "1.1"
    assert await mark(TENANT, "weekly", "1.0") is Marked.CHANGED
    assert await mark(TENANT, "weekly", "1.0") is Marked.UNCHANGED
    assert await mark(TENANT, "weekly", "2.0-beta") is Marked.CHANGED
    assert await default(TENANT, "weekly") == "2.0-beta"
    lines = await world.records.list_versions(TENANT, "weekly")
    assert [line.version for line in lines if line.is_default] == ["2.0-beta"]
    assert await mark(TENANT, "weekly", "7") is Marked.UNKNOWN
    assert await mark("other", "weekly", "1.0") is Marked.UNKNOWN
    assert await default(TENANT, "weekly") == "2.0-beta"
    assert await mark(TENANT, "weekly", None) is Marked.CHANGED
    assert await mark(TENANT, "weekly", None) is Marked.UNCHANGED
    assert await default(TENANT, "weekly") == "1.1"


async def test_of_marks_at_the_same_time_one_is_left(world: World) -> None:
    await world.publish("1.0", "1.1", "1.2")
    await asyncio.gather(*(world.workflows.mark_default(TENANT, "weekly", f"1.{n % 3}") for n in range(9)))
    lines = await world.records.list_versions(TENANT, "weekly")
    assert sum(line.is_default for line in lines) == 1


async def test_a_deprecated_version_is_not_taken_unless_it_is_marked(world: World) -> None:
    await world.publish("1.0", "1.1")
    deprecate = world.workflows.mark_deprecated
    assert await deprecate(TENANT, "weekly", "1.1", True) is Marked.CHANGED
    assert await deprecate(TENANT, "weekly", "1.1", True) is Marked.UNCHANGED
    assert await deprecate(TENANT, "weekly", "9", True) is Marked.UNKNOWN
    assert await deprecate("other", "weekly", "1.0", True) is Marked.UNKNOWN
    assert await world.records.default_version(TENANT, "weekly") == "1.0"
    assert await deprecate(TENANT, "weekly", "1.0", True) is Marked.CHANGED
    assert await world.records.default_version(TENANT, "weekly") is None
    assert await deprecate(TENANT, "weekly", "1.1", False) is Marked.CHANGED
    assert await world.records.default_version(TENANT, "weekly") == "1.1"


# --- holds -----------------------------------------------------------------------------------------------------------


async def test_a_paused_workflow_begins_nothing_and_says_who_paused_it_and_why(world: World) -> None:
    hold = await world.workflows.pause(TENANT, "weekly", "user:op", "the bank is closed")
    assert (hold.by, hold.reason) == ("user:op", "the bank is closed")
    assert await world.workflows.pause(TENANT, "weekly", "user:other", None) == hold, "the first hold stays"
    assert await world.workflows.hold(TENANT, "weekly") == hold
    assert await world.workflows.hold("other", "weekly") is None
    assert await world.begin(key="k") == PAUSED
    assert await world.begin(workflow="daily") == APPLIED
    assert await world.begin(tenant="other") == APPLIED
    assert await world.workflows.resume("other", "weekly") is None
    assert await world.workflows.resume(TENANT, "weekly") == hold
    assert await world.workflows.resume(TENANT, "weekly") is None
    assert await world.begin(key="k") == APPLIED, "what was held back has used no key up"


async def test_what_was_begun_goes_on_while_its_workflow_is_paused_and_its_key_still_finds_it(world: World) -> None:
    begun = first(key="k")
    assert await world.node.write([begun]) == [APPLIED]
    await world.workflows.pause(TENANT, "weekly", "user:op", None)
    again = await world.begin(key="k")
    assert (again.answer, again.existing) == (Answer.DUPLICATE, begun.id)
    assert await world.node.write([end_of(begun)]) == [APPLIED]


async def test_in_a_batch_only_what_is_held_back_is_left_out(world: World) -> None:
    await world.workflows.pause(TENANT, "weekly", "user:op", None)
    batch = [first(workflow=name) for name in ("weekly", "daily", "weekly", "monthly")]
    assert await world.node.write(batch) == [PAUSED, APPLIED, PAUSED, APPLIED]


async def test_after_a_pause_has_returned_nothing_is_begun_however_many_begin_meanwhile(world: World) -> None:
    paused = asyncio.Event()
    late: list[Verdict] = []

    async def storm() -> None:
        while not paused.is_set() or len(late) < 20:
            after = paused.is_set()
            verdict = await world.begin()
            if after:
                late.append(verdict)
            await asyncio.sleep(0)

    async def pause() -> None:
        await world.workflows.pause(TENANT, "weekly", "user:op", None)
        paused.set()

    await asyncio.gather(storm(), pause())
    assert set(late) == {PAUSED}


# --- deletion --------------------------------------------------------------------------------------------------------


async def test_a_version_that_nothing_uses_is_deleted_and_its_name_is_kept_for_its_content(world: World) -> None:
    await world.publish("1.0", "1.1")
    gone = await world.workflows.delete(TENANT, "weekly", "1.0", "user:op")
    assert (gone.versions, gone.hanging) == (("1.0",), None)
    assert await world.records.get_version(TENANT, "weekly", "1.0") is None
    assert await world.begin("1.0") == DELETED
    assert await world.begin("1.1") == APPLIED
    other = NewVersion("weekly", "1.0", "10!1", "", "another", "x", {"steps": []}, "alice")
    assert (await world.records.publish_version(TENANT, other)).answer is Published.DELETED
    await world.publish("1.0")
    assert await world.begin("1.0") == APPLIED
    assert (await world.workflows.delete(TENANT, "weekly", "9", "user:op")).versions == ()
    assert (await world.workflows.delete("other", "weekly", "1.1", "user:op")).versions == ()


async def test_what_instances_use_is_not_deleted(world: World) -> None:
    await world.publish("1.0", "1.1")
    begun = [first() for _ in range(7)]
    assert set(await world.node.write(begun)) == {APPLIED}
    refused = await world.workflows.delete(TENANT, "weekly", "1.0", "user:op")
    assert refused.versions == () and refused.hanging is not None
    newest = sorted((w.id for w in begun), reverse=True)[:5]
    assert (refused.hanging.live, refused.hanging.some, refused.hanging.ended) == (7, tuple(newest), False)
    assert (await world.workflows.delete(TENANT, "weekly", None, "user:op")).hanging == refused.hanging
    assert await world.begin("1.0") == APPLIED, "a deletion that was refused forbids nothing"
    assert (await world.workflows.delete(TENANT, "weekly", "1.1", "user:op")).versions == ("1.1",)


async def test_a_version_whose_instances_have_ended_is_kept_with_them(world: World) -> None:
    await world.publish("1.0")
    begun = first()
    await world.node.write([begun])
    await world.node.write([end_of(begun)])
    hanging = (await world.workflows.delete(TENANT, "weekly", "1.0", "user:op")).hanging
    assert hanging is not None and (hanging.live, hanging.ended) == (0, True)
    assert hanging == await world.workflows.hanging(TENANT, "weekly", "1.0")
    assert await world.workflows.hanging("other", "weekly", None) is None


async def test_a_whole_workflow_goes_with_its_drafts_and_its_hold(world: World) -> None:
    await world.publish("1.0", "1.1")
    await world.publish("1.0", workflow="daily")
    await world.workflows.pause(TENANT, "weekly", "user:op", None)
    await world.workflows.keep_draft(TENANT, draft("2.0"))
    gone = await world.workflows.delete(TENANT, "weekly", None, "user:op")
    assert sorted(gone.versions) == ["1.0", "1.1"]
    assert await world.workflows.hold(TENANT, "weekly") is None
    assert await world.workflows.drafts(TENANT, "weekly", None, 10) == []
    assert [row.workflow for row in await world.workflows.workflows(TENANT, None, None, 10)] == ["daily"]
    assert await world.begin("1.1") == DELETED


# --- drafts ----------------------------------------------------------------------------------------------------------


def draft(version: str, source: str = "x", workflow: str = "weekly") -> Draft:
    problems = [{"code": "unknown_step", "severity": "error", "message": "no"}]
    return Draft(workflow, version, 1, 0, "alice", source=source, problems=problems)


async def test_a_draft_takes_the_place_of_the_one_before_and_goes_when_its_version_is_published(world: World) -> None:
    keep, drafts = world.workflows.keep_draft, world.workflows.drafts
    assert await keep(TENANT, draft("1.0", "a"))
    assert not await keep(TENANT, draft("1.0", "b"))
    assert await keep(TENANT, draft("1.1"))
    assert await keep("other", draft("1.0", "theirs"))
    lines = await drafts(TENANT, "weekly", None, 10)
    assert [(d.version, d.errors) for d in lines] == [("1.0", 1), ("1.1", 1)]
    assert not any(isinstance(line, Draft) for line in lines), "a list has no texts"
    assert [d.version for d in await drafts(TENANT, "weekly", "1.0", 10)] == ["1.1"]
    kept = await world.workflows.draft(TENANT, "weekly", "1.0")
    assert kept is not None and kept.source == "b" and kept.problems == draft("1.0").problems and kept.saved_at > 0
    assert await world.workflows.draft(TENANT, "weekly", "3") is None
    await world.publish("1.0")
    assert [d.version for d in await drafts(TENANT, "weekly", None, 10)] == ["1.1"]
    assert await world.workflows.delete_draft(TENANT, "weekly", "1.1")
    assert not await world.workflows.delete_draft(TENANT, "weekly", "1.1")
    assert len(await drafts("other", "weekly", None, 10)) == 1


# --- the list --------------------------------------------------------------------------------------------------------


async def test_workflows_are_listed_by_name_with_what_a_trigger_takes(world: World) -> None:
    """REQ-37: pages by name, each once."""
    await world.publish("1.0", "1.1", "2.0-beta")
    await world.publish("1", workflow="a_week")
    await world.publish("1", workflow="axweek")
    await world.publish("1", workflow="zzz", tenant="other")
    await world.workflows.mark_default(TENANT, "weekly", "1.0")
    await world.workflows.keep_draft(TENANT, draft("3.0"))
    hold = await world.workflows.pause(TENANT, "axweek", "user:op", "why")
    a, b = WorkflowRow("a_week", "1", "1", None, 1, 0, None), WorkflowRow("axweek", "1", "1", None, 1, 0, hold)
    c = WorkflowRow("weekly", "1.0", "2.0-beta", "1.0", 3, 1, None)
    listed = world.workflows.workflows
    assert await listed(TENANT, None, None, 10) == [a, b, c]
    assert await listed(TENANT, None, None, 2) == [a, b]
    assert await listed(TENANT, None, "axweek", 10) == [c]
    assert await listed(TENANT, "A_W", None, 10) == [a], "letters of a pattern stand for themselves"
    assert await listed(TENANT, "%", None, 10) == []
    assert await world.workflows.workflow(TENANT, "weekly") == c
    assert await world.workflows.workflow(TENANT, "Weekly") is None
    assert await world.workflows.workflow("other", "weekly") is None
    assert isinstance(b.hold, Hold)
