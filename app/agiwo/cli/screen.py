"""What the commands print: text for people, JSON for programs, and the end of a command with its exit status.

Exit statuses: 0 all went well, 1 the thing failed, 2 wrong use, 3 the service cannot be reached.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FAILED, WRONG_USE, NOT_REACHED = 1, 2, 3

#: Anything that a terminal would obey, or that would hide what is shown: control characters but line ends and tabs, and bidi marks.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class CommandEnds(Exception):
    """A command ends before its time: `status` for the shell, `message` for people, `document` for programs (the message unless given).

    Without a message nothing more is printed.
    """

    def __init__(self, status: int, message: str = "", document: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.document = document


def safe(text: str) -> str:
    """Text that others wrote, as a terminal may show it."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str = "") -> None:
    """A line for people."""
    _write(sys.stdout, safe(text))


def tell(text: str) -> None:
    """A line for people beside what is the command's result."""
    _write(sys.stderr, safe(text))


def give(value: Any) -> None:
    """The result for programs: one line of JSON."""
    _write(sys.stdout, json.dumps(value, ensure_ascii=True, separators=(", ", ": ")))


def _write(stream: Any, text: str) -> None:
    stream.write(text.encode(stream.encoding or "utf-8", "backslashreplace").decode(stream.encoding or "utf-8") + "\n")
    stream.flush()


def value_text(value: Any, limit: int = 100) -> str:
    """A value in one line of at most `limit` characters; one that the key may not see is told by its size."""
    if isinstance(value, Mapping) and value.get("redacted") is True and set(value) == {"redacted", "size", "sha256"}:
        return f"(hidden: {value['size']} bytes; the key has no role payload_viewer)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def problem_lines(problems: Iterable[Mapping[str, Any]], file: str | None = None) -> list[str]:
    """One line a problem: `file:line:column: severity: message`, or its pointer where it has no line."""
    out = []
    for problem in problems:
        line, column, at = problem.get("line"), problem.get("column"), problem.get("pointer") or ""
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        if line is None and at:
            place = f"{place}: {at}" if place else at
        severity = problem.get("severity", "error")
        out.append(f"{place}: {severity}: {problem.get('message', '')}" if place else f"{severity}: {problem.get('message', '')}")
    return out


def read_file(path: Path) -> bytes:
    """The bytes of a file that was named. Raises CommandEnds."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as exc:
        raise CommandEnds(WRONG_USE, f"{path}: {exc.strerror}") from None
