"""Which `:name` of a statement is a placeholder, and how a database's values become JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agiwo.errors import ValidationError
from agiwo.template import split_statement
from agiwo.template.sql import State, advance
from agiwo.tools.sql.rows import column_names, moment, number, row
from agiwo.tools.sql.statement import bound


def numbered(statement: str, **values: Any) -> tuple[str, tuple[Any, ...]]:
    made = bound({"statement": statement, "values": values}, lambda n: f"${n}", once=True)
    return made.text, made.values


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT :p1", "SELECT $1"),
        ("SELECT :p1, :p1", "SELECT $1, $1"),
        ("SELECT :p1::date", "SELECT $1::date"),
        ("SELECT a::p1, :p1", "SELECT a::p1, $1"),
        ("SELECT ':p1', :p1", "SELECT ':p1', $1"),
        ("SELECT 'it''s :p1', :p1", "SELECT 'it''s :p1', $1"),
        (r"SELECT E'\':p1', :p1", r"SELECT E'\':p1', $1"),
        ('SELECT ":p1", :p1', 'SELECT ":p1", $1'),
        ("SELECT `it's :p1`, :p1", "SELECT `it's :p1`, $1"),
        ("SELECT $$:p1$$, $t$ :p1 $$ $t$, :p1", "SELECT $$:p1$$, $t$ :p1 $$ $t$, $1"),
        ("SELECT 1 -- :p1\n, :p1", "SELECT 1 -- :p1\n, $1"),
        ("SELECT 1 -- it's\r, :p1", "SELECT 1 -- it's\r, $1"),
        ("SELECT /* :p1 /* :p1 */ */ :p1", "SELECT /* :p1 /* :p1 */ */ $1"),
        ("SELECT :other, :p1", "SELECT :other, $1"),
        ("SELECT :p10, :p1", "SELECT :p10, $1"),
        ("SELECT arr[1:p1], :p1", "SELECT arr[1$1], $1"),
        ("SELECT name$:p1", "SELECT name$$1"),
    ],
)
def test_only_a_name_with_a_value_outside_literals_is_a_placeholder(statement: str, text: str) -> None:
    assert numbered(statement, p1=5) == (text, (5,))


@given(
    st.lists(st.sampled_from(["'a'", "E'\\\\''", '"b"', "`c`", "$$d$$", "/*e*/", "--f\n", "::g", "h", " ", ",", "(", ":i"]), max_size=12)
)
def test_the_template_s_own_reading_of_a_rendered_statement_is_the_same(pieces: list[str]) -> None:
    # What the template floor makes: each name once, in open code, and nowhere else in the text.
    before = "".join(pieces) + " "
    assume(advance(State(), before).mode == "code")
    statement = f"{before}:p1 {''.join(reversed(pieces))}"
    texts, names = split_statement(statement, {"p1": 5})
    assert numbered(statement, p1=5) == ("$1".join(texts), (5,))
    assert names == ("p1",)


def test_each_place_is_a_value_where_the_driver_counts_places() -> None:
    made = bound({"statement": "SELECT :b, :a, :b", "values": {"a": 1, "b": 2}}, lambda _: "?", once=False)
    assert (made.text, made.values) == ("SELECT ?, ?, ?", (2, 1, 2))


def test_a_value_without_a_place_is_refused() -> None:
    with pytest.raises(ValidationError, match=":p1"):
        numbered("SELECT ':p1'", p1=5)


def test_text_alone_has_no_values() -> None:
    assert bound("SELECT ':x' || :y", lambda n: f"${n}", once=True).text == "SELECT ':x' || :y"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("9" * 40, int("9" * 40)),
        ("12.50", 12.5),
        ("12.00", 12.0),
        ("0.1", 0.1),
        ("0.1000000000000000055", "0.1000000000000000055"),
        ("12345678901234567890.12", "12345678901234567890.12"),
        ("9" * 101, "9" * 101),
    ],
)
def test_a_decimal_is_a_number_only_if_that_is_the_same_number(text: str, value: Any) -> None:
    assert number(text) == value
    assert type(number(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-11-30 23:11:51.5+00", "2026-11-30T23:11:51.5+00:00"),
        ("2026-11-30 23:11:51", "2026-11-30T23:11:51"),
        ("2026-11-30 23:11:51+05:30", "2026-11-30T23:11:51+05:30"),
        ("infinity", "infinity"),
        ("0044-03-15 00:00:00 BC", "0044-03-15 00:00:00 BC"),
    ],
)
def test_times_are_iso_8601(text: str, iso: str) -> None:
    assert moment(text) == iso


def test_what_json_cannot_hold_names_row_and_column() -> None:
    with pytest.raises(ValidationError, match='row 3, column "x": nan'):
        row(["x"], [number("NaN")], 3)
    with pytest.raises(ValidationError, match="cast it to text"):
        row(["x"], [object()], 0)
    with pytest.raises(ValidationError, match="two columns"):
        column_names(["id", "id"])
    assert row(["x", "y"], [b"\x00\xff", [1, None]], 0) == {"x": "AP8=", "y": [1, None]}
