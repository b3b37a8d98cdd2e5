"""How writes to context and state meet: one function a reducer, and the joining of writes that happened side by side.

A reducer takes the present value (or ABSENT) and the written one and gives the next; it never changes either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from immutables import Map

from agiwo.definition.compiled import StateKey
from agiwo.errors import ValidationError
from agiwo.machine.state import Overlap
from agiwo.values import canonical, kind_of


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()

Reducer = Callable[[Any, Any], Any]


def _append(old: Any, new: Any) -> Any:
    return [*_list(old), new]


def _extend(old: Any, new: Any) -> Any:
    return [*_list(old), *_list(new, "extend takes a list")]


def _union(old: Any, new: Any) -> Any:
    out = list(_list(old))
    seen = {canonical(item) for item in out}
    for item in _list(new, "union takes a list"):
        if (key := canonical(item)) not in seen:
            seen.add(key)
            out.append(item)
    return out


def _add(old: Any, new: Any) -> Any:
    if isinstance(new, bool) or not isinstance(new, int | float):
        raise ValidationError(f"add takes a number, found {kind_of(new)}")
    return new if old is ABSENT else old + new


def _merge(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        raise ValidationError(f"merge takes an object, found {kind_of(new)}")
    return {**({} if old is ABSENT or old is None else old), **new}


def _least(old: Any, new: Any) -> Any:
    return new if old is ABSENT or old is None or new < old else old


def _greatest(old: Any, new: Any) -> Any:
    return new if old is ABSENT or old is None or new > old else old


def _list(value: Any, message: str = "") -> list[Any]:
    if value is ABSENT or value is None:
        return []
    if not isinstance(value, list):
        raise ValidationError(f"{message or 'the present value is no list'}, found {kind_of(value)}")
    return value


REDUCERS: Mapping[str, Reducer] = {
    "replace": lambda old, new: new,
    "append": _append,
    "extend": _extend,
    "union": _union,
    "add": _add,
    "merge": _merge,
    "min": _least,
    "max": _greatest,
    "first": lambda old, new: new if old is ABSENT else old,
}

#: What a key without `default` starts as; the others start absent.
EMPTY: Mapping[str, Callable[[], Any]] = {"append": list, "extend": list, "union": list, "merge": dict, "add": lambda: 0}


def initial(keys: Mapping[str, StateKey]) -> dict[str, Any]:
    """The values that the declared state keys start with."""
    out: dict[str, Any] = {}
    for name, key in keys.items():
        if key.has_default:
            out[name] = key.default
        elif key.reducer in EMPTY:
            out[name] = EMPTY[key.reducer]()
    return out


def reduce(key: StateKey | None, old: Any, new: Any, *, joined: bool = False) -> Any:
    """One write, or with `joined` what several came to. Raises ValidationError if the reducer cannot take the value."""
    name = "replace" if key is None else key.reducer
    if joined and name == "append":
        name = "extend"
    try:
        return REDUCERS[name](old, new)
    except TypeError:
        raise ValidationError(f"{key.reducer if key else 'replace'} cannot compare {kind_of(old)} with {kind_of(new)}") from None


def written(declared: StateKey | None, overlap: Overlap | None, now: Any, step: int, value: Any) -> tuple[Any, Overlap]:
    """What a key has after `step` wrote `value`, and its overlap from then on; `now` is what it has at present, or ABSENT.

    The writes of one step join in the order of its iterations, then those of all steps in the order of the list; so the answer does not
    depend on which was quicker, and costs nothing for what was written before. Raises ValidationError if the reducer cannot take it.
    """
    if overlap is None:
        overlap = Overlap(None if now is ABSENT else now, now is not ABSENT, Map())
    parts = overlap.parts.set(step, reduce(declared, overlap.parts.get(step, ABSENT), value))
    after: Any = overlap.base if overlap.has_base else ABSENT
    for _, part in sorted(parts.items()):
        after = reduce(declared, after, part, joined=True)
    return after, overlap._replace(parts=parts)
