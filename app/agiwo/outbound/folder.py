"""A connection of kind `folder`: files below one folder that the operator allows, reached part by part so that no link leads out.

Every part of a path is opened relative to the one before and never through a symbolic link; a check of the text alone could be outrun.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agiwo.errors import PermissionDeniedError, StepError, ValidationError
from agiwo.outbound.connections import ConnectionSpec
from agiwo.values import shown

MAX_BYTES = 5_000_000
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TYPES = {
    errno.ENOENT: "NotFound", errno.EEXIST: "Conflict", errno.EACCES: "PermissionDenied", errno.EPERM: "PermissionDenied",
    errno.EROFS: "PermissionDenied", errno.ELOOP: "PermissionDenied", errno.ENOTDIR: "NotFound", errno.ENAMETOOLONG: "ValidationError",
    errno.EISDIR: "Conflict", errno.ENOTEMPTY: "Conflict", errno.ENOSPC: "Unavailable", errno.EDQUOT: "Unavailable",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder `root` of the connection `name`; written to only if `writable`, no file larger than `max_bytes`."""

    name: str
    root: Path
    writable: bool
    max_bytes: int

    @staticmethod
    def of(spec: ConnectionSpec) -> Folder:
        """Raises ValidationError that names the connection and what is wrong with it."""
        writable, most = spec.options.get("writable", False), spec.options.get("max_bytes", MAX_BYTES)
        root = Path(spec.url.removeprefix("file://"))
        wrong = None
        if unknown := sorted(set(spec.options) - {"writable", "max_bytes"}):
            wrong = f"there is no option {shown(unknown[0])}; there are max_bytes, writable"
        elif not isinstance(writable, bool):
            wrong = "`writable` has to be true or false"
        elif not isinstance(most, int) or isinstance(most, bool) or most < 1:
            wrong = "`max_bytes` has to be a positive integer"
        elif not root.is_absolute() or root == Path(root.anchor):
            wrong = "its URL has to be the absolute path of a folder, and not of the whole disk"
        if wrong is not None:
            raise ValidationError(f"the connection {spec.name!r}: {wrong}", not_done=True)
        return Folder(spec.name, root, writable, most)

    def read(self, path: str) -> bytes:
        """The file's bytes; raises StepError (NotFound, PermissionDenied, PayloadTooLarge)."""
        *parents, last = _parts(path)
        with self._told(path), self._entered(parents) as at:
            opened = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
            with os.fdopen(opened, "rb") as file:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    raise PermissionDeniedError(f"{shown(path)} in {self.name!r} is no ordinary file", not_done=True)
                data = file.read(self.max_bytes + 1)
        if len(data) > self.max_bytes:
            raise StepError(f"{shown(path)} in {self.name!r} has more than {self.max_bytes} bytes", type="PayloadTooLarge", not_done=True)
        return data

    def write(self, path: str, data: bytes, *, replace: bool) -> None:
        """Make the file, or replace it if wanted, so that whoever reads sees the old bytes or the new ones; missing folders are made.

        Raises StepError (PermissionDenied, Conflict if it is there and not to be replaced, PayloadTooLarge).
        """
        *parents, last = _parts(path)
        if not self.writable:
            raise PermissionDeniedError(f"the folder {self.name!r} is for reading only", not_done=True)
        if len(data) > self.max_bytes:
            raise StepError(f"{len(data)} bytes are to be written, allowed are {self.max_bytes}", type="PayloadTooLarge", not_done=True)
        with self._told(path), self._entered(parents, make=True) as at:
            part = f".agiwo-{secrets.token_hex(8)}.part"
            opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=at)
            try:
                with os.fdopen(opened, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(opened)
                if replace:
                    os.rename(part, last, src_dir_fd=at, dst_dir_fd=at)
                else:
                    os.link(part, last, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=at)
            try:
                os.fsync(at)
            except OSError as exc:
                message = f"{shown(path)} in {self.name!r} was written, and may not outlast a power cut: {os.strerror(exc.errno or 0)}"
                raise StepError(message, type="ToolError") from None

    @contextmanager
    def _entered(self, parents: list[str], *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder that `parents` lead to."""
        at = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in parents:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=at)
                inner = os.open(name, _OPEN_FOLDER, dir_fd=at)
                os.close(at)
                at = inner
            yield at
        finally:
            os.close(at)

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            # The system's own text would show where the folder lies.
            named = _TYPES.get(exc.errno or 0, "ToolError")
            raise StepError(f"{shown(path)} in {self.name!r}: {os.strerror(exc.errno or 0)}", type=named, not_done=True) from None


def _parts(path: str) -> list[str]:
    """The names of a path below the folder; raises PermissionDeniedError for one that could lead out, ValidationError for none at all."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\\" in path:
        raise PermissionDeniedError(f"the path {shown(path)} leads out of its folder", not_done=True)
    if not path or any(part in ("", ".") or len(part.encode()) > 255 for part in parts) or not path.isprintable():
        raise ValidationError(f"{shown(path)} is no path of a file: expected names joined by /", not_done=True)
    return parts
