"""What `+`, `==`, `in`, `<` and the writing of values as text mean, each counted before it is done.

Types are JSON's: true is not 1, text is never a number, and nothing is converted in silence.
"""

from __future__ import annotations

from agiwo.errors import TemplateError
from agiwo.template.absent import Absent, described, is_namespace
from agiwo.template.marks import Marked
from agiwo.template.meter import MAX_RESULT, Meter, weigh
from agiwo.values import MAX_DIGITS, encode

_TOO_LONG = 10**MAX_DIGITS
_INFINITE = (float("inf"), float("-inf"))
Number = int | float


def is_number(value: object) -> bool:
    """Whether a value is a JSON number (booleans are none)."""
    return type(value) is int or type(value) is float


def whole(value: object, what: str) -> int:
    """An integer argument. Raises TemplateError for anything else."""
    if type(value) is not int:
        raise TemplateError(f"{what} must be a whole number, found {described(value)}")
    return value


def text(value: object, what: str) -> str:
    """A text argument. Raises TemplateError for anything else."""
    if not isinstance(value, str):
        raise TemplateError(f"{what} must be text, found {described(value)}")
    return value


def admit(value: object, source: str) -> object:
    """A value that may be used. Raises TemplateError for an absent name, a group of names and a secret."""
    if isinstance(value, Absent):
        raise TemplateError(value.message())
    if isinstance(value, Marked):
        raise TemplateError("a secret may only stand alone or be joined to text")
    if is_namespace(value):
        members = ", ".join(value.members()[:20])  # type: ignore[attr-defined]
        raise TemplateError(f"`{source}` is a group of names, not a value; name one of: {members}")
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        return value
    raise TemplateError(f"`{source}` gives something that can only be written out, not worked with")


def checked(number: Number | complex) -> Number:
    """A number that can be kept. Raises TemplateError for too many digits and for what JSON has no number for."""
    if isinstance(number, int):
        if not -_TOO_LONG < number < _TOO_LONG:
            raise TemplateError(f"an integer has more than {MAX_DIGITS} digits")
        return number
    if isinstance(number, complex) or number != number or number in _INFINITE:
        raise TemplateError("the result is no number that JSON can hold")
    return number


def _numbers(left: object, right: object, sign: str) -> tuple[Number, Number]:
    if not is_number(left) or not is_number(right):
        hint = "; `~` joins text" if isinstance(left, str) or isinstance(right, str) else ""
        raise TemplateError(f"`{sign}` needs two numbers, found {described(left)} and {described(right)}{hint}")
    return left, right  # type: ignore[return-value]


def add(meter: Meter, left: object, right: object) -> object:
    if isinstance(left, str) and isinstance(right, str):
        meter.walk(len(left) + len(right))
        return left + right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        meter.walk(len(left) + len(right))
        return [*left, *right]
    a, b = _numbers(left, right, "+")
    return checked(a + b)


def subtract(meter: Meter, left: object, right: object) -> object:
    a, b = _numbers(left, right, "-")
    return checked(a - b)


def multiply(meter: Meter, left: object, right: object) -> object:
    if isinstance(right, str | list | tuple):
        left, right = right, left
    if isinstance(left, str | list | tuple) and type(right) is int:
        meter.walk(len(left) * max(right, 0))
        times = right if left else 0
        return left * times if isinstance(left, str) else list(left) * times
    a, b = _numbers(left, right, "*")
    return checked(a * b)


def divide(meter: Meter, left: object, right: object) -> object:
    a, b = _numbers(left, right, "/")
    return checked(a / _divisor(b))


def floor_divide(meter: Meter, left: object, right: object) -> object:
    a, b = _numbers(left, right, "//")
    return checked(a // _divisor(b))


def modulo(meter: Meter, left: object, right: object) -> object:
    a, b = _numbers(left, right, "%")
    return checked(a % _divisor(b))


def power(meter: Meter, left: object, right: object) -> object:
    a, b = _numbers(left, right, "**")
    if isinstance(a, int) and isinstance(b, int) and b > 0 and a.bit_length() * b > 4 * MAX_DIGITS:
        raise TemplateError(f"an integer has more than {MAX_DIGITS} digits")
    try:
        result: Number | complex = a**b
    except ZeroDivisionError:
        raise TemplateError("0 has no negative power") from None
    except OverflowError:
        raise TemplateError("the result is no number that JSON can hold") from None
    return checked(result)


def _divisor(value: Number) -> Number:
    if value == 0:
        raise TemplateError("division by zero")
    return value


def negate(value: object) -> object:
    if not is_number(value):
        raise TemplateError(f"`-` needs a number, found {described(value)}")
    return checked(-value)  # type: ignore[operator]


def same(meter: Meter, left: object, right: object) -> bool:
    """Equality of JSON values, part by part; 1 and 1.0 are equal, true and 1 are not."""
    meter.walk()
    if left is right:
        return True
    if isinstance(left, str) and isinstance(right, str):
        if len(left) != len(right):
            return False
        meter.walk(len(left))
        return left == right
    if is_number(left) and is_number(right):
        return left == right
    if isinstance(left, dict) and isinstance(right, dict):
        if len(left) != len(right):
            return False
        for key, value in left.items():
            meter.walk(len(key))
            if key not in right or not same(meter, value, right[key]):
                return False
        return True
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(same(meter, a, b) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and left == right


def less(meter: Meter, left: object, right: object, sign: str) -> bool:
    """Order of two numbers or two texts. Raises TemplateError for anything else."""
    if isinstance(left, str) and isinstance(right, str):
        meter.walk(1 + min(len(left), len(right)))
        return left < right
    if is_number(left) and is_number(right):
        return left < right  # type: ignore[operator,no-any-return]
    raise TemplateError(f"`{sign}` compares two numbers or two texts, found {described(left)} and {described(right)}")


def contains(meter: Meter, item: object, holder: object) -> bool:
    """Whether a list has an equal element, an object the key, a text the part."""
    if isinstance(holder, str):
        part = text(item, "what is looked for in a text")
        meter.walk(1 + len(holder) + len(part))
        return part in holder
    if isinstance(holder, dict):
        meter.walk()
        return isinstance(item, str) and item in holder
    if isinstance(holder, list | tuple):
        return any(same(meter, item, element) for element in holder)
    raise TemplateError(f"`in` looks into a list, an object or a text, found {described(holder)}")


def write(value: object, room: int) -> str:
    """A value as it appears in a longer text; `room` bounds how much of a list or object is turned into JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int | float):
        return encode(value)
    if weigh(value, room) > room:
        raise TemplateError(f"a value is too large to be written as text ({room:,} characters are left of {MAX_RESULT:,} or of the work)")
    return encode(value)
