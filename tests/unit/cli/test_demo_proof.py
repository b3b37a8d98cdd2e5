"""The demo's proof must fail whenever the mail is not what plain SQL says."""

from __future__ import annotations

from email.message import EmailMessage
from html import escape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiwo.cli.demo.proof import Mail, findings, html_table, mails
from agiwo.testing.sales import create_sqlite, expected_table, generate

CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


def table(rows: list[dict[str, object]]) -> str:
    names = list(rows[0])
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(row[name]))}</td>" for name in names) + "</tr>" for row in rows)
    return f"<p>x</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@given(st.lists(st.fixed_dictionaries({"region": CELLS, "orders": st.integers()}), min_size=1, max_size=4))
def test_a_table_is_read_back_cell_by_cell(rows: list[dict[str, object]]) -> None:
    assert html_table(table(rows)) == [{name: str(value) for name, value in row.items()} for row in rows]


@pytest.fixture
def expected(tmp_path: Path) -> list[dict[str, object]]:
    create_sqlite(tmp_path / "sales.sqlite", generate(1, 60))
    return expected_table(tmp_path / "sales.sqlite")


def test_the_right_mail_holds_in_everything(expected: list[dict[str, object]]) -> None:
    mail = Mail("<1@x>", "a@b", "s", "The report.\n\ntable", table(expected))
    assert all(finding.holds for finding in findings(mail, 1, "The  report.", expected))


@pytest.mark.parametrize("fault", ["cell", "missing row", "order", "twice", "never", "other text", "no table"])
def test_any_fault_is_found(expected: list[dict[str, object]], fault: str) -> None:
    rows = [dict(row) for row in expected]
    arrived, text = 1, "The report."
    if fault == "cell":
        rows[3]["amount_cents"] = 1
    elif fault == "missing row":
        rows.pop()
    elif fault == "order":
        rows.reverse()
    elif fault == "other text":
        text = "Another one."
    arrived = {"twice": 2, "never": 0}.get(fault, 1)
    html = "" if fault == "no table" else table(rows)
    mail = None if fault == "never" else Mail("<1@x>", "a@b", "s", text, html)
    assert not all(finding.holds for finding in findings(mail, arrived, "The report.", expected))


def test_mails_are_read_as_the_server_kept_them(tmp_path: Path) -> None:
    message = EmailMessage()
    message["To"], message["Subject"], message["Message-ID"] = "a@example.com", "Bericht für KW 48", "<1@x>"
    message.set_content("Grüße\n")
    message.add_alternative("<p>Grüße</p>\n", subtype="html")
    (tmp_path / "000001.eml").write_bytes(b'X-Loopback-Recipients: ["a@example.com"]\r\n' + message.as_bytes())
    assert mails(tmp_path) == [Mail("<1@x>", "a@example.com", "Bericht für KW 48", "Grüße\n", "<p>Grüße</p>\n")]
