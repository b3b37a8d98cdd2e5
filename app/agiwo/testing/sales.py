"""A table of sales, made anew from a seed, with every kind of text that breaks careless programs; and what plain SQL says of it.

Amounts are whole cents, so that sums can be compared exactly.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

WEEK = "2026-W48"
COLUMNS = ("id", "week", "region", "product", "customer", "code", "quantity", "amount_cents", "note")

CREATE_SQL = """CREATE TABLE sales (
  id integer PRIMARY KEY,
  week text NOT NULL,
  region text NOT NULL,
  product text NOT NULL,
  customer text,
  code text NOT NULL,
  quantity integer NOT NULL,
  amount_cents bigint NOT NULL,
  note text
)"""
INSERT_SQL = f"INSERT INTO sales ({', '.join(COLUMNS)}) VALUES ({', '.join(':' + name for name in COLUMNS)})"

#: What the workflow's aggregation must give for one week, row by row, in this order.
CHECK_SQL = """SELECT region, count(*) AS orders, sum(quantity) AS quantity, sum(amount_cents) AS amount_cents
FROM sales WHERE week = :week GROUP BY region ORDER BY region"""

_WEEKS = ("2026-W46", "2026-W47", WEEK, WEEK, WEEK)
_REGIONS = (
    "North", "South", "East", "West", "O'Brien \"West\"", "华东", "Île-de-France", "\u202eשלום\u202c", "<b>South</b> & Co", "007",
    "'; DROP TABLE sales; --", "{{ secrets.K }}", "a|b\\c", "🚀 Space",
)  # fmt: skip
_PRODUCTS = ("Anvil", "Bolt", "Cog", "Ünïcode Nut", 'Drill (9/16")', "=1+1", "NULL")
_CUSTOMERS = ("Acme", "Müller & Söhne", "Nguyễn", "Robert'); DROP TABLE students;--", "null", "", None)
_CODES = ("007", "1_000", "1,2", "0x1F", "1e5", "true", "no", "0042", "２０２６")
_NOTES = (
    None, "", "fine", 'said "yes" and \'no\'', "{{ secrets.K }}", "{% for x in [1] %}{{ x }}{% endfor %}", "'; DROP TABLE sales; --",
    "<script>alert('x')</script>", "line one\nline two\r\n\ttab", "emoji 👩‍👩‍👧‍👦 and 🇨🇭", "\u202eright to left\u202c",
    "a\u0301 is not á", "%s %d ${HOME} $(id)",
    "back\\slash \\n \\u0000", ":week @week $1 ?1", " spaces around ", "x" * 500,
)  # fmt: skip

Row = Mapping[str, Any]


def generate(seed: int, rows: int = 400) -> list[Row]:
    """`rows` sales, the same for the same seed; each hostile region and note occurs when `rows` is at least 40."""
    chance = random.Random(seed)
    return [
        {
            "id": number + 1,
            "week": WEEK if number < 2 * len(_REGIONS) else chance.choice(_WEEKS),
            "region": _REGIONS[number % len(_REGIONS)] if number < 2 * len(_REGIONS) else chance.choice(_REGIONS),
            "product": chance.choice(_PRODUCTS),
            "customer": chance.choice(_CUSTOMERS),
            "code": chance.choice(_CODES),
            "quantity": chance.randint(1, 40),
            # Now and then a return, and an amount beyond 2**31.
            "amount_cents": 2**33 + number if number % 97 == 5 else chance.choice((1, 1, 1, -1)) * chance.randint(1, 99_999),
            "note": _NOTES[number % len(_NOTES)] if number < len(_NOTES) else chance.choice(_NOTES),
        }
        for number in range(rows)
    ]


def create_sqlite(path: Path | str, rows: Iterable[Row]) -> None:
    """Write the table into a new SQLite file; an existing table is replaced."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE IF EXISTS sales")
        connection.execute(CREATE_SQL)
        connection.executemany(INSERT_SQL, [dict(row) for row in rows])


def expected_table(path: Path | str, week: str = WEEK) -> list[dict[str, Any]]:
    """What plain SQL says: region, orders, quantity and amount_cents of one week, ordered by region (by code point)."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(CHECK_SQL, {"week": week})]
