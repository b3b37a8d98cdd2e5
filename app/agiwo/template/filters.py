"""The filters, tests and functions that a template may call; nothing that is not in these tables can be called.

Each counts its work before doing it, never changes what it was given, and reads no clock, locale or file.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, quote_plus

from agiwo.errors import TemplateError, ValueRefused
from agiwo.template import operators as op
from agiwo.template.absent import Absent, described, step_into
from agiwo.template.meter import Meter
from agiwo.template.tables import text_table
from agiwo.values import canonical, decode_strict, encode

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_UNSET = object()


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


def _items(meter: Meter, value: object, name: str) -> list[Any]:
    """The elements of a list, the keys of an object, the characters of a text; each counts."""
    if not isinstance(value, list | tuple | dict | str):
        raise TemplateError(f"`{name}` needs a list, found {described(value)}")
    meter.walk(1 + len(value))
    return list(value)


def _text(meter: Meter, value: object, name: str) -> str:
    """A value as text, as a longer text writes it; counted."""
    if isinstance(value, list | tuple | dict):
        raise TemplateError(f"`{name}` needs text, found {described(value)}")
    out = op.write(value, meter.units)
    meter.walk(1 + len(out))
    return out


def _object(meter: Meter, value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TemplateError(f"`{name}` needs an object, found {described(value)}")
    meter.walk(1 + len(value))
    return value


def _attribute(item: object, attribute: object, index: int) -> object:
    """The member that a dotted attribute (or an index) names, or an Absent."""
    if type(attribute) is int:
        return step_into(item, attribute, f"element {index}")
    value, where = item, f"element {index}"
    for part in op.text(attribute, "`attribute`").split("."):
        key: str | int = int(part) if part.isdecimal() and not isinstance(value, dict) else part
        value = step_into(value, key, where)
        if isinstance(value, Absent):
            return value
        where = f"{where}.{part}"
    return value


def _present(value: object) -> object:
    return op.admit(value, "an element")


def _keys(meter: Meter, items: list[Any], attribute: object, folded: bool, name: str) -> list[Any]:
    """What a list is ordered or grouped by: the elements or their attribute; text without regard to case if `folded`."""
    out: list[Any] = []
    for index, item in enumerate(items):
        key = item if attribute is None else _present(_attribute(item, attribute, index))
        if isinstance(key, str):
            meter.walk(len(key))
            key = key.lower() if folded else key
        elif not op.is_number(key) and type(key) is not bool:
            raise TemplateError(f"`{name}` orders numbers or texts, found {described(key)} at index {index}")
        if out and (isinstance(key, str), type(key) is bool) != (isinstance(out[0], str), type(out[0]) is bool):
            raise TemplateError(f"`{name}` cannot order {described(out[0])} against {described(key)} (index {index})")
        out.append(key)
    # Each comparison of long texts walks them; short ones cost no more than their element.
    rounds = max(1, len(items).bit_length())
    meter.walk(rounds * (len(items) + sum(max(0, len(k) - 32) for k in out if isinstance(k, str))))
    return out


def _identity(meter: Meter, value: object, folded: bool) -> object:
    if isinstance(value, str):
        meter.walk(1 + len(value))
        return ("text", value.lower() if folded else value)
    if op.is_number(value):
        return ("number", value)
    meter.measure(value)
    return ("json", canonical(value))


def _default(meter: Meter, value: object, default_value: object = "", boolean: object = False) -> object:
    return default_value if boolean and not value else value


def _length(meter: Meter, value: object) -> int:
    if not isinstance(value, str | list | tuple | dict):
        raise TemplateError(f"`length` needs a list, an object or a text, found {described(value)}")
    return len(value)


def _upper(meter: Meter, value: object) -> str:
    return _text(meter, value, "upper").upper()


def _lower(meter: Meter, value: object) -> str:
    return _text(meter, value, "lower").lower()


def _title(meter: Meter, value: object) -> str:
    return re.sub(r"[^\s\-(\[{<]+", lambda m: m.group()[0].upper() + m.group()[1:].lower(), _text(meter, value, "title"))


def _capitalize(meter: Meter, value: object) -> str:
    return _text(meter, value, "capitalize").capitalize()


def _trim(meter: Meter, value: object, chars: object = None) -> str:
    return _text(meter, value, "trim").strip(None if chars is None else op.text(chars, "the characters of `trim`"))


def _replace(meter: Meter, value: object, old: object, new: object, count: object = None) -> str:
    source = _text(meter, value, "replace")
    before, after = op.text(old, "what `replace` looks for"), op.text(new, "what `replace` puts in")
    most = -1 if count is None else min(op.whole(count, "the count of `replace`"), len(source) + 1)
    found = source.count(before) if most < 0 else min(source.count(before), most)
    meter.walk(len(before) + max(0, len(source) + found * (len(after) - len(before))))
    return source.replace(before, after, max(most, -1))


def _split(meter: Meter, value: object, separator: object = None, most: object = -1) -> list[str]:
    source = op.text(value, "what `split` splits")
    meter.walk(1 + len(source))
    cut = None if separator is None else op.text(separator, "the separator of `split`")
    if cut == "":
        raise TemplateError("the separator of `split` is empty")
    out = source.split(cut, max(-1, min(op.whole(most, "the limit of `split`"), len(source))))
    meter.walk(len(out))
    return out


def _join(meter: Meter, value: object, d: object = "", attribute: object = None) -> str:
    items = _items(meter, value, "join")
    glue = op.write(d, meter.units)
    pieces = []
    for index, item in enumerate(items):
        piece = op.write(item if attribute is None else _present(_attribute(item, attribute, index)), meter.units)
        meter.walk(len(piece) + len(glue))
        pieces.append(piece)
    return glue.join(pieces)


def _first(meter: Meter, value: object) -> object:
    return _end(value, 0, "first")


def _last(meter: Meter, value: object) -> object:
    return _end(value, -1, "last")


def _end(value: object, index: int, name: str) -> object:
    if not isinstance(value, list | tuple | str):
        raise TemplateError(f"`{name}` needs a list, found {described(value)}")
    return value[index] if value else Absent(f"the {name} element", "the list is empty")


def _sum(meter: Meter, value: object, attribute: object = None, start: object = 0) -> object:
    total: object = start
    for index, item in enumerate(_items(meter, value, "sum")):
        number = item if attribute is None else _present(_attribute(item, attribute, index))
        if not op.is_number(number):
            raise TemplateError(f"`sum` adds numbers, found {described(number)} at index {index}")
        total = op.add(meter, total, number)
    return total


def _min(meter: Meter, value: object, case_sensitive: object = False, attribute: object = None) -> object:
    return _extreme(meter, value, case_sensitive, attribute, "min")


def _max(meter: Meter, value: object, case_sensitive: object = False, attribute: object = None) -> object:
    return _extreme(meter, value, case_sensitive, attribute, "max")


def _extreme(meter: Meter, value: object, case_sensitive: object, attribute: object, name: str) -> object:
    items = _items(meter, value, name)
    if not items:
        return Absent(f"the {name}", "the list is empty")
    keys = _keys(meter, items, attribute, not case_sensitive, name)
    pick = min if name == "min" else max
    return items[pick(range(len(items)), key=keys.__getitem__)]


def _sort(meter: Meter, value: object, reverse: object = False, case_sensitive: object = False, attribute: object = None) -> list[Any]:
    items = _items(meter, value, "sort")
    keys = _keys(meter, items, attribute, not case_sensitive, "sort")
    return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))]


def _unique(meter: Meter, value: object, case_sensitive: object = False, attribute: object = None) -> list[Any]:
    seen: set[object] = set()
    out = []
    for index, item in enumerate(_items(meter, value, "unique")):
        key = _identity(meter, item if attribute is None else _present(_attribute(item, attribute, index)), not case_sensitive)
        if key not in seen:
            seen.add(key)
            out.append(item)
    return out


def _reverse(meter: Meter, value: object) -> object:
    if isinstance(value, str):
        meter.walk(1 + len(value))
        return value[::-1]
    return _items(meter, value, "reverse")[::-1]


def _map(
    meter: Meter, value: object, filter: object = None, *args: object, attribute: object = None, default: object = _UNSET
) -> list[Any]:
    items = _items(meter, value, "map")
    if (filter is None) is (attribute is None):
        raise TemplateError("`map` takes a filter's name or `attribute=`")
    if attribute is None:
        run = _entry(FILTERS, filter, "filter").run
        return [_present(run(meter, item, *args)) for item in items]
    out = []
    for index, item in enumerate(items):
        found = _attribute(item, attribute, index)
        out.append(default if isinstance(found, Absent) and default is not _UNSET else _present(found))
    return out


def _entry(table: Mapping[str, Entry], name: object, kind: str) -> Entry:
    entry = table.get(name) if isinstance(name, str) else None
    if entry is None:
        raise TemplateError(f"there is no {kind} `{name if isinstance(name, str) else described(name)}`")
    return entry


def _chosen(meter: Meter, items: list[Any], values: list[Any], test: object, args: tuple[object, ...], keep: bool) -> list[Any]:
    if test is None:
        return [item for item, value in zip(items, values, strict=True) if bool(_present(value)) is keep]
    run = _entry(TESTS, test, "test").run
    loose = test in ("defined", "undefined")
    out = []
    for item, value in zip(items, values, strict=True):
        meter.walk()
        if bool(run(meter, value if loose else _present(value), *args)) is keep:
            out.append(item)
    return out


def _select(meter: Meter, value: object, test: object = None, *args: object) -> list[Any]:
    items = _items(meter, value, "select")
    return _chosen(meter, items, items, test, args, True)


def _reject(meter: Meter, value: object, test: object = None, *args: object) -> list[Any]:
    items = _items(meter, value, "reject")
    return _chosen(meter, items, items, test, args, False)


def _selectattr(meter: Meter, value: object, attribute: object, test: object = None, *args: object) -> list[Any]:
    items = _items(meter, value, "selectattr")
    return _chosen(meter, items, [_attribute(item, attribute, i) for i, item in enumerate(items)], test, args, True)


def _rejectattr(meter: Meter, value: object, attribute: object, test: object = None, *args: object) -> list[Any]:
    items = _items(meter, value, "rejectattr")
    return _chosen(meter, items, [_attribute(item, attribute, i) for i, item in enumerate(items)], test, args, False)


def _groupby(meter: Meter, value: object, attribute: object, case_sensitive: object = False) -> list[Any]:
    items = _items(meter, value, "groupby")
    keys = _keys(meter, items, attribute, not case_sensitive, "groupby")
    groups: dict[object, list[Any]] = {}
    for key, item in zip(keys, items, strict=True):
        groups.setdefault(key, []).append(item)
    return [[_attribute(groups[key][0], attribute, 0), groups[key]] for key in sorted(groups)]  # type: ignore[type-var]


def _batch(meter: Meter, value: object, size: object) -> list[Any]:
    items = _items(meter, value, "batch")
    count = op.whole(size, "the size of `batch`")
    if count < 1:
        raise TemplateError(f"the size of `batch` must be 1 or more, found {count}")
    return [items[i : i + count] for i in range(0, len(items), count)]


def _list(meter: Meter, value: object) -> list[Any]:
    return _items(meter, value, "list")


def _string(meter: Meter, value: object) -> str:
    out = op.write(value, meter.units)
    meter.walk(1 + len(out))
    return out


def _int(meter: Meter, value: object, default: object = _UNSET) -> object:
    if type(value) is int:
        return value
    if type(value) is float:
        return op.checked(math.trunc(value))
    if isinstance(value, str):
        meter.walk(1 + len(value))
        source = value.strip()
        if _INTEGER.fullmatch(source) and len(source) <= 101:
            return op.checked(int(source))
        if _NUMBER.fullmatch(source) and len(source) <= 101 and math.isfinite(number := float(source)):
            return op.checked(math.trunc(number))
    if default is _UNSET:
        raise TemplateError(f"`int` cannot read {_found(value)} as a whole number; `int(0)` would give 0 then")
    return default


def _float(meter: Meter, value: object, default: object = _UNSET) -> object:
    if op.is_number(value):
        return float(value)  # type: ignore[arg-type]
    if isinstance(value, str):
        meter.walk(1 + len(value))
        source = value.strip()
        if _NUMBER.fullmatch(source) and len(source) <= 400 and math.isfinite(number := float(source)):
            return number
    if default is _UNSET:
        raise TemplateError(f"`float` cannot read {_found(value)} as a number; `float(0.0)` would give 0.0 then")
    return default


def _found(value: object) -> str:
    return f"the text {encode(value[:40])}" if isinstance(value, str) else described(value)


def _number(value: object, name: str) -> int | float:
    if not op.is_number(value):
        raise TemplateError(f"`{name}` needs a number, found {_found(value)}")
    return value  # type: ignore[return-value]


def _round(meter: Meter, value: object, precision: object = 0, method: object = "common") -> object:
    number = _number(value, "round")
    digits = op.whole(precision, "the precision of `round`")
    if not -100 <= digits <= 100:
        raise TemplateError(f"the precision of `round` is at most 100, found {digits}")
    if method not in ("common", "ceil", "floor"):
        raise TemplateError("the method of `round` is 'common', 'ceil' or 'floor'")
    turn = math.ceil if method == "ceil" else math.floor
    try:
        if method == "common":
            return op.checked(round(number, digits))
        return op.checked(turn(number * 10.0**digits) / 10.0**digits)
    except OverflowError:
        raise TemplateError("the result is no number that JSON can hold") from None


def _abs(meter: Meter, value: object) -> object:
    return abs(_number(value, "abs"))


def _tojson(meter: Meter, value: object) -> str:
    meter.measure(value)
    return encode(value)


def _fromjson(meter: Meter, value: object) -> object:
    source = op.text(value, "what `fromjson` reads")
    meter.walk(1 + len(source))
    try:
        return decode_strict(source.encode())
    except ValueRefused as exc:
        raise TemplateError(f"`fromjson`: {exc.message}{f' at {exc.pointer}' if exc.pointer else ''}") from None


def _pairs(meter: Meter, value: object) -> list[Any]:
    return [[key, item] for key, item in _object(meter, value, "items").items()]


def _dictsort(meter: Meter, value: object, case_sensitive: object = False, by: object = "key", reverse: object = False) -> list[Any]:
    if by not in ("key", "value"):
        raise TemplateError("`dictsort` sorts by 'key' or 'value'")
    pairs = [[key, item] for key, item in _object(meter, value, "dictsort").items()]
    return _sort(meter, pairs, reverse, case_sensitive, 0 if by == "key" else 1)


def _keys_of(meter: Meter, value: object) -> list[Any]:
    return list(_object(meter, value, "keys"))


def _values_of(meter: Meter, value: object) -> list[Any]:
    return list(_object(meter, value, "values").values())


def _truncate(meter: Meter, value: object, length: object = 255, killwords: object = False, end: object = "...") -> str:
    source, tail = _text(meter, value, "truncate"), op.text(end, "the end of `truncate`")
    size = op.whole(length, "the length of `truncate`")
    if size < len(tail):
        raise TemplateError(f"the length of `truncate` must be at least {len(tail)}, found {size}")
    if len(source) <= size:
        return source
    cut = source[: size - len(tail)]
    return (cut if killwords else cut.rsplit(" ", 1)[0]) + tail


def _urlencode(meter: Meter, value: object) -> str:
    if isinstance(value, dict | list | tuple):
        pairs = list(value.items()) if isinstance(value, dict) else list(value)
        meter.walk(1 + len(pairs))
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            raise TemplateError("`urlencode` needs text, an object or a list of pairs")
        return "&".join(quote_plus(_text(meter, k, "urlencode")) + "=" + quote_plus(_text(meter, v, "urlencode")) for k, v in pairs)
    return quote(_text(meter, value, "urlencode"))


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DATE_CODES: Mapping[str, Callable[[datetime], str]] = {
    "Y": lambda t: f"{t.year:04}", "m": lambda t: f"{t.month:02}", "d": lambda t: f"{t.day:02}", "H": lambda t: f"{t.hour:02}",
    "M": lambda t: f"{t.minute:02}", "S": lambda t: f"{t.second:02}", "j": lambda t: f"{t.timetuple().tm_yday:03}",
    "B": lambda t: _MONTHS[t.month - 1], "b": lambda t: _MONTHS[t.month - 1][:3], "A": lambda t: _DAYS[t.weekday()],
    "a": lambda t: _DAYS[t.weekday()][:3], "V": lambda t: f"{t.isocalendar().week:02}", "G": lambda t: f"{t.isocalendar().year:04}",
    "z": lambda t: t.isoformat()[-6:].replace(":", "") if t.tzinfo else "", "%": lambda t: "%",
}  # fmt: skip


def _date(meter: Meter, value: object, format: object = "%Y-%m-%d") -> str:
    source, pattern = op.text(value, "what `date` formats"), op.text(format, "the format of `date`")
    meter.walk(1 + len(source) + 10 * len(pattern))
    try:
        moment = datetime.fromisoformat(source)
    except ValueError:
        raise TemplateError(f"`date` cannot read {_found(source)} as an ISO 8601 date or timestamp") from None

    def code(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter not in _DATE_CODES:
            raise TemplateError(f"`date` knows no %{letter}; it knows {' '.join('%' + c for c in _DATE_CODES)}")
        return _DATE_CODES[letter](moment)

    return re.sub("%(.?)", code, pattern)


def _range(meter: Meter, first: object, stop: object = None, step: object = 1) -> list[int]:
    begin, end = (0, first) if stop is None else (first, stop)
    stride = op.whole(step, "the step of `range`")
    if stride == 0:
        raise TemplateError("the step of `range` is 0")
    numbers = range(op.whole(begin, "the start of `range`"), op.whole(end, "the end of `range`"), stride)
    # len() of a range cannot count beyond the machine's word; the arithmetic can.
    meter.walk(1 + max(0, (numbers.stop - numbers.start + stride + (-1 if stride > 0 else 1)) // stride))
    return list(numbers)


#: Every filter: `value | name(arguments)`.
FILTERS: Mapping[str, Entry] = {
    "abs": Entry("the number without its sign", _abs),
    "batch": Entry("the list in lists of `size` elements", _batch),
    "capitalize": Entry("the text with its first letter large and the rest small", _capitalize),
    "count": Entry("how many elements, keys or characters", _length),
    "d": Entry("short for `default`", _default),
    "date": Entry("an ISO 8601 text by a format (%Y %m %d %H %M %S %B %b %A %a %j %V %G %z)", _date),
    "default": Entry("the value, or the argument if it is not there; with `true` behind that also if it is empty, 0 or null", _default),
    "dictsort": Entry("the object's [key, value] pairs in order (`by='value'`, `reverse=true`)", _dictsort),
    "first": Entry("the first element; of an empty list it is not there", _first),
    "float": Entry("a number, or text that is one, as a number with a fraction; other text is an error unless `float(default)`", _float),
    "fromjson": Entry("the value that a JSON text says", _fromjson),
    "groupby": Entry("the list as [key, elements] pairs by an attribute, in the order of the keys", _groupby),
    "int": Entry("a number, or text that is one, as a whole number, cut; other text is an error unless `int(default)`", _int),
    "items": Entry("the object's [key, value] pairs", _pairs),
    "join": Entry("the elements as one text with a separator (`attribute=` joins a member of each)", _join),
    "keys": Entry("the object's keys", _keys_of),
    "last": Entry("the last element; of an empty list it is not there", _last),
    "length": Entry("how many elements, keys or characters", _length),
    "list": Entry("the elements as a list (the keys of an object, the characters of a text)", _list),
    "lower": Entry("the text in small letters", _lower),
    "map": Entry("each element's `attribute=` (with `default=`), or each element through the named filter", _map),
    "max": Entry("the largest element (`attribute=`); of an empty list it is not there", _max),
    "min": Entry("the smallest element (`attribute=`); of an empty list it is not there", _min),
    "reject": Entry("the elements for which the named test fails (without a name: those that are empty, zero, false or null)", _reject),
    "rejectattr": Entry("the elements for whose attribute the named test fails", _rejectattr),
    "replace": Entry("the text with `old` replaced by `new`, at most `count` times", _replace),
    "reverse": Entry("the list or text from its end", _reverse),
    "round": Entry("the number to `precision` digits, by 'common', 'ceil' or 'floor'", _round),
    "select": Entry("the elements for which the named test holds (without a name: those that are not empty, zero, false or null)", _select),
    "selectattr": Entry("the elements for whose attribute the named test holds", _selectattr),
    "sort": Entry("the list in order (`reverse=true`, `attribute=`, `case_sensitive=true`)", _sort),
    "split": Entry("the text as a list, cut at the separator (at white space without one)", _split),
    "string": Entry("the value as a longer text writes it", _string),
    "sum": Entry("the numbers, or an `attribute=` of each element, added up", _sum),
    "table": Entry("a list of objects as a table, HTML where the place is HTML, else padded text (`columns=[…]`)", text_table),
    "title": Entry("the text with each word's first letter large", _title),
    "tojson": Entry("the value as compact JSON text", _tojson),
    "trim": Entry("the text without white space (or the given characters) at both ends", _trim),
    "truncate": Entry("the text cut at `length` with `end` behind it, at a word unless `killwords`", _truncate),
    "unique": Entry("the list with each value once (`attribute=`, `case_sensitive=true`)", _unique),
    "upper": Entry("the text in large letters", _upper),
    "urlencode": Entry("the text percent-encoded; an object or a list of pairs as a query string", _urlencode),
    "values": Entry("the object's values", _values_of),
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
    "default": Entry("the first argument, or the second if the first is not there", _default),
    "range": Entry("the whole numbers from `start` (0) up to, without, `stop`, by `step`", _range),
}
