"""Reading the mails that arrived, and checking the report against plain SQL over the same rows.

Trusts nothing that the service says: the mail as the server kept it, the table as its HTML says it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as mail_policy
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail as it arrived."""

    message_id: str
    to: str
    subject: str
    text: str
    html: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    holds: bool
    said: str


def mails(folder: Path) -> list[Mail]:
    """All mails that the server has accepted, oldest first."""
    return [_read(path.read_bytes()) for path in sorted(folder.glob("*.eml"))]


def _read(raw: bytes) -> Mail:
    message = message_from_bytes(raw, policy=mail_policy)
    assert isinstance(message, EmailMessage), "the policy makes EmailMessage"
    return Mail(
        str(message["Message-ID"] or "").strip(),
        str(message["To"] or ""),
        str(message["Subject"] or ""),
        _part(message, "plain"),
        _part(message, "html"),
    )


def _part(message: EmailMessage, kind: str) -> str:
    part = message.get_body((kind,))
    return "" if part is None else str(part.get_content()).replace("\r\n", "\n")


class _Tables(HTMLParser):
    """The cells of all rows, as text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][-1] += data


def html_table(html: str) -> list[dict[str, str]]:
    """The rows of the table in a page, by the names in its first row."""
    reader = _Tables()
    reader.feed(html)
    reader.close()
    if not reader.rows:
        return []
    names, *rows = reader.rows
    return [dict(zip(names, row, strict=False)) for row in rows]


def findings(mail: Mail | None, arrived: int, report: str, expected: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """What can be said of the mail: it came once, it begins with the approved text, its table is what SQL says."""
    once = Finding(arrived == 1 and mail is not None, f"one mail with that Message-ID arrived (found {arrived})")
    if mail is None:
        return [once]
    wanted = [{name: str(value) for name, value in row.items()} for row in expected]
    found = html_table(mail.html)
    return [
        once,
        Finding(_squeezed(mail.text).startswith(_squeezed(report)) and bool(report.strip()), "it begins with the text that was approved"),
        Finding(found == wanted, _compared(found, wanted)),
    ]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _compared(found: Sequence[Mapping[str, str]], wanted: Sequence[Mapping[str, str]]) -> str:
    if found == wanted:
        return f"its table equals plain SQL over the same rows, cell by cell ({len(wanted)} regions)"
    for number, (one, other) in enumerate(zip(found, wanted, strict=False), 1):
        if one != other:
            return f"its table differs from plain SQL in row {number}: {one} in the mail, {other} by SQL"
    return f"its table has {len(found)} rows, plain SQL gives {len(wanted)}"
