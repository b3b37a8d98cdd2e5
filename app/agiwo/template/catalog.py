"""The filters, tests and functions that a template may call; nothing that is not in these tables can be called.

Each has a line for the documentation of the language, which is generated from here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.errors import TemplateError
from agiwo.template import filters
from agiwo.template import operators as op
from agiwo.template.absent import Absent, described
from agiwo.template.meter import Meter
from agiwo.template.tables import text_table


@dataclass(frozen=True, slots=True)
class Entry:
    """A callable of the template language: what it does in one line, and the function (meter, value, arguments…)."""

    doc: str
    run: Callable[..., Any]

    def accepts(self, args: int, names: tuple[str, ...]) -> str | None:
        """Why a call with that many arguments and these names does not fit, or None."""
        try:
            inspect.signature(self.run).bind(*([None] * (args + 2)), **dict.fromkeys(names))
        except TypeError as exc:
            return str(exc)
        return None


def _map(
    meter: Meter, value: object, filter: object = None, *args: object, attribute: object = None, default: object = filters.UNSET
) -> list[Any]:
    items = filters.elements(meter, value, "map")
    if (filter is None) is (attribute is None):
        raise TemplateError("`map` takes a filter's name or `attribute=`")
    if attribute is None:
        run = _named(FILTERS, filter, args, "filter")
        return [filters.present(run(meter, item, *args)) for item in items]
    out = []
    for index, item in enumerate(items):
        found = filters.attribute_of(item, attribute, index)
        out.append(default if isinstance(found, Absent) and default is not filters.UNSET else filters.present(found))
    return out


def _named(table: Mapping[str, Entry], name: object, args: tuple[object, ...], kind: str) -> Callable[..., Any]:
    """A callable by its name. Inside `map('map', …)` the name may come from data, so it is looked up and its call is checked here."""
    entry = table.get(name) if isinstance(name, str) else None
    if entry is None:
        raise TemplateError(f"there is no {kind} `{name[:40] if isinstance(name, str) else described(name)}`")
    if problem := entry.accepts(len(args), ()):
        raise TemplateError(f"the {kind} `{name}`: {problem}")
    return entry.run


def _chosen(meter: Meter, items: list[Any], values: list[Any], test: object, args: tuple[object, ...], keep: bool) -> list[Any]:
    if test is None:
        return [item for item, value in zip(items, values, strict=True) if bool(filters.present(value)) is keep]
    run = _named(TESTS, test, args, "test")
    loose = test in ("defined", "undefined")
    out = []
    for item, value in zip(items, values, strict=True):
        meter.walk()
        if bool(run(meter, value if loose else filters.present(value), *args)) is keep:
            out.append(item)
    return out


def _select(meter: Meter, value: object, test: object = None, *args: object) -> list[Any]:
    items = filters.elements(meter, value, "select")
    return _chosen(meter, items, items, test, args, True)


def _reject(meter: Meter, value: object, test: object = None, *args: object) -> list[Any]:
    items = filters.elements(meter, value, "reject")
    return _chosen(meter, items, items, test, args, False)


def _selectattr(meter: Meter, value: object, attribute: object, test: object = None, *args: object) -> list[Any]:
    items = filters.elements(meter, value, "selectattr")
    return _chosen(meter, items, [filters.attribute_of(item, attribute, i) for i, item in enumerate(items)], test, args, True)


def _rejectattr(meter: Meter, value: object, attribute: object, test: object = None, *args: object) -> list[Any]:
    items = filters.elements(meter, value, "rejectattr")
    return _chosen(meter, items, [filters.attribute_of(item, attribute, i) for i, item in enumerate(items)], test, args, False)


#: Every filter: `value | name(arguments)`.
FILTERS: Mapping[str, Entry] = {
    "abs": Entry("the number without its sign", filters.do_abs),
    "batch": Entry("the list in lists of `size` elements", filters.do_batch),
    "capitalize": Entry("the text with its first letter large and the rest small", filters.do_capitalize),
    "count": Entry("how many elements, keys or characters", filters.do_length),
    "d": Entry("short for `default`", filters.do_default),
    "date": Entry("an ISO 8601 text by a format (%Y %m %d %H %M %S %B %b %A %a %j %V %G %z)", filters.do_date),
    "default": Entry("the value, or the argument if it is not there; with `true` behind also if empty, 0 or null", filters.do_default),
    "dictsort": Entry("the object's [key, value] pairs in order (`by='value'`, `reverse=true`)", filters.do_dictsort),
    "first": Entry("the first element; of an empty list it is not there", filters.do_first),
    "float": Entry("a number or text that is one, with a fraction; other text is an error unless `float(default)`", filters.do_float),
    "fromjson": Entry("the value that a JSON text says", filters.do_fromjson),
    "groupby": Entry("the list as [key, elements] pairs by an attribute, in the order of the keys", filters.do_groupby),
    "int": Entry("a number or text that is one, cut to a whole number; other text is an error unless `int(default)`", filters.do_int),
    "items": Entry("the object's [key, value] pairs", filters.do_pairs),
    "join": Entry("the elements as one text with a separator (`attribute=` joins a member of each)", filters.do_join),
    "keys": Entry("the object's keys", filters.do_keys_of),
    "last": Entry("the last element; of an empty list it is not there", filters.do_last),
    "length": Entry("how many elements, keys or characters", filters.do_length),
    "list": Entry("the elements as a list (the keys of an object, the characters of a text)", filters.do_list),
    "lower": Entry("the text in small letters", filters.do_lower),
    "map": Entry("each element's `attribute=` (with `default=`), or each element through the named filter", _map),
    "max": Entry("the largest element (`attribute=`); of an empty list it is not there", filters.do_max),
    "min": Entry("the smallest element (`attribute=`); of an empty list it is not there", filters.do_min),
    "reject": Entry("the elements for which the named test fails (without a name: the empty, 0, false, null)", _reject),
    "rejectattr": Entry("the elements for whose attribute the named test fails", _rejectattr),
    "replace": Entry("the text with `old` replaced by `new`, at most `count` times", filters.do_replace),
    "reverse": Entry("the list or text from its end", filters.do_reverse),
    "round": Entry("the number to `precision` digits, by 'common', 'ceil' or 'floor'", filters.do_round),
    "select": Entry("the elements for which the named test holds (without a name: all but the empty, 0, false, null)", _select),
    "selectattr": Entry("the elements for whose attribute the named test holds", _selectattr),
    "sort": Entry("the list in order (`reverse=true`, `attribute=`, `case_sensitive=true`)", filters.do_sort),
    "split": Entry("the text as a list, cut at the separator (at white space without one)", filters.do_split),
    "string": Entry("the value as a longer text writes it", filters.do_string),
    "sum": Entry("the numbers, or an `attribute=` of each element, added up", filters.do_sum),
    "table": Entry("a list of objects as a table, HTML where the place is HTML, else padded text (`columns=[…]`)", text_table),
    "title": Entry("the text with each word's first letter large", filters.do_title),
    "tojson": Entry("the value as compact JSON text", filters.do_tojson),
    "trim": Entry("the text without white space (or the given characters) at both ends", filters.do_trim),
    "truncate": Entry("the text cut at `length` with `end` behind it, at a word unless `killwords`", filters.do_truncate),
    "unique": Entry("the list with each value once (`attribute=`, `case_sensitive=true`)", filters.do_unique),
    "upper": Entry("the text in large letters", filters.do_upper),
    "urlencode": Entry("the text percent-encoded; an object or a list of pairs as a query string", filters.do_urlencode),
    "values": Entry("the object's values", filters.do_values_of),
}


def _divisible(meter: Meter, value: object, number: object) -> bool:
    return op.modulo(meter, value, number) == 0


def _odd(meter: Meter, value: object) -> bool:
    return op.whole(value, "what `odd` tests") % 2 == 1


def _even(meter: Meter, value: object) -> bool:
    return op.whole(value, "what `even` tests") % 2 == 0


def _starts(meter: Meter, value: object, start: object) -> bool:
    meter.walk(1 + len(op.text(start, "the start")))
    return op.text(value, "what `startingwith` tests").startswith(op.text(start, "the start"))


def _ends(meter: Meter, value: object, end: object) -> bool:
    meter.walk(1 + len(op.text(end, "the end")))
    return op.text(value, "what `endingwith` tests").endswith(op.text(end, "the end"))


_EQ = Entry("equal to the argument", lambda meter, value, other: op.same(meter, value, other))
_NE = Entry("not equal to the argument", lambda meter, value, other: not op.same(meter, value, other))
_LT = Entry("less than the argument", lambda meter, value, other: op.less(meter, value, other, "<"))
_GT = Entry("greater than the argument", lambda meter, value, other: op.less(meter, other, value, ">"))
_LE = Entry("at most the argument", lambda meter, value, other: not op.less(meter, other, value, "<="))
_GE = Entry("at least the argument", lambda meter, value, other: not op.less(meter, value, other, ">="))

#: Every test: `value is name(arguments)`.
TESTS: Mapping[str, Entry] = {
    "boolean": Entry("true or false", lambda meter, value: type(value) is bool),
    "defined": Entry("it is there (null is there)", lambda meter, value: not isinstance(value, Absent)),
    "divisibleby": Entry("the number divides without rest", _divisible),
    "endingwith": Entry("the text ends so", _ends),
    "eq": _EQ,
    "equalto": _EQ,
    "even": Entry("an even whole number", _even),
    "false": Entry("it is false", lambda meter, value: value is False),
    "float": Entry("a number with a fraction part", lambda meter, value: type(value) is float),
    "ge": _GE,
    "greaterthan": _GT,
    "gt": _GT,
    "in": Entry("an element of the list, a key of the object, a part of the text", op.contains),
    "integer": Entry("a whole number", lambda meter, value: type(value) is int),
    "iterable": Entry("a list, an object or a text", lambda meter, value: isinstance(value, list | tuple | dict | str)),
    "le": _LE,
    "lessthan": _LT,
    "lt": _LT,
    "mapping": Entry("an object", lambda meter, value: isinstance(value, dict)),
    "ne": _NE,
    "none": Entry("it is null", lambda meter, value: value is None),
    "number": Entry("a number", lambda meter, value: op.is_number(value)),
    "odd": Entry("an odd whole number", _odd),
    "sequence": Entry("a list", lambda meter, value: isinstance(value, list | tuple)),
    "startingwith": Entry("the text begins so", _starts),
    "string": Entry("a text", lambda meter, value: isinstance(value, str)),
    "true": Entry("it is true", lambda meter, value: value is True),
    "undefined": Entry("it is not there", lambda meter, value: isinstance(value, Absent)),
}

#: Every function: `name(arguments)`.
FUNCTIONS: Mapping[str, Entry] = {
    "default": Entry("the first argument, or the second if the first is not there", filters.do_default),
    "range": Entry("the whole numbers from `start` (0) up to, without, `stop`, by `step`", filters.do_range),
}
