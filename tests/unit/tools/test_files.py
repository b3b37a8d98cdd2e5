"""`file.read` and `file.write`: no path and no link leads out, files are whole or not there, and sizes are bounded."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from agiwo.errors import StepError
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.outbound.folder import Folder
from agiwo.toolkit import ToolContext
from agiwo.tools.builtin.files import read, write
from agiwo.tools.calling import call_tool


class Files:
    def __init__(self, root: Path, **options: Any) -> None:
        self.ctx = ToolContext(connections=Connections([ConnectionSpec("files", "folder", str(root), {"writable": True, **options})]))

    async def read(self, path: str, **more: Any) -> Any:
        return await call_tool(read, {"path": path, **more}, self.ctx)

    async def write(self, path: str, content: Any, **more: Any) -> Any:
        return await call_tool(write, {"path": path, "content": content, **more}, self.ctx)

    async def fails(self, path: str, *content: Any, **more: Any) -> StepError:
        with pytest.raises(StepError) as caught:
            await (self.write(path, *content, **more) if content else self.read(path, **more))
        assert caught.value.not_done or not content
        return caught.value


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("hush")
    inside = tmp_path / "inside"
    inside.mkdir()
    return inside


@pytest.fixture
def files(root: Path) -> Files:
    return Files(root)


@pytest.mark.parametrize(
    ("content", "more", "form", "data"),
    [
        ("grün\n", {}, "text", "grün\n".encode()),
        ({"n": 123456789012345678901234567890}, {}, "json", b'{"n":123456789012345678901234567890}'),
        ("AP8=", {"encoding": "base64"}, "base64", b"\x00\xff"),
        ("", {}, "text", b""),
    ],
)
async def test_what_is_written_is_read(files: Files, root: Path, content: Any, more: dict[str, str], form: str, data: bytes) -> None:
    assert await files.write("a/b/c.x", content, **more) == {"path": "a/b/c.x", "size": len(data)}
    assert (root / "a" / "b" / "c.x").read_bytes() == data
    assert await files.read("a/b/c.x", **{"as": form}) == {"path": "a/b/c.x", "size": len(data), "content": content}


PATHS = [
    "../outside/secret.txt",
    "/etc/passwd",
    "a/../../outside/secret.txt",
    "..",
    "a\\..\\b",
    ".",
    "a//b",
    "a/",
    "./a",
    "a\n",
    "x" * 256,
]


@pytest.mark.parametrize("path", PATHS)
async def test_path_that_leads_out_or_nowhere_is_refused(files: Files, root: Path, path: str) -> None:
    for error in (await files.fails(path), await files.fails(path, "x")):
        assert error.type in ("PermissionDenied", "ValidationError")
    assert os.listdir(root) == [] and os.listdir(root.parent / "outside") == ["secret.txt"]


async def test_no_link_is_followed(files: Files, root: Path) -> None:
    outside = root.parent / "outside"
    (root / "file").symlink_to(outside / "secret.txt")
    (root / "folder").symlink_to(outside)
    for path in ("file", "folder/secret.txt"):
        assert (await files.fails(path)).type in ("PermissionDenied", "NotFound")
    assert (await files.fails("folder/new.txt", "x")).type in ("PermissionDenied", "NotFound")
    await files.write("file", "mine")
    assert (outside / "secret.txt").read_text() == "hush" and (root / "file").read_text() == "mine"
    assert os.listdir(outside) == ["secret.txt"]


async def test_only_ordinary_files_are_read(files: Files, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(root / "s"))
    (root / "d").mkdir()
    for path in ("pipe", "s", "d"):
        assert isinstance(await files.fails(path), StepError)
    assert (await files.fails("none.txt")).type == "NotFound"


async def test_create_leaves_what_is_there(files: Files, root: Path) -> None:
    await files.write("a", "first", mode="create")
    assert (await files.fails("a", "second", mode="create")).type == "Conflict"
    assert (root / "a").read_text() == "first" and os.listdir(root) == ["a"]
    await files.write("a", "third")
    assert (root / "a").read_text() == "third"


async def test_sizes_are_bounded_and_nothing_is_left_of_what_is_too_large(root: Path) -> None:
    files = Files(root, max_bytes=3)
    (root / "long").write_text("1234")
    assert (await files.fails("long")).type == "PayloadTooLarge"
    assert (await files.fails("new", "1234")).type == "PayloadTooLarge"
    await files.write("new", "123")
    assert sorted(os.listdir(root)) == ["long", "new"]


async def test_folder_is_for_reading_unless_the_operator_says_otherwise(root: Path) -> None:
    assert (await Files(root, writable=False).fails("a", "x")).type == "PermissionDenied"
    assert os.listdir(root) == []


async def test_content_that_is_not_what_it_should_be_is_refused(files: Files, root: Path) -> None:
    (root / "b").write_bytes(b"\xff\x00")
    assert (await files.fails("b")).type == "ValidationError"
    assert (await files.fails("b", **{"as": "json"})).type == "ValidationError"
    assert (await files.fails("c", "no base64!", encoding="base64")).type == "ValidationError"
    assert (await files.fails("a", "x", folder="elsewhere")).type == "NotFound"


async def test_error_does_not_show_where_the_folder_lies(files: Files, root: Path) -> None:
    assert str(root) not in (await files.fails("none.txt")).message


@pytest.mark.parametrize(
    ("url", "options"), [("relative", {}), ("/", {}), ("/x", {"writable": 1}), ("/x", {"max_bytes": 0}), ("/x", {"follow": True})]
)
def test_folder_that_cannot_be_meant_is_refused(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(StepError, match="the connection 'f'"):
        Folder.of(ConnectionSpec("f", "folder", url, options))
