"""The embedded Postgres meets every way in which its owner, its watcher and itself can die, and every folder it can be given."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from agiwo.store.embedded import EmbeddedPostgres
from agiwo.store.pgbinaries import EmbeddedPostgresError, find_binaries, server_account, usable_place

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes accounts, so it needs root")

OWNER = """
import sys
from pathlib import Path
from agiwo.store.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), throwaway=True, report=print)
print(server.start(), server.is_owner, flush=True)
sys.stdin.read()
server.stop()
"""


class Owner:
    """Another process that starts the server on a folder and holds it until its standard input is closed."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url, is_owner = self._process.stdout.readline().split()
        self.is_owner = is_owner == "True"
        self.server = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        status = Path(f"/proc/{self.server}/status").read_text()
        self.watcher = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.wait()

    def wait(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture
def new_folder() -> Iterator[Path]:
    """A folder that the server's account can reach, which pytest's own is not when root runs the tests."""
    with tempfile.TemporaryDirectory(prefix="agiwo-pg-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(scope="module")
def initialised() -> Iterator[Path]:
    """A stopped server's folder to copy, since making one anew takes far longer than the rest of a test."""
    with tempfile.TemporaryDirectory(prefix="agiwo-pg-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        with embedded(Path(made)):
            pass
        yield Path(made)


@pytest.fixture
def folder(new_folder: Path, initialised: Path) -> Path:
    """A folder with a database in it, as an earlier start left it."""
    subprocess.run(["cp", "-a", f"{initialised}/.", str(new_folder)], check=True)
    return new_folder


def embedded(folder: Path, **more: object) -> EmbeddedPostgres:
    return EmbeddedPostgres(folder, throwaway=True, report=lambda line: None, **more)  # type: ignore[arg-type]


def wait_until_gone(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable, _, _ = select.select([handle], [], [], 30)
        assert readable, f"process {pid} lives on"
    finally:
        os.close(handle)


async def add_row(url: str) -> int:
    """Adds one row and gives the number of rows that are there."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (at timestamptz DEFAULT now())")
        await connection.execute("INSERT INTO kept DEFAULT VALUES")
        return int(await connection.fetchval("SELECT count(*) FROM kept"))
    finally:
        await connection.close()


async def test_rows_are_there_after_a_stop_and_a_start(new_folder: Path) -> None:
    server = embedded(new_folder)
    assert await add_row(server.start()) == 1
    server.stop()
    with pytest.raises(EmbeddedPostgresError, match="not started"):
        _ = server.url
    assert await add_row(server.start()) == 2
    server.stop()


async def test_only_a_throwaway_server_gives_up_safety(folder: Path) -> None:
    with EmbeddedPostgres(folder, report=lambda line: None) as server:
        connection = await asyncpg.connect(server.url)
        kept = [await connection.fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")]
        assert await connection.fetchval("SHOW listen_addresses") == ""
        await connection.close()
    assert kept == ["on", "on", "on"]


async def test_killed_owner_takes_its_server_along(folder: Path) -> None:
    owner = Owner(folder)
    assert await add_row(owner.url) == 1
    owner.kill()
    wait_until_gone(owner.server)
    with embedded(folder) as server:
        assert await add_row(server.url) == 2


async def test_server_that_outlived_owner_and_watcher_is_ended_by_the_next_start(folder: Path) -> None:
    owner = Owner(folder)
    assert await add_row(owner.url) == 1
    os.kill(owner.watcher, signal.SIGKILL)
    owner.kill()
    with embedded(folder) as server:
        wait_until_gone(owner.server)
        assert await add_row(server.url) == 2


async def test_start_right_after_everything_was_killed_recovers(folder: Path) -> None:
    owner = Owner(folder)
    assert await add_row(owner.url) == 1
    os.kill(owner.server, signal.SIGKILL)
    os.kill(owner.watcher, signal.SIGKILL)
    owner.kill()
    with embedded(folder) as server:
        assert await add_row(server.url) == 2


async def test_process_id_that_is_now_another_process_does_not_stop_the_start(folder: Path) -> None:
    owner = Owner(folder)
    os.kill(owner.server, signal.SIGKILL)
    os.kill(owner.watcher, signal.SIGKILL)
    owner.kill()
    pid_file = folder / "data" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n" + pid_file.read_text().split("\n", 1)[1])
    with embedded(folder) as server:
        assert await add_row(server.url) == 1


async def test_second_process_uses_the_server_of_the_first_and_leaves_it_running(folder: Path) -> None:
    owner = Owner(folder)
    guest = Owner(folder)
    assert (owner.is_owner, guest.is_owner, guest.url) == (True, False, owner.url)
    guest.leave()
    assert await add_row(owner.url) == 1
    owner.leave()
    wait_until_gone(owner.server)
    with embedded(folder) as server:
        assert server.is_owner


async def test_interrupted_initialisation_is_begun_anew(new_folder: Path) -> None:
    (new_folder / "data.new").mkdir()
    (new_folder / "data.new" / "PG_VERSION").write_text("18\n")
    with embedded(new_folder) as server:
        assert await add_row(server.url) == 1


async def test_folder_with_a_long_or_strange_name_works(new_folder: Path) -> None:
    deep = new_folder / ("x" * 90) / "a name, with % & ? signs"
    with embedded(deep) as server:
        assert await add_row(server.url) == 1
    strange = new_folder / "50% & more?"
    with embedded(strange) as server:
        assert await add_row(server.url) == 1


def test_database_of_another_major_version_is_refused_with_the_way_out(folder: Path) -> None:
    (folder / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedPostgresError, match="made by Postgres 9.*pg_dumpall"):
        embedded(folder).start()


def test_failed_start_shows_the_servers_own_words_and_frees_the_folder(folder: Path) -> None:
    server = embedded(folder)
    settings = folder / "data" / "postgresql.conf"
    sound = settings.read_text()
    settings.write_text(sound + "\nno_such_setting = 1\n")
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        server.start()
    settings.write_text(sound)
    server.start()
    server.stop()


def test_folder_without_programs_is_refused_by_name(new_folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"AGIWO_PG_BIN: .* does not hold both initdb and postgres"):
        embedded(new_folder, binaries=new_folder).start()
    assert (find_binaries(None) / "initdb").is_file()


@needs_root
async def test_root_keeps_the_data_where_the_servers_account_can_reach_it_and_changes_no_parent(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    lines: list[str] = []
    server = EmbeddedPostgres(closed / "db", throwaway=True, report=lines.append)
    assert await add_row(server.start()) == 1
    server.stop()
    assert await add_row(server.start()) == 2
    server.stop()
    assert closed.stat().st_mode & 0o777 == 0o700
    place = Path(lines[0].split("the database lies in ")[1])
    assert lines == [lines[0]] * 2 and (place / "data").stat().st_uid != 0
    shutil.rmtree(closed / "db")
    assert await add_row(server.start()) == 1, "a folder made anew starts anew"
    server.stop()
    shutil.rmtree(place)
    shutil.rmtree((closed / "db" / "elsewhere").read_text().strip())


@needs_root
def test_root_does_not_follow_a_folders_word_to_any_other_place(new_folder: Path) -> None:
    other = new_folder / "other"
    other.mkdir(mode=0o700)
    (new_folder / "elsewhere").write_text(f"{other}\n")
    assert usable_place(new_folder, server_account(None, new_folder)) == new_folder
    assert other.stat().st_mode & 0o777 == 0o700


@needs_root
def test_root_takes_the_account_that_already_owns_the_data(new_folder: Path) -> None:
    (new_folder / "data").mkdir()
    os.chown(new_folder / "data", 1, 1)
    account = server_account(None, new_folder)
    assert account is not None and account.uid == 1


@needs_root
@pytest.mark.parametrize(("name", "said"), [("no-such-user", "no user no-such-user"), ("root", "is root")])
def test_unfit_account_is_refused_by_name(folder: Path, name: str, said: str) -> None:
    with pytest.raises(EmbeddedPostgresError, match=said):
        server_account(name, folder)
