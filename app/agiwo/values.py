"""JSON values at our borders: what may be kept, how it is written, how it is read back unchanged.

Integers are exact up to 100 digits and floats keep their bits, so nothing here goes through jsonb's numeric or a lossy parser.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson

from agiwo.errors import ValueRefused

MAX_DIGITS = 100
MAX_DEPTH = 100
MAX_VALUE = 32_000_000  #: bytes of JSON text of one value; a larger one is refused wherever it comes from
_TOO_LONG = 10**MAX_DIGITS
_LONG_DIGITS = re.compile(rb"\d{18}")
_BAD_TEXT = re.compile("[\x00\ud800-\udfff]")

JSON = Any  # any JSON value; Python has no exact recursive name for it that mypy and readers both like


def pointer(*parts: str | int) -> str:
    """A JSON Pointer (RFC 6901) from its parts."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in parts)


def check(value: JSON) -> None:
    """Refuse what Postgres or JSON cannot hold.

    Raises ValueRefused naming the place: NUL and lone surrogates in text or keys, NaN and infinities, integers of more than 100 digits,
    nesting deeper than 100, keys that are not text, and objects that are no JSON.
    """
    _check(value, (), 0)


def _check(value: JSON, at: tuple[str | int, ...], depth: int) -> None:  # noqa: C901 - one branch a JSON type, on the hot path
    kind = type(value)
    if kind is str:
        _check_text(value, at)
    elif kind is int:
        if not -_TOO_LONG < value < _TOO_LONG:
            raise ValueRefused(f"an integer has more than {MAX_DIGITS} digits", pointer(*at))
    elif kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueRefused(f"{value} is no JSON number", pointer(*at))
    elif kind is dict:
        _check_depth(depth, at)
        for key, item in value.items():
            if type(key) is not str:
                raise ValueRefused(f"the key {key!r} is not text", pointer(*at))
            _check_text(key, at)
            _check(item, (*at, key), depth + 1)
    elif kind is list or kind is tuple:
        _check_depth(depth, at)
        for index, item in enumerate(value):
            _check(item, (*at, index), depth + 1)
    elif value is not None and kind is not bool:
        raise ValueRefused(f"a {kind.__name__} is no JSON value", pointer(*at))


def _check_text(text: str, at: tuple[str | int, ...]) -> None:
    if not text.isascii() or "\x00" in text:
        bad = _BAD_TEXT.search(text)
        if bad is not None:
            name = "the character NUL" if bad.group() == "\x00" else "a lone surrogate"
            raise ValueRefused(f"a text holds {name} at position {bad.start()}", pointer(*at))


def _check_depth(depth: int, at: tuple[str | int, ...]) -> None:
    if depth > MAX_DEPTH:
        raise ValueRefused(f"a value is nested deeper than {MAX_DEPTH}", pointer(*at[:8]))


def encode(value: JSON) -> str:
    """Compact JSON text of a checked value."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, orjson.JSONEncodeError):
        # orjson knows no integer beyond 64 bits, no tuple keys, no subclass; the slow encoder does the exact thing.
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)


def size(value: JSON) -> int:
    """How many bytes the JSON text of a checked value has."""
    try:
        return len(orjson.dumps(value))
    except (TypeError, orjson.JSONEncodeError):
        return len(encode(value).encode())


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def decode(text: str | bytes) -> JSON:
    """Read JSON text that we wrote; exact for long integers."""
    raw = text.encode() if isinstance(text, str) else text
    return json.loads(raw) if _LONG_DIGITS.search(raw) else orjson.loads(raw)


def decode_strict(text: bytes) -> JSON:
    """Read JSON text that a stranger wrote, UTF-8 only, each key once, all values keepable.

    Raises ValueRefused that names the place.
    """
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_int)
    except UnicodeDecodeError as exc:
        raise ValueRefused(f"the text is not UTF-8 (byte {exc.start})") from None
    except json.JSONDecodeError as exc:
        raise ValueRefused(f"the text is not JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}") from None
    except RecursionError:
        raise ValueRefused(f"a value is nested deeper than {MAX_DEPTH}") from None
    check(value)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueRefused(f"the key {key[:80]!r} stands twice in one object")
            seen.add(key)
    return out


def _no_constant(name: str) -> NoReturn:
    raise ValueRefused(f"{name} is no JSON number")


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS + 1:
        raise ValueRefused(f"an integer has more than {MAX_DIGITS} digits")
    return int(digits)


def canonical(value: JSON) -> bytes:
    """The one byte form of a value: keys sorted, no spaces; equal values of equal types give equal bytes."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain).encode()


def digest(value: JSON) -> str:
    """SHA-256 of the canonical form, as 64 hex digits."""
    return hashlib.sha256(canonical(value)).hexdigest()


def kind_of(value: JSON) -> str:
    """The JSON Schema name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object"


def plain(value: object, depth: int = 10) -> JSON:
    """Any value as JSON for people to read: what is no JSON, or nested deeper than `depth`, becomes its `repr`. Never raises."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_TOO_LONG < value < _TOO_LONG else f"an integer of more than {MAX_DIGITS} digits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if depth and isinstance(value, Mapping):
        return {str(plain(key, 0)): plain(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list | tuple):
        return [plain(item, depth - 1) for item in value]
    try:
        return plain(repr(value))
    except Exception:
        return f"a {type(value).__name__}"


def shown(value: JSON, limit: int = 80) -> str:
    """A value as an error message shows it: JSON, cut at `limit` characters."""
    text = encode(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"
