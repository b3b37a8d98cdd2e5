"""`data_processor.aggregate`: groups, sums, averages and counts over rows, exact where numbers are.

Integers add up exactly; a number with a fraction counts as the decimal that it prints as, sums are exact in decimal and rounded once, at
the end, so that they agree with SQL over numeric columns. It must not turn text into numbers: "007" is text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any

from agiwo.errors import ValidationError
from agiwo.tools.tool import tool
from agiwo.values import kind_of, pointer, shown

Row = Mapping[str, Any]
_NAME = {"type": "string", "minLength": 1, "maxLength": 200}
_ORDER = {"enum": ["asc", "desc"], "default": "asc"}
# Wide enough for the sum of any floats as decimals (1.8e308 beside 5e-324); a rounding in it would be a fault, not a result.
_EXACT = Context(prec=1500, Emax=10**6, Emin=-(10**6), traps=[Inexact])
_BY_ITSELF = ("sum", "avg", "min", "max")

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "raw_data": {"type": "array", "items": {"type": "object"}, "description": "The rows: a list of objects."},
        "group_by": {
            "anyOf": [_NAME, {"type": "array", "items": _NAME, "uniqueItems": True}],
            "description": "The field or fields whose equal values make a group; without it all rows are one group.",
        },
        "metrics": {
            "type": "array",
            "minItems": 1,
            "description": "What to compute for each group; without it the count of rows, and sum, avg, min and max of every number field.",
            "items": {
                "type": "object",
                "properties": {
                    "op": {"enum": ["sum", "avg", "count", "min", "max", "nulls"], "description": "count without a field counts rows."},
                    "field": {**_NAME, "description": "The field to look at; null and absent values are passed over (nulls counts them)."},
                    "as": {**_NAME, "description": "The name of the result; op_field (or count) unless given."},
                    "round": {"type": "integer", "minimum": 0, "maximum": 18, "description": "Digits kept, half away from zero."},
                },
                "required": ["op"],
                "additionalProperties": False,
            },
        },
        "sort": {
            "type": "array",
            "description": "Order of the result; without it by the fields of group_by, null last.",
            "items": {
                "type": "object",
                "properties": {"by": {**_NAME, "description": "A field of the result."}, "order": {**_ORDER, "description": "Up or down."}},
                "required": ["by"],
                "additionalProperties": False,
            },
        },
        "top": {
            "type": "object",
            "description": "Keep only the first n of the result, ordered by one of its fields.",
            "properties": {
                "by": {**_NAME, "description": "A field of the result."},
                "n": {"type": "integer", "minimum": 1, "description": "How many to keep."},
                "order": {"enum": ["asc", "desc"], "default": "desc", "description": "desc keeps the largest."},
            },
            "required": ["by", "n"],
            "additionalProperties": False,
        },
    },
    "required": ["raw_data"],
    "additionalProperties": False,
}


@tool(
    name="data_processor.aggregate",
    description=(
        "Groups rows and computes sums, averages, counts, minima and maxima. Gives a list with one object for each group: the fields of "
        "group_by, then the metrics."
    ),
    effect="pure",
    parameters=PARAMETERS,
    result={"type": "array", "items": {"type": "object"}},
    keeps_off=True,
)
async def aggregate(
    raw_data: Sequence[Row],
    group_by: str | Sequence[str] = (),
    metrics: Sequence[Mapping[str, Any]] | None = None,
    sort: Sequence[Mapping[str, Any]] = (),
    top: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """One row for each group; raises ValidationError that names the row and field that does not fit."""
    keys = [group_by] if isinstance(group_by, str) else list(group_by)
    wanted = _named(list(metrics) if metrics is not None else _every_numeric(raw_data, keys), keys)
    rows = [_summed(members, values, keys, wanted) for values, members in _groups(raw_data, keys)]
    columns = [*keys, *wanted]
    rows = ordered(rows, [{"by": key} for key in keys], columns)
    if top is not None:
        rows = ordered(rows, [{"by": top["by"], "order": top.get("order", "desc")}], columns)[: top["n"]]
    return ordered(rows, sort, columns)


def _every_numeric(rows: Sequence[Row], keys: Sequence[str]) -> list[Mapping[str, Any]]:
    numeric: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None and name not in keys:
                numeric[name] = numeric.get(name, True) and kind_of(value) in ("integer", "number")
    fields = [name for name, is_numeric in numeric.items() if is_numeric]
    return [{"op": "count"}, *({"op": op, "field": name} for name in fields for op in _BY_ITSELF)]


def _named(metrics: list[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    out: dict[str, Mapping[str, Any]] = {}
    for index, metric in enumerate(metrics):
        if "field" not in metric and metric["op"] != "count":
            raise ValidationError(f"parameter {pointer('metrics', index)}: {metric['op']} needs a field")
        name = metric.get("as") or (f"{metric['op']}_{metric['field']}" if "field" in metric else "count")
        if name in out or name in keys:
            raise ValidationError(f"parameter {pointer('metrics', index)}: two results are called {shown(name)}; name one by `as`")
        out[name] = metric
    return out


Members = list[tuple[int, Row]]


def _groups(rows: Sequence[Row], keys: Sequence[str]) -> list[tuple[list[Any], Members]]:
    if not keys:
        return [([], list(enumerate(rows)))]
    groups: dict[tuple[Any, ...], tuple[list[Any], Members]] = {}
    for index, row in enumerate(rows):
        values = [row.get(key) for key in keys]
        for key, value in zip(keys, values, strict=True):
            if isinstance(value, dict | list):
                raise ValidationError(f"parameter {pointer('raw_data', index, key)}: rows cannot be grouped by an {kind_of(value)}")
        # 1 and 1.0 are one group, 1 and "1" and true are not.
        identity = tuple((_rank(value), value) for value in values)
        groups.setdefault(identity, (values, []))[1].append((index, row))
    return list(groups.values())


def _summed(members: Members, values: Sequence[Any], keys: Sequence[str], metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    out = dict(zip(keys, values, strict=True))
    for name, metric in metrics.items():
        out[name] = _rounded(_metric(members, metric["op"], metric.get("field")), metric.get("round"))
    return out


def _metric(members: Members, op: str, field: str | None) -> Any:
    if field is None:
        return len(members)
    present = [(index, row[field]) for index, row in members if row.get(field) is not None]
    if op == "count":
        return len(present)
    if op == "nulls":
        return len(members) - len(present)
    if not present:
        return None
    if op in ("min", "max"):
        return _extreme(present, field, min if op == "min" else max)
    return _total(present, field, len(present) if op == "avg" else 1)


def _extreme(present: Sequence[tuple[int, Any]], field: str, pick: Callable[..., Any]) -> Any:
    first = _rank(present[0][1])
    for index, value in present:
        if _rank(value) != first or first not in (_NUMBER, _TEXT):
            expected = "number" if first == _NUMBER else "string" if first == _TEXT else "number or string"
            raise _wrong(index, field, expected, value)
    return pick(value for _, value in present)


def _total(present: Sequence[tuple[int, Any]], field: str, parts: int) -> int | float:
    whole, fraction, has_fraction = 0, Decimal(0), False
    for index, value in present:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(index, field, "number", value)
        if isinstance(value, int):
            whole += value
        else:
            fraction = _EXACT.add(fraction, Decimal(repr(value)))
            has_fraction = True
    exact = (whole + Fraction(fraction)) / parts
    if exact.denominator == 1 and not has_fraction:
        return exact.numerator
    try:
        return float(exact)
    except OverflowError:
        raise ValidationError(f"the sum of {shown(field)} is too large for a number with a fraction") from None


def _rounded(value: Any, digits: int | None) -> Any:
    if digits is None or not isinstance(value, float):
        return value
    exact = Fraction(Decimal(repr(value))) * 10**digits
    nearest = (abs(exact) + Fraction(1, 2)).__floor__()
    return float(Fraction(nearest if exact >= 0 else -nearest, 10**digits))


def _wrong(index: int, field: str, expected: str, value: Any) -> ValidationError:
    return ValidationError(f"parameter {pointer('raw_data', index, field)}: expected {expected}, found {kind_of(value)} {shown(value)}")


_BOOLEAN, _NUMBER, _TEXT, _OTHER, _NULL = range(5)


def _rank(value: Any) -> int:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _BOOLEAN
    return _NUMBER if isinstance(value, int | float) else _TEXT if isinstance(value, str) else _OTHER


def ordered(rows: list[dict[str, Any]], sort: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows in the order asked for: booleans, numbers, text by code point; null last either way; equal rows keep their order.

    Raises ValidationError for a column that is not there.
    """
    for part in reversed(sort):
        by, down = part["by"], part.get("order", "asc") == "desc"
        if by not in columns:
            raise ValidationError(f"cannot sort by {shown(by)}: there are {', '.join(columns) or 'no columns'}")
        filled = [row for row in rows if row.get(by) is not None]
        empty = [row for row in rows if row.get(by) is None]
        filled.sort(key=lambda row: _sort_key(row[by]), reverse=down)
        rows = filled + empty
    return rows


def _sort_key(value: Any) -> tuple[int, Any]:
    rank = _rank(value)
    return (rank, 0) if rank == _OTHER else (rank, value)
