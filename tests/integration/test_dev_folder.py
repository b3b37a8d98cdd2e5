"""What `agiwo dev` makes of a folder of definitions, on a real database: which version stands, and which one triggers take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agiwo.cli.dev.folder import DevFolder
from agiwo.service.callers import ADMIN, Caller
from agiwo.service.changes import PLAIN
from kit.api import World, api_world

CALLER = Caller("default", "user:test", frozenset({ADMIN}))


@pytest.fixture(scope="module")
async def world(module_database: str) -> AsyncIterator[World]:
    async with api_world(module_database) as made:
        yield made


class Folder:
    """A folder with the definitions of one workflow, and what was told of it."""

    def __init__(self, world: World, path: Path, workflow: str) -> None:
        self.services = world.services
        self.path = path
        self.workflow = workflow
        self.said: list[str] = []
        self.heard = asyncio.Event()
        self.dev = self.anew()

    def anew(self) -> DevFolder:
        """As a second start of dev has it."""
        self.said.clear()
        self.dev = DevFolder(self.services, self.path, "default", self._hear)
        return self.dev

    def _hear(self, line: str) -> None:
        self.said.append(line.replace(f"{self.path}/", ""))
        self.heard.set()

    def save(self, name: str, version: str, value: object) -> None:
        step = f"{{id: a, type: tool_call, tool: debug.echo, parameters: {{value: {value}}}}}"
        (self.path / name).write_text(f'id: {self.workflow}\nversion: "{version}"\nsteps: [{step}]\n')

    async def taken(self) -> str:
        """The version that a trigger takes."""
        return str((await self.services.workflows.view(CALLER, self.workflow))["version"])

    async def told(self, text: str) -> None:
        """Follow until something is told that holds `text`."""
        self.heard.clear()
        following = asyncio.create_task(self.dev.follow())
        async with asyncio.timeout(30):
            while not any(text in line for line in self.said):
                await self.heard.wait()
                self.heard.clear()
        following.cancel()
        await asyncio.wait([following])


async def test_files_of_two_versions_stay_what_they_are_until_one_is_saved(world: World, tmp_path: Path) -> None:
    folder = Folder(world, tmp_path, "two")
    folder.save("old.yaml", "1.0", 1)
    folder.save("new.yaml", "1.1", 1)
    await folder.dev.begin()
    assert sorted(folder.said[:2]) == ["new.yaml: two 1.1 is published", "old.yaml: two 1.0 is published"]
    assert await folder.taken() == "1.1"

    folder.save("old.yaml", "1.0", 2)
    await folder.told("old.yaml: two 1.0 has changed: two 1.0-dev.1 is published, and triggers take it")
    assert await folder.taken() == "1.0-dev.1"

    await folder.anew().begin()  # nothing was saved meanwhile
    assert folder.said == [f"watches {tmp_path} with 2 definitions"]
    assert await folder.taken() == "1.0-dev.1"

    folder.save("old.yaml", "1.0", 1)  # undone while nobody watched
    await folder.anew().begin()
    assert "old.yaml: two 1.0 stands already, and triggers take it" in folder.said
    assert await folder.taken() == "1.0"


async def test_a_new_version_is_taken_though_another_is_marked(world: World, tmp_path: Path) -> None:
    folder = Folder(world, tmp_path, "next")
    folder.save("a.yaml", "1.0", 1)
    await folder.dev.begin()
    folder.save("a.yaml", "1.0", 2)
    await folder.told("next 1.0-dev.1 is published")
    folder.save("a.yaml", "1.1", 2)
    await folder.told("a.yaml: next 1.1 is published, and triggers take it")
    assert await folder.taken() == "1.1"


async def test_a_version_that_came_while_nobody_watched_is_taken_if_it_is_higher_than_the_mark(world: World, tmp_path: Path) -> None:
    folder = Folder(world, tmp_path, "later")
    folder.save("a.yaml", "1.0", 1)
    await folder.dev.begin()
    folder.save("a.yaml", "1.0", 2)
    await folder.told("later 1.0-dev.1 is published")
    folder.save("a.yaml", "1.1", 1)
    folder.save("b.yaml", "0.9", 1)
    await folder.anew().begin()
    assert await folder.taken() == "1.1"


async def test_names_that_were_deleted_are_passed_by(world: World, tmp_path: Path) -> None:
    folder = Folder(world, tmp_path, "gone")
    folder.save("a.yaml", "1.0", 1)
    await folder.dev.begin()
    folder.save("a.yaml", "1.0", 2)
    await folder.told("gone 1.0-dev.1 is published")
    await folder.services.workflows.mark_default(CALLER, "gone", None, PLAIN)
    await folder.services.workflows.delete(CALLER, "gone", "1.0-dev.1", PLAIN)
    folder.save("a.yaml", "1.0", 3)
    await folder.told("gone 1.0-dev.2 is published, and triggers take it")


async def test_what_the_service_refuses_is_told_and_changes_nothing(world: World, tmp_path: Path) -> None:
    folder = Folder(world, tmp_path, "same")
    folder.save("a.yaml", "1.0", 1)
    await folder.dev.begin()
    folder.save("a.yaml", "1.00", 2)
    await folder.told("a.yaml: same 1.0 stays what it was")
    assert any("is equal to version 1.0" in line for line in folder.said)
    assert await folder.taken() == "1.0"
    (tmp_path / "a.yaml").write_bytes(b"\xff\x00: [")
    folder.said.clear()
    await folder.told("a.yaml: same 1.0 stays what it was")
    assert folder.said[0].startswith("a.yaml")


async def test_what_an_editor_keeps_beside_a_file_is_no_definition(world: World, tmp_path: Path) -> None:
    folder = Folder(world, tmp_path, "clean")
    (tmp_path / ".#a.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a.yaml~").write_text("x")
    (tmp_path / ".a.yaml.swp").write_text("x")
    await folder.dev.begin()
    assert folder.said == [f"watches {tmp_path} with 0 definitions"]
