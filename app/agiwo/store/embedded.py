"""A real Postgres of our own in a folder: initialised once, running while its owner runs, gone when its owner is gone.

It supervises and nothing more: no schema, no queries, no settings; it blocks, and is used before any event loop runs.

The first process that starts it on a folder owns it. Others get the same URL, and the server stops with its owner, not with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote

from agiwo.store.pgbinaries import (
    EmbeddedPostgresError,
    as_account,
    find_binaries,
    own_folder,
    reachable_binaries,
    server_account,
    server_environment,
    socket_folder,
    usable_place,
)
from agiwo.store.watched import Account, Watched

ROLE = DATABASE = "agiwo"

#: Fast shutdown (sessions are cut off, everything is written), then immediate shutdown (the next start recovers).
STOP_SIGNALS = (signal.SIGINT, signal.SIGQUIT)

#: Above every limit of an operating system, so no process has it.
NOBODYS_PID = 2**31 - 2

LOG_LIMIT = 10 * 1024 * 1024


class EmbeddedPostgres:
    """Postgres in `folder`, over a unix socket that only this user can open.

    As root the server runs under an unprivileged account, and its files move to a place that this account can reach, which
    `report` is told. `throwaway` gives up safety against power loss for speed: for tests only.
    `binaries` (a folder with initdb and postgres) and `user` default to AGIWO_PG_BIN and AGIWO_PG_USER.
    """

    def __init__(
        self,
        folder: Path,
        *,
        throwaway: bool = False,
        report: Callable[[str], None],
        binaries: Path | None = None,
        user: str | None = None,
    ) -> None:
        given = os.environ.get("AGIWO_PG_BIN")
        self._binaries = binaries or (Path(given) if given else None)
        self._user = user or os.environ.get("AGIWO_PG_USER") or None
        self._folder = Path(folder).absolute()
        self._throwaway = throwaway
        self._report = report
        self._owner_lock: IO[bytes] | None = None
        self._server: Watched | None = None
        self._sockets: Path | None = None
        self._url: str | None = None

    @property
    def url(self) -> str:
        """A libpq-style URL of the database `agiwo`; raises EmbeddedPostgresError before `start`."""
        if self._url is None:
            raise EmbeddedPostgresError("the embedded Postgres is not started")
        return self._url

    @property
    def is_owner(self) -> bool:
        """Whether the server runs for this object, and not for another process that was there first."""
        return self._server is not None

    def start(self, timeout: float = 60) -> str:
        """Starts the server, or finds the one that another process runs on this folder, and gives its URL once it is ready.

        Raises EmbeddedPostgresError if it cannot run here or is not ready within `timeout` seconds.
        """
        if self._url is not None:
            return self._url
        deadline = time.monotonic() + timeout
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            while not self._become_owner():
                if url := self._url_of_owner():
                    self._url = url
                    return url
                _pause(deadline, f"another process holds {self._folder} but its Postgres does not get ready")
            try:
                account = server_account(self._user, self._folder)
                place = usable_place(self._folder, account)
                if account is not None and place != self._folder:
                    self._report(f"The user {account.name} cannot reach {self._folder}; the database lies in {place}")
                self._url = self._run(place, account, deadline)
            except BaseException:
                self._release()
                raise
        except PermissionError as error:
            raise EmbeddedPostgresError(f"no right to use {error.filename}: does {self._folder} belong to another user?") from error
        return self._url

    def stop(self) -> None:
        """Ends the server if it is ours, and waits until it is gone."""
        self._url = None
        self._release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- one owner ------------------------------------------------------------------------------------------------------------

    @property
    def _url_file(self) -> Path:
        return self._folder / "url"

    def _become_owner(self) -> bool:
        # The lock goes with this process, however it dies; a server that is still shutting down is met in `_end_orphan`.
        lock = (self._folder / "owner.lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._owner_lock = lock
        self._url_file.unlink(missing_ok=True)
        return True

    def _url_of_owner(self) -> str | None:
        # The owner writes the file when its server is ready and removes it before anything else.
        with contextlib.suppress(FileNotFoundError):
            return self._url_file.read_text().strip() or None
        return None

    def _release(self) -> None:
        if self._owner_lock is None:
            return
        self._url_file.unlink(missing_ok=True)
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._sockets is not None:
            # It may lie apart from the data, where nobody would clean up after us.
            with contextlib.suppress(OSError):
                self._sockets.rmdir()
        self._owner_lock.close()
        self._owner_lock = None

    # -- the server -----------------------------------------------------------------------------------------------------------

    def _run(self, place: Path, account: Account | None, deadline: float) -> str:
        binaries, version = reachable_binaries(find_binaries(self._binaries), place, account)
        data, sockets = place / "data", socket_folder(place)
        own_folder(sockets, account, 0o700)
        self._sockets = sockets
        if data.exists():
            _check_version(data, version)
            _end_orphan(data, deadline)
            for left_behind in sockets.glob(".s.PGSQL.*"):
                left_behind.unlink()
        else:
            self._initialise(binaries, place, account)
        log = place / "postgres.log"
        if log.exists() and log.stat().st_size > LOG_LIMIT:
            log.replace(log.with_suffix(".log.1"))
        while not self._launch(binaries, data, sockets, account, log, deadline):
            # The last processes of a server that was killed hold its memory for a moment longer.
            _pause(deadline, f"an earlier Postgres on {data} does not end")
        url = f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(sockets), safe='/')}"
        making = self._url_file.with_suffix(".new")
        making.write_text(url + "\n")
        making.replace(self._url_file)
        return url

    def _initialise(self, binaries: Path, place: Path, account: Account | None) -> None:
        """Makes the cluster and the database beside its final place, then renames it: an interrupted attempt leaves no half."""
        making = place / "data.new"
        shutil.rmtree(making, ignore_errors=True)
        own_folder(making, account, 0o700)
        sync = ["--no-sync"] if self._throwaway else []
        _complete(
            [
                str(binaries / "initdb"), "--pgdata", str(making), "--username", ROLE, "--auth", "trust", "--encoding", "UTF8",
                "--locale", "C.UTF-8", "--no-instructions", *sync,
            ],
            "",
            account,
        )  # fmt: skip
        # Single-user mode needs neither a socket nor a client.
        _complete([str(binaries / "postgres"), "--single", "-D", str(making), "postgres"], f"CREATE DATABASE {DATABASE}\n", account)
        making.rename(place / "data")

    def _launch(self, binaries: Path, data: Path, sockets: Path, account: Account | None, log_path: Path, deadline: float) -> bool:
        """Starts the server and waits until it takes connections; False if an earlier one still holds its shared memory."""
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(sockets),
            "unix_socket_permissions": "0700",
            "max_connections": "100",
            "shared_buffers": "128MB",
        }
        if self._throwaway:
            # Only the machine's own crash can lose anything now: a commit is still written before it is confirmed.
            options |= {"fsync": "off", "full_page_writes": "off"}
        command = [str(binaries / "postgres"), "-D", str(data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with log_path.open("ab") as log:
            seen = log.tell()
            server = Watched(command, environment=server_environment(), log=log, stop_signals=STOP_SIGNALS, account=account)
        try:
            while not _is_ready(data):
                if server.ended() is not None:
                    said = _tail(log_path, seen)
                    if "pre-existing shared memory block" in said:
                        return False
                    raise EmbeddedPostgresError(f"Postgres ended while it started. Its log, {log_path}, says: {said}")
                _pause(deadline, f"Postgres is not ready in time; see {log_path}")
        except BaseException:
            server.stop()
            raise
        self._server = server
        return True


def _check_version(data: Path, version: str) -> None:
    present, mine = (data / "PG_VERSION").read_text().strip(), version.split(".")[0]
    if present != mine:
        raise EmbeddedPostgresError(
            f"the database in {data} was made by Postgres {present}, the programs found are version {mine}. Dump it with version "
            f"{present} (pg_dumpall), move the folder away and restore the dump, or name programs of version {present} in AGIWO_PG_BIN."
        )


def _end_orphan(data: Path, deadline: float) -> None:
    """Ends a server on this data that outlived its owner and its watcher; forgets a process id that is another's by now."""
    pid_file = data / "postmaster.pid"
    try:
        first, rest = pid_file.read_text().split("\n", 1)
        pid = int(first)
    except (FileNotFoundError, ValueError):
        return
    if not _is_server_on(pid, data):
        # Postgres would take a living process of that number, or a dead one that nobody collected, for a server and refuse to
        # start. The rest stays: by it Postgres finds out whether children of the dead server still hold its memory.
        pid_file.write_text(f"{NOBODYS_PID}\n{rest}")
        return
    soft, hard = deadline - time.monotonic(), 5.0
    for number, patience in ((signal.SIGINT, max(1.0, min(15.0, soft / 2))), (signal.SIGQUIT, hard), (signal.SIGKILL, hard)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        end = time.monotonic() + patience
        while _is_server_on(pid, data):
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        else:
            return
    raise EmbeddedPostgresError(f"an earlier Postgres on {data} (process {pid}) does not end")


def _is_server_on(pid: int, data: Path) -> bool:
    """Whether the process lives and is a Postgres on this data folder (a dead one that nobody has collected yet is not)."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        if Path("/proc/self/cmdline").exists():
            return False
        listed = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, check=False).stdout
        return b"postgres" in listed and os.fsencode(data) in listed
    return arguments[0].endswith(b"postgres") and os.fsencode(data) in arguments


def _is_ready(data: Path) -> bool:
    # The eighth line of the file is the server's own word on its state; pg_ctl reads it too.
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    # A server that was killed leaves its word behind.
    return len(lines) >= 8 and lines[7].strip() == "ready" and _is_server_on(int(lines[0]), data)


def _complete(command: list[str], given: str, account: Account | None) -> None:
    done = subprocess.run(
        command, input=given, env=server_environment(), cwd="/", capture_output=True, text=True, check=False, **as_account(account)
    )
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip()[-2000:]
        raise EmbeddedPostgresError(f"{Path(command[0]).name} failed with status {done.returncode}: {said}")


def _tail(log: Path, since: int) -> str:
    with log.open("rb") as opened:
        opened.seek(since)
        return opened.read()[-2000:].decode(errors="replace").strip()


def _pause(deadline: float, otherwise: str) -> None:
    if time.monotonic() > deadline:
        raise EmbeddedPostgresError(otherwise)
    time.sleep(0.02)
