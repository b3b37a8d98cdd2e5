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
#: Bytes, about, that all rows of a result may have together.
MAX_SIZE = 32_000_000


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


class Rows:
    """The rows of a result as objects, taken one by one: `most` at most, and of MAX_SIZE together, so that no result fills the memory."""

    def __init__(self, columns: Sequence[str], most: int) -> None:
        self.taken: list[dict[str, Any]] = []
        self._columns = columns
        self._most = most
        self._size = 0

    def take(self, values: Iterable[Any]) -> None:
        """Raises StepError (PayloadTooLarge) for one row too many, and ValidationError that names the place of what JSON cannot hold."""
        if len(self.taken) == self._most:
            raise StepError(f"the result has more than {self._most} rows: narrow the statement, or raise max_rows", type="PayloadTooLarge")
        made = row(self._columns, values, len(self.taken))
        self._size += sum(map(_size, made.values()))
        if self._size > MAX_SIZE:
            raise too_large()
        self.taken.append(made)


def too_large() -> StepError:
    """More than a value may hold; nothing is cut off in silence."""
    return StepError(f"the result is larger than {MAX_SIZE:,} bytes: narrow the statement", type="PayloadTooLarge")


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return 8 + sum(map(_size, value))
    return 8 + sum(len(key) + _size(item) for key, item in value.items()) if isinstance(value, dict) else 8


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
