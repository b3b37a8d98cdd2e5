"""Rows of a database as JSON: what each kind of value becomes, and what cannot become anything.

It must not lose anything in silence: what JSON cannot hold is an error that names the column.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from agiwo.errors import StepError, ValidationError
from agiwo.values import MAX_DIGITS, shown

_MOMENT = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)(?:([+-]\d\d)(?::?(\d\d))?(?::?(\d\d))?)?")
_WHOLE = re.compile(r"-?\d+")


def number(text: str) -> int | float | str:
    """A decimal number: without a point an integer, else the float that is the same decimal, else (none is) the text itself."""
    if _WHOLE.fullmatch(text) and len(text) <= MAX_DIGITS:
        return int(text)
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return text
    nearest = float(exact)
    return nearest if not exact.is_finite() or (math.isfinite(nearest) and Decimal(repr(nearest)) == exact) else text


def moment(text: str) -> str:
    """A date and time as ISO 8601; `infinity` and years before Christ stay as the database writes them."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    date, time, hours, minutes, _ = found.groups()
    return f"{date}T{time}" if hours is None else f"{date}T{time}{hours}:{minutes or '00'}"


def encoded(data: bytes) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(data).decode()


def column_names(names: Iterable[str]) -> list[str]:
    """The names of a result's columns; raises ValidationError if two are equal, since a row could keep only one of them."""
    out = list(names)
    for name in out:
        if out.count(name) > 1:
            raise ValidationError(f"two columns of the result are called {shown(name)}: name them apart with AS", not_done=True)
    return out


def row(columns: Sequence[str], values: Iterable[Any], index: int) -> dict[str, Any]:
    """One row as an object; raises ValidationError that names the row and column of what JSON cannot hold."""
    return {name: _plain(value, name, index) for name, value in zip(columns, values, strict=True)}


def _plain(value: Any, column: str, index: int) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValidationError(f"row {index}, column {shown(column)}: {value} is no JSON number; choose what it means in the statement")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return encoded(value)
    if isinstance(value, list | tuple):
        return [_plain(item, column, index) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, column, index) for key, item in value.items()}
    raise ValidationError(f"row {index}, column {shown(column)}: a {type(value).__name__} has no JSON form; cast it to text")


def too_many(most: int) -> StepError:
    """More rows than were asked for at most; nothing is cut off in silence."""
    return StepError(f"the result has more than {most} rows: narrow the statement, or raise max_rows", type="PayloadTooLarge")
