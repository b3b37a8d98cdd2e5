"""What the filters and functions of the language do; `catalog` says which of them a template may call.

Each counts its work before doing it, never changes what it was given, and reads no clock, locale or file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, quote_plus

from agiwo.errors import TemplateError, ValueRefused
from agiwo.template import operators as op
from agiwo.template.absent import Absent, described, step_into
from agiwo.template.meter import Meter
from agiwo.values import canonical, decode_strict, encode

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
UNSET = object()


def elements(meter: Meter, value: object, name: str) -> list[Any]:
    """The elements of a list, the keys of an object, the characters of a text; each counts."""
    if not isinstance(value, list | tuple | dict | str):
        raise TemplateError(f"`{name}` needs a list, found {described(value)}")
    meter.walk(1 + len(value))
    return list(value)


def as_text(meter: Meter, value: object, name: str) -> str:
    """A value as text, as a longer text writes it; counted."""
    if isinstance(value, list | tuple | dict):
        raise TemplateError(f"`{name}` needs text, found {described(value)}")
    out = op.write(value, meter.units)
    meter.walk(1 + len(out))
    return out


def as_object(meter: Meter, value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TemplateError(f"`{name}` needs an object, found {described(value)}")
    meter.walk(1 + len(value))
    return value


def attribute_of(item: object, attribute: object, index: int) -> object:
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


def present(value: object) -> object:
    return op.admit(value, "an element")


def _keys(meter: Meter, items: list[Any], attribute: object, folded: bool, name: str) -> list[Any]:
    """What a list is ordered or grouped by: the elements or their attribute; text without regard to case if `folded`."""
    out: list[Any] = []
    for index, item in enumerate(items):
        key = item if attribute is None else present(attribute_of(item, attribute, index))
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


def do_default(meter: Meter, value: object, default_value: object = "", boolean: object = False) -> object:
    return default_value if boolean and not value else value


def do_length(meter: Meter, value: object) -> int:
    if not isinstance(value, str | list | tuple | dict):
        raise TemplateError(f"`length` needs a list, an object or a text, found {described(value)}")
    return len(value)


def do_upper(meter: Meter, value: object) -> str:
    return as_text(meter, value, "upper").upper()


def do_lower(meter: Meter, value: object) -> str:
    return as_text(meter, value, "lower").lower()


def do_title(meter: Meter, value: object) -> str:
    return re.sub(r"[^\s\-(\[{<]+", lambda m: m.group()[0].upper() + m.group()[1:].lower(), as_text(meter, value, "title"))


def do_capitalize(meter: Meter, value: object) -> str:
    return as_text(meter, value, "capitalize").capitalize()


def do_trim(meter: Meter, value: object, chars: object = None) -> str:
    return as_text(meter, value, "trim").strip(None if chars is None else op.text(chars, "the characters of `trim`"))


def do_replace(meter: Meter, value: object, old: object, new: object, count: object = None) -> str:
    source = as_text(meter, value, "replace")
    before, after = op.text(old, "what `replace` looks for"), op.text(new, "what `replace` puts in")
    most = -1 if count is None else min(op.whole(count, "the count of `replace`"), len(source) + 1)
    found = source.count(before) if most < 0 else min(source.count(before), most)
    meter.walk(len(before) + max(0, len(source) + found * (len(after) - len(before))))
    return source.replace(before, after, max(most, -1))


def do_split(meter: Meter, value: object, separator: object = None, most: object = -1) -> list[str]:
    source = op.text(value, "what `split` splits")
    meter.walk(1 + len(source))
    cut = None if separator is None else op.text(separator, "the separator of `split`")
    if cut == "":
        raise TemplateError("the separator of `split` is empty")
    out = source.split(cut, max(-1, min(op.whole(most, "the limit of `split`"), len(source))))
    meter.walk(len(out))
    return out


def do_join(meter: Meter, value: object, d: object = "", attribute: object = None) -> str:
    items = elements(meter, value, "join")
    glue = op.write(d, meter.units)
    pieces = []
    for index, item in enumerate(items):
        piece = op.write(item if attribute is None else present(attribute_of(item, attribute, index)), meter.units)
        meter.walk(len(piece) + len(glue))
        pieces.append(piece)
    return glue.join(pieces)


def do_first(meter: Meter, value: object) -> object:
    return _end(value, 0, "first")


def do_last(meter: Meter, value: object) -> object:
    return _end(value, -1, "last")


def _end(value: object, index: int, name: str) -> object:
    if not isinstance(value, list | tuple | str):
        raise TemplateError(f"`{name}` needs a list, found {described(value)}")
    return value[index] if value else Absent(f"the {name} element", "the list is empty")


def do_sum(meter: Meter, value: object, attribute: object = None, start: object = 0) -> object:
    total: object = start
    for index, item in enumerate(elements(meter, value, "sum")):
        number = item if attribute is None else present(attribute_of(item, attribute, index))
        if not op.is_number(number):
            raise TemplateError(f"`sum` adds numbers, found {described(number)} at index {index}")
        total = op.add(meter, total, number)
    return total


def do_min(meter: Meter, value: object, case_sensitive: object = False, attribute: object = None) -> object:
    return _extreme(meter, value, case_sensitive, attribute, "min")


def do_max(meter: Meter, value: object, case_sensitive: object = False, attribute: object = None) -> object:
    return _extreme(meter, value, case_sensitive, attribute, "max")


def _extreme(meter: Meter, value: object, case_sensitive: object, attribute: object, name: str) -> object:
    items = elements(meter, value, name)
    if not items:
        return Absent(f"the {name}", "the list is empty")
    keys = _keys(meter, items, attribute, not case_sensitive, name)
    pick = min if name == "min" else max
    return items[pick(range(len(items)), key=keys.__getitem__)]


def do_sort(meter: Meter, value: object, reverse: object = False, case_sensitive: object = False, attribute: object = None) -> list[Any]:
    items = elements(meter, value, "sort")
    keys = _keys(meter, items, attribute, not case_sensitive, "sort")
    return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))]


def do_unique(meter: Meter, value: object, case_sensitive: object = False, attribute: object = None) -> list[Any]:
    seen: set[object] = set()
    out = []
    for index, item in enumerate(elements(meter, value, "unique")):
        key = _identity(meter, item if attribute is None else present(attribute_of(item, attribute, index)), not case_sensitive)
        if key not in seen:
            seen.add(key)
            out.append(item)
    return out


def do_reverse(meter: Meter, value: object) -> object:
    if isinstance(value, str):
        meter.walk(1 + len(value))
        return value[::-1]
    return elements(meter, value, "reverse")[::-1]


def do_groupby(meter: Meter, value: object, attribute: object, case_sensitive: object = False) -> list[Any]:
    items = elements(meter, value, "groupby")
    keys = _keys(meter, items, attribute, not case_sensitive, "groupby")
    groups: dict[object, list[Any]] = {}
    for key, item in zip(keys, items, strict=True):
        groups.setdefault(key, []).append(item)
    return [[attribute_of(groups[key][0], attribute, 0), groups[key]] for key in sorted(groups)]  # type: ignore[type-var]


def do_batch(meter: Meter, value: object, size: object) -> list[Any]:
    items = elements(meter, value, "batch")
    count = op.whole(size, "the size of `batch`")
    if count < 1:
        raise TemplateError(f"the size of `batch` must be 1 or more, found {count}")
    return [items[i : i + count] for i in range(0, len(items), count)]


def do_list(meter: Meter, value: object) -> list[Any]:
    return elements(meter, value, "list")


def do_string(meter: Meter, value: object) -> str:
    out = op.write(value, meter.units)
    meter.walk(1 + len(out))
    return out


def do_int(meter: Meter, value: object, default: object = UNSET) -> object:
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
    if default is UNSET:
        raise TemplateError(f"`int` cannot read {_found(value)} as a whole number; `int(0)` would give 0 then")
    return default


def do_float(meter: Meter, value: object, default: object = UNSET) -> object:
    if op.is_number(value):
        return float(value)  # type: ignore[arg-type]
    if isinstance(value, str):
        meter.walk(1 + len(value))
        source = value.strip()
        if _NUMBER.fullmatch(source) and len(source) <= 400 and math.isfinite(number := float(source)):
            return number
    if default is UNSET:
        raise TemplateError(f"`float` cannot read {_found(value)} as a number; `float(0.0)` would give 0.0 then")
    return default


def _found(value: object) -> str:
    return f"the text {encode(value[:40])}" if isinstance(value, str) else described(value)


def _number(value: object, name: str) -> int | float:
    if not op.is_number(value):
        raise TemplateError(f"`{name}` needs a number, found {_found(value)}")
    return value  # type: ignore[return-value]


def do_round(meter: Meter, value: object, precision: object = 0, method: object = "common") -> object:
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


def do_abs(meter: Meter, value: object) -> object:
    return abs(_number(value, "abs"))


def do_tojson(meter: Meter, value: object) -> str:
    meter.measure(value)
    return encode(value)


def do_fromjson(meter: Meter, value: object) -> object:
    source = op.text(value, "what `fromjson` reads")
    meter.walk(1 + len(source))
    try:
        return decode_strict(source.encode())
    except ValueRefused as exc:
        raise TemplateError(f"`fromjson`: {exc.message}{f' at {exc.pointer}' if exc.pointer else ''}") from None


def do_pairs(meter: Meter, value: object) -> list[Any]:
    return [[key, item] for key, item in as_object(meter, value, "items").items()]


def do_dictsort(meter: Meter, value: object, case_sensitive: object = False, by: object = "key", reverse: object = False) -> list[Any]:
    if by not in ("key", "value"):
        raise TemplateError("`dictsort` sorts by 'key' or 'value'")
    pairs = [[key, item] for key, item in as_object(meter, value, "dictsort").items()]
    return do_sort(meter, pairs, reverse, case_sensitive, 0 if by == "key" else 1)


def do_keys_of(meter: Meter, value: object) -> list[Any]:
    return list(as_object(meter, value, "keys"))


def do_values_of(meter: Meter, value: object) -> list[Any]:
    return list(as_object(meter, value, "values").values())


def do_truncate(meter: Meter, value: object, length: object = 255, killwords: object = False, end: object = "...") -> str:
    source, tail = as_text(meter, value, "truncate"), op.text(end, "the end of `truncate`")
    size = op.whole(length, "the length of `truncate`")
    if size < len(tail):
        raise TemplateError(f"the length of `truncate` must be at least {len(tail)}, found {size}")
    if len(source) <= size:
        return source
    cut = source[: size - len(tail)]
    return (cut if killwords else cut.rsplit(" ", 1)[0]) + tail


def do_urlencode(meter: Meter, value: object) -> str:
    if isinstance(value, dict | list | tuple):
        pairs = list(value.items()) if isinstance(value, dict) else list(value)
        meter.walk(1 + len(pairs))
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            raise TemplateError("`urlencode` needs text, an object or a list of pairs")
        return "&".join(quote_plus(as_text(meter, k, "urlencode")) + "=" + quote_plus(as_text(meter, v, "urlencode")) for k, v in pairs)
    return quote(as_text(meter, value, "urlencode"))


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


def do_date(meter: Meter, value: object, format: object = "%Y-%m-%d") -> str:
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


def do_range(meter: Meter, first: object, stop: object = None, step: object = 1) -> list[int]:
    begin, end = (0, first) if stop is None else (first, stop)
    stride = op.whole(step, "the step of `range`")
    if stride == 0:
        raise TemplateError("the step of `range` is 0")
    numbers = range(op.whole(begin, "the start of `range`"), op.whole(end, "the end of `range`"), stride)
    # len() of a range cannot count beyond the machine's word; the arithmetic can.
    meter.walk(1 + max(0, (numbers.stop - numbers.start + stride + (-1 if stride > 0 else 1)) // stride))
    return list(numbers)
