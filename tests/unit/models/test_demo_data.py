"""The demo's own parts: sales made from a seed, and the scripted model's answers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiwo.testing.model_answers import fitting, summary, table_in
from agiwo.testing.sales import WEEK, create_sqlite, expected_table, generate
from agiwo.values import check


def test_the_same_seed_gives_the_same_sales_and_another_gives_others() -> None:
    assert generate(1) == generate(1) != generate(2)
    assert len(generate(1)) == 400


def test_every_sale_can_be_kept() -> None:
    check([dict(row) for row in generate(3)])


def test_the_sales_are_hostile() -> None:
    rows = generate(4, rows=40)
    regions, notes = {row["region"] for row in rows}, {row["note"] for row in rows}
    assert {"'; DROP TABLE sales; --", "{{ secrets.K }}", "007"} <= regions
    assert None in notes
    assert any("<script>" in note for note in notes if note)


@pytest.mark.parametrize("seed", range(5))
def test_plain_sql_agrees_with_a_count_by_hand(seed: int, tmp_path: Path) -> None:
    rows = generate(seed)
    orders, quantity, cents = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        if row["week"] == WEEK:
            orders[row["region"]] += 1
            quantity[row["region"]] += row["quantity"]
            cents[row["region"]] += row["amount_cents"]
    create_sqlite(tmp_path / "sales.db", rows)
    assert expected_table(tmp_path / "sales.db") == [
        {"region": r, "orders": orders[r], "quantity": quantity[r], "amount_cents": cents[r]} for r in sorted(orders)
    ]


def test_the_table_can_be_made_again_over_an_old_one(tmp_path: Path) -> None:
    for seed in (1, 2):
        create_sqlite(tmp_path / "sales.db", generate(seed))
    create_sqlite(tmp_path / "other.db", generate(2))
    assert expected_table(tmp_path / "sales.db") == expected_table(tmp_path / "other.db")


def test_a_summary_names_totals_and_the_best_row() -> None:
    rows = [{"region": "North", "orders": 3, "amount_cents": 1205}, {"region": "'; --", "orders": 1, "amount_cents": 99999}]
    assert summary(f"Write about {json.dumps(rows)}, please") == (
        "The data has 2 rows, one for each region. In total: orders 4, amount 1012.04. The best region is '; -- with amount 999.99."
    )


def test_a_prompt_without_data_is_said_to_have_none() -> None:
    assert "no table of data" in summary("Write a poem about {spring}")


def test_a_table_inside_an_object_is_found() -> None:
    assert table_in('x {"rows": [{"a": 1}]}') == [{"a": 1}]


def test_an_option_that_the_prompt_names_is_chosen() -> None:
    assert fitting({"enum": ["refund", "reject"]}, "Shall we reject this?") == "reject"
    assert fitting({"enum": ["refund", "reject"]}, "Hm") == "refund"


LEAVES = st.sampled_from(
    [
        {"type": "string", "minLength": 3, "maxLength": 10},
        {"type": "integer", "minimum": 5, "maximum": 9},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"const": [1]},
        {"$ref": "#/$defs/word"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"type": "array", "maxItems": 0},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    ]
)


@given(st.dictionaries(st.sampled_from(["label", "total_orders", "x"]), LEAVES), st.text(max_size=30))
def test_a_made_value_fits_its_schema(properties: dict[str, Any], prompt: str) -> None:
    schema = {"type": "object", "properties": properties, "required": list(properties), "$defs": {"word": {"enum": ["a"]}}}
    jsonschema.validate(fitting(schema, prompt), schema)
