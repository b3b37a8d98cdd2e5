"""What pydantic says of a value, in the words of this service: what was expected, and the nearest name.

It never repeats the value, which may be a secret, and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from agiwo.names import nearest

_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a mapping"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "string_type": "text",
}
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "at least"), "greater_than": ("gt", "more than"), "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}  # fmt: skip


def complaint(error: Mapping[str, Any], known: Collection[str] = ()) -> str:
    """One of pydantic's errors as a message; `known` are the names that may stand in the place of one that is not known."""
    kind, given, said = str(error["type"]), error.get("ctx") or {}, str(error["msg"])
    if kind == "missing":
        return "is required and not there"
    if kind == "extra_forbidden":
        name = str(error["loc"][-1])
        near = nearest(name, known)
        return f"there is no `{name[:80]}` here" + (f"; did you mean `{near}`?" if near is not None else "")
    if kind in ("literal_error", "enum"):
        choice = re.findall(r"'([^']*)'", str(given.get("expected", "")))
        value = error.get("input")
        near = nearest(value, choice) if isinstance(value, str) else None
        return f"expected {given.get('expected', said)}" + (f"; did you mean {near!r}?" if near is not None else "")
    if kind in _BOUNDS and (bound := _BOUNDS[kind])[0] in given:
        return f"expected {bound[1]} {given[bound[0]]}"
    if kind in _TYPES:
        return f"expected {_TYPES[kind]}"
    return said.removeprefix("Value error, ")
