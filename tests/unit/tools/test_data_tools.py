"""Aggregation and reshaping of rows, and the debug tools."""

from __future__ import annotations

import copy
import sqlite3
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiwo.errors import StepError, ValidationError
from agiwo.toolkit import Tool, ToolContext
from agiwo.tools.builtin import BUILT_IN, standard_registry
from agiwo.tools.calling import call_tool

TOOLS = standard_registry()
SALES: list[dict[str, Any]] = [
    {"region": "north", "code": "007", "amount": 0.1, "units": 3},
    {"region": "south", "code": "007", "amount": 0.2, "units": None},
    {"region": "north", "code": "008", "amount": 0.2, "units": 4},
    {"region": None, "code": "1", "amount": 12.35, "units": 10**60},
]


async def run(name: str, **arguments: Any) -> Any:
    return await call_tool(TOOLS.get(name), arguments, ToolContext())


async def aggregate(**arguments: Any) -> Any:
    return await run("data_processor.aggregate", **arguments)


async def test_rows_alone_give_the_count_and_all_totals_of_every_numeric_field() -> None:
    (row,) = await aggregate(raw_data=SALES)
    assert list(row) == [
        "count",
        "sum_amount",
        "avg_amount",
        "min_amount",
        "max_amount",
        "sum_units",
        "avg_units",
        "min_units",
        "max_units",
    ]
    assert row["count"] == 4
    assert row["sum_amount"] == 12.85
    assert row["sum_units"] == 10**60 + 7


async def test_groups_come_in_order_of_their_key_with_null_last() -> None:
    rows = await aggregate(raw_data=SALES, group_by="region", metrics=[{"op": "sum", "field": "amount"}, {"op": "count"}])
    assert rows == [
        {"region": "north", "sum_amount": 0.3, "count": 2},
        {"region": "south", "sum_amount": 0.2, "count": 1},
        {"region": None, "sum_amount": 12.35, "count": 1},
    ]


async def test_decimals_add_up_as_decimals() -> None:
    rows = [{"x": 0.1}] * 10
    assert (await aggregate(raw_data=rows, metrics=[{"op": "sum", "field": "x"}]))[0]["sum_x"] == 1.0
    rows = [{"x": 1.7e308}, {"x": 5e-324}, {"x": -1.7e308}]
    assert (await aggregate(raw_data=rows, metrics=[{"op": "sum", "field": "x"}]))[0]["sum_x"] == 5e-324


async def test_nulls_are_passed_over_and_can_be_counted() -> None:
    metrics = [{"op": "count", "field": "units", "as": "with"}, {"op": "nulls", "field": "units"}, {"op": "avg", "field": "nothing"}]
    assert await aggregate(raw_data=SALES[:3], metrics=metrics) == [{"with": 2, "nulls_units": 1, "avg_nothing": None}]


async def test_text_that_looks_like_a_number_stays_text() -> None:
    rows = await aggregate(raw_data=SALES, group_by="code", metrics=[{"op": "max", "field": "code"}])
    assert [r["code"] for r in rows] == ["007", "008", "1"]
    with pytest.raises(ValidationError, match=r"/raw_data/0/code: expected number, found string \"007\""):
        await aggregate(raw_data=SALES, metrics=[{"op": "sum", "field": "code"}])


async def test_one_and_one_point_zero_are_a_group_and_true_and_text_are_others() -> None:
    rows = [{"k": k} for k in (1, 1.0, "1", True, None, None)]
    assert [(r["k"], r["count"]) for r in await aggregate(raw_data=rows, group_by="k", metrics=[{"op": "count"}])] == [
        (True, 1),
        (1, 2),
        ("1", 1),
        (None, 2),
    ]


async def test_top_sort_and_rounding() -> None:
    metrics = [{"op": "avg", "field": "v", "as": "mean", "round": 2}]
    rows = [{"k": k, "v": v} for k, v in (("a", 0.125), ("b", -0.125), ("c", 7.0), ("c", 8))]
    top = await aggregate(raw_data=rows, group_by="k", metrics=metrics, top={"by": "mean", "n": 2}, sort=[{"by": "k"}])
    assert top == [{"k": "a", "mean": 0.13}, {"k": "c", "mean": 7.5}]
    low = await aggregate(raw_data=rows, group_by=["k"], metrics=metrics, top={"by": "mean", "n": 1, "order": "asc"})
    assert low == [{"k": "b", "mean": -0.13}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"metrics": [{"op": "sum"}]}, "needs a field"),
        ({"metrics": [{"op": "count"}, {"op": "count"}]}, "two results"),
        ({"top": {"by": "nope", "n": 1}}, "cannot sort by"),
        ({"metrics": [{"op": "median", "field": "amount"}]}, "expected one of"),
        ({"group": "region"}, "expected one of group_by"),
    ],
)
async def test_a_wrong_option_is_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        await aggregate(raw_data=SALES, **arguments)


async def test_mixed_values_have_no_minimum_and_lists_are_no_group() -> None:
    with pytest.raises(ValidationError, match="/raw_data/1/v: expected number"):
        await aggregate(raw_data=[{"v": 1}, {"v": "x"}], metrics=[{"op": "min", "field": "v"}])
    with pytest.raises(ValidationError, match="cannot be grouped"):
        await aggregate(raw_data=[{"v": [1]}], group_by="v")


async def test_no_rows_give_one_empty_total_and_no_group() -> None:
    assert await aggregate(raw_data=[]) == [{"count": 0}]
    assert await aggregate(raw_data=[], group_by="x") == []


NUMBERS = st.none() | st.integers(-(10**6), 10**6) | st.decimals(-(10**6), 10**6, places=2).map(float)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "0", None]), NUMBERS), max_size=20))
async def test_sums_agree_with_exact_arithmetic_and_counts_with_sql(pairs: list[tuple[str | None, Any]]) -> None:
    rows = [{"k": k, "v": v} for k, v in pairs]
    metrics = [{"op": "sum", "field": "v"}, {"op": "count"}, {"op": "count", "field": "v", "as": "filled"}]
    got = await aggregate(raw_data=rows, group_by="k", metrics=metrics)
    database = sqlite3.connect(":memory:")
    try:
        database.execute("CREATE TABLE t (k TEXT, v)")
        database.executemany("INSERT INTO t VALUES (?, ?)", pairs)
        counted = database.execute("SELECT k, count(*), count(v) FROM t GROUP BY k ORDER BY k IS NULL, k").fetchall()
    finally:
        database.close()
    assert [(r["k"], r["count"], r["filled"]) for r in got] == counted
    for row in got:
        present = [v for k, v in pairs if k == row["k"] and v is not None]
        exact = sum((Fraction(str(v)) for v in present), Fraction(0))
        assert row["sum_v"] == (float(exact) if any(isinstance(v, float) for v in present) else (exact if present else None))


async def test_transform_applies_its_operations_in_order_and_leaves_its_input() -> None:
    rows = [{"a": 3, "b": ["x", "y"]}, {"a": 1, "b": []}, {"a": 2, "b": None}, {"a": 3, "b": ["x"]}]
    before = copy.deepcopy(rows)
    got = await run(
        "data.transform",
        data=rows,
        operations=[
            {"op": "filter", "field": "a", "is": "ge", "value": 2},
            {"op": "flatten", "field": "b"},
            {"op": "rename", "names": {"b": "c"}},
            {"op": "set", "field": "d", "value": {"k": 1}},
            {"op": "unique"},
            {"op": "sort", "by": "c", "order": "desc"},
            {"op": "limit", "n": 1, "offset": 1},
            {"op": "select", "fields": ["c", "e"]},
        ],
    )
    assert got == [{"c": "x", "e": None}]
    assert rows == before


@pytest.mark.parametrize(
    ("test", "value", "kept"),
    [
        ("eq", 1, [1, 1.0]),
        ("eq", True, [True]),
        ("ne", 1, [True, "1", None, [1]]),
        ("in", ["1", None], ["1", None]),
        ("not_in", [1], [True, "1", None, [1]]),
        ("lt", 2, [1, 1.0]),
        ("contains", 1, [[1]]),
        ("contains", "1", ["1"]),
    ],
)
async def test_a_filter_compares_like_with_like(test: str, value: Any, kept: list[Any]) -> None:
    rows = [{"v": v} for v in (1, 1.0, True, "1", None, [1])]
    got = await run("data.transform", data=rows, operations=[{"op": "filter", "field": "v", "is": test, "value": value}])
    assert [r["v"] for r in got] == kept
    assert [type(r["v"]) for r in got] == [type(v) for v in kept]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "rename", "names": {"a": "b"}},
        {"op": "flatten", "field": "a"},
        {"op": "sort", "by": "nope"},
        {"op": "filter", "field": "a", "is": "null", "value": 1},
        {"op": "filter", "field": "a", "is": "in", "value": 1},
        {"op": "explode"},
        {"op": "limit"},
    ],
)
async def test_a_wrong_operation_is_named_by_its_place(operation: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="/operations/0"):
        await run("data.transform", data=[{"a": 1, "b": 2}], operations=[operation])


@pytest.mark.parametrize("value", [0, False, None, "", "007", [], {"a": {"b": [1.5]}}, 10**99])
async def test_echo_keeps_value_and_type(value: Any) -> None:
    got = await run("debug.echo", value=value)
    assert got == value
    assert type(got) is type(value)


async def test_fail_fails_as_asked_until_its_attempt() -> None:
    fail = TOOLS.get("debug.fail")
    with pytest.raises(StepError) as caught:
        await call_tool(fail, {"error": "NetworkError", "message": "m", "not_done": True, "until_attempt": 2}, ToolContext(attempt=1))
    assert (caught.value.type, caught.value.message, caught.value.not_done) == ("NetworkError", "m", True)
    assert await call_tool(fail, {"until_attempt": 2, "value": 5}, ToolContext(attempt=2)) == 5


async def test_sleep_takes_no_time_that_it_was_not_given() -> None:
    assert await run("debug.sleep", seconds="0") == {"slept": 0}


@pytest.mark.parametrize("built_in", BUILT_IN, ids=lambda t: t.name)
def test_built_in_schemas_are_closed_and_described(built_in: Tool) -> None:
    schema = built_in.contract.parameters
    assert schema["additionalProperties"] is False
    assert built_in.contract.effect_declared
    assert built_in.warnings() == []
    assert all(part.get("description") for part in schema["properties"].values())
