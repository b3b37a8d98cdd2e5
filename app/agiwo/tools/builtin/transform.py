"""`data.transform`: reshapes rows by a short list of operations, one after the other.

It must not change what it was given and evaluates no expression: templates are there for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agiwo.errors import ValidationError
from agiwo.tools.builtin.aggregate import ordered
from agiwo.tools.tool import tool
from agiwo.values import canonical, kind_of, pointer, shown

Row = dict[str, Any]
_NAME = {"type": "string", "minLength": 1, "maxLength": 200}
_COUNT = {"type": "integer", "minimum": 0}
_NAMES = {"type": "array", "items": _NAME, "minItems": 1}
_TESTS = ("eq", "ne", "lt", "le", "gt", "ge", "in", "not_in", "contains", "null", "not_null")


def _operation(op: str, description: str, required: Sequence[str] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": {"op": {"const": op}, **properties},
        "required": ["op", *required],
        "additionalProperties": False,
    }


_OPERATIONS = [
    _operation("select", "Keeps only these fields, in this order; an absent one becomes null.", ["fields"], fields=_NAMES),
    _operation("drop", "Leaves these fields out.", ["fields"], fields=_NAMES),
    _operation("rename", "Gives fields other names: old to new.", ["names"], names={"type": "object", "additionalProperties": _NAME}),
    _operation("set", "Puts a fixed value into every row.", ["field", "value"], field=_NAME, value={}),
    _operation(
        "filter",
        "Keeps the rows whose field passes the test; an absent field counts as null.",
        ["field", "is"],
        field=_NAME,
        **{"is": {"enum": list(_TESTS)}},
        value={},
    ),
    _operation("sort", "Orders the rows, null last.", ["by"], by=_NAME, order={"enum": ["asc", "desc"]}),
    _operation("limit", "Keeps n rows after the first `offset`.", ["n"], n=_COUNT, offset=_COUNT),
    _operation("unique", "Keeps the first of the rows that are equal in these fields, or in all.", fields=_NAMES),
    _operation("flatten", "Makes one row of each item of a field that is a list.", ["field"], field=_NAME),
]


@tool(
    name="data.transform",
    description="Reshapes a list of objects by operations that are applied one after the other; gives the new list.",
    effect="pure",
    parameters={
        "type": "object",
        "properties": {
            "data": {"type": "array", "items": {"type": "object"}, "description": "The rows: a list of objects."},
            "operations": {"type": "array", "items": {"oneOf": _OPERATIONS}, "maxItems": 100, "description": "What to do, in this order."},
        },
        "required": ["data", "operations"],
        "additionalProperties": False,
    },
    result={"type": "array", "items": {"type": "object"}},
    keeps_off=True,
)
async def transform(data: Sequence[Row], operations: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows after all operations; raises ValidationError that names the operation that does not fit."""
    rows = list(data)
    for index, operation in enumerate(operations):
        try:
            rows = _DO[operation["op"]](rows, operation)
        except ValidationError as exc:
            raise ValidationError(f"parameter {pointer('operations', index)}: {exc.message}") from None
    return rows


def _select(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    return [{name: row.get(name) for name in operation["fields"]} for row in rows]


def _drop(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    gone = set(operation["fields"])
    return [{name: value for name, value in row.items() if name not in gone} for row in rows]


def _rename(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    names = operation["names"]
    out = []
    for row in rows:
        new = {names.get(name, name): value for name, value in row.items()}
        if len(new) != len(row):
            raise ValidationError("two fields of a row would have the same name")
        out.append(new)
    return out


def _set(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    return [{**row, operation["field"]: operation["value"]} for row in rows]


def _filter(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    test, wanted = operation["is"], operation.get("value")
    if ("value" in operation) is (test in ("null", "not_null")):
        raise ValidationError(f"the test {test} takes {'no value' if 'value' in operation else 'a value'}")
    if test in ("in", "not_in") and not isinstance(wanted, list):
        raise ValidationError(f"the test {test} takes a list, found {kind_of(wanted)}")
    return [row for row in rows if _passes(row.get(operation["field"]), test, wanted)]


def _passes(value: Any, test: str, wanted: Any) -> bool:
    if test in ("null", "not_null"):
        return (value is None) is (test == "null")
    if test in ("eq", "ne"):
        return _same(value, wanted) is (test == "eq")
    if test in ("in", "not_in"):
        return any(_same(value, item) for item in wanted) is (test == "in")
    if test == "contains":
        return _contains(value, wanted)
    if not (_comparable(value, wanted)):
        return False
    return bool({"lt": value < wanted, "le": value <= wanted, "gt": value > wanted, "ge": value >= wanted}[test])


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        return isinstance(wanted, str) and wanted in value
    return isinstance(value, list) and any(_same(item, wanted) for item in value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return bool(one == other) if numbers or isinstance(one, str) else canonical(one) == canonical(other)


def _comparable(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    return (isinstance(one, int | float) and isinstance(other, int | float)) or (isinstance(one, str) and isinstance(other, str))


def _sort(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    columns = list(dict.fromkeys(name for row in rows for name in row)) or [operation["by"]]
    return ordered(rows, [operation], columns)


def _limit(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    start = operation.get("offset", 0)
    return rows[start : start + operation["n"]]


def _unique(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    fields = operation.get("fields")
    seen: set[bytes] = set()
    out: list[Row] = []
    for row in rows:
        identity = canonical(row if fields is None else [row.get(name) for name in fields])
        if identity not in seen:
            seen.add(identity)
            out.append(row)
    return out


def _flatten(rows: list[Row], operation: Mapping[str, Any]) -> list[Row]:
    field = operation["field"]
    out: list[Row] = []
    for index, row in enumerate(rows):
        items = row.get(field)
        if items is not None and not isinstance(items, list):
            raise ValidationError(f"row {index}: {shown(field)} is no list but {kind_of(items)}")
        out.extend({**row, field: item} for item in items or ())
    return out


_DO: Mapping[str, Callable[[list[Row], Mapping[str, Any]], list[Row]]] = {
    "select": _select,
    "drop": _drop,
    "rename": _rename,
    "set": _set,
    "filter": _filter,
    "sort": _sort,
    "limit": _limit,
    "unique": _unique,
    "flatten": _flatten,
}
