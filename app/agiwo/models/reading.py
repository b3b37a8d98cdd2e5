"""Reads a mapping of configuration and remembers everything that is wrong with it, so that one answer names it all.

Knows no particular key; a secret's text never gets into a problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import SplitResult, urlsplit

from agiwo.errors import InvalidInput, Problem
from agiwo.names import nearest
from agiwo.values import kind_of, pointer, shown

#: Mistakes of one mapping that a message names.
_TOLD = 5


class Reader:
    """Takes fields out of a mapping; each method answers with a usable value even where it remembered a problem."""

    def __init__(self, data: Any, at: tuple[str, ...] = (), problems: list[Problem] | None = None) -> None:
        self.problems: list[Problem] = [] if problems is None else problems
        self.at = at
        self.data: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        if not isinstance(data, Mapping):
            self.problems.append(Problem("type", "this is no mapping", pointer(*at), found=kind_of(data), expected="object"))

    def wrong(self, key: str, message: str, found: Any, expected: str, nearest: str | None = None) -> None:
        """Remember a mistake; a secret is never shown."""
        seen = None if found is None else "***" if key == "api_key" and not str(found).startswith("env:") else shown(found)
        self.problems.append(Problem("profile", message, pointer(*self.at, key), found=seen, expected=expected, nearest=nearest))

    def known(self, *keys: str) -> None:
        for key in self.data:
            if key not in keys:
                near = nearest(str(key), keys)
                message = f"there is no key {shown(str(key))} here" + ("" if near is None else f" (did you mean `{near}`?)")
                self.wrong(str(key), message, str(key), "one of " + ", ".join(keys), near)

    def inside(self, key: str) -> Reader:
        inner = self.data.get(key)
        return Reader({} if inner is None else inner, (*self.at, key), self.problems)

    def optional(self, key: str, kind: type, said: str) -> Any:
        value = self.data.get(key)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            self.wrong(key, f"`{key}` is no {said}", value, said)
            return None
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.optional(key, bool, "true or false")
        return default if value is None else bool(value)

    def text(self, key: str) -> str:
        value = self.optional(key, str, "text")
        if value is None and self.data.get(key) is None or value == "":
            self.wrong(key, f"`{key}` is missing", None, "text")
        return value or ""

    def texts(self, key: str, default: tuple[str, ...], among: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            self.wrong(key, f"`{key}` is no list of texts", value, "a list of texts")
            return default
        for item in value:
            if among and item not in among:
                self.wrong(key, f"`{key}` names {shown(item)}", item, "one of " + ", ".join(among))
        return tuple(value)

    def choice(self, key: str, among: tuple[str, ...], default: str) -> str:
        value = self.optional(key, str, "text")
        if value is None:
            return default
        if value not in among:
            self.wrong(key, f"`{key}` may not be {shown(value)}", value, "one of " + ", ".join(among), nearest(value, among))
        return str(value)

    def url(self, key: str) -> str:
        value = self.text(key)
        parts = _split(value)
        if value and (parts is None or parts.scheme not in ("http", "https") or not parts.hostname):
            self.wrong(key, f"`{key}` is no HTTP address", value, "http://… or https://…")
        elif parts is not None and parts.username is not None:
            self.wrong(key, "a credential in an address would be shown; use `api_key`", None, "no user part")
        return value.rstrip("/")

    def number(self, key: str, default: float | None = None) -> float | None:
        return self._measured(key, default, lambda value: value >= 0, "a number, 0 or more")

    def positive(self, key: str, default: float) -> float:
        value = self._measured(key, default, lambda value: value > 0, "seconds, more than 0")
        return default if value is None else value

    def money(self, key: str) -> Decimal | None:
        value = self._measured(key, None, lambda value: value >= 0, "US dollars, 0 or more")
        return None if value is None else Decimal(str(value))

    def count(self, key: str, default: int) -> int:
        value = self._measured(key, default, lambda value: value >= 1 and value == int(value), "a whole number, 1 or more")
        return default if value is None else int(value)

    def _measured(self, key: str, default: float | None, fits: Callable[[float], bool], said: str) -> float | None:
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not fits(value):
            self.wrong(key, f"`{key}` does not fit", value if not isinstance(value, float) or math.isfinite(value) else str(value), said)
            return default
        return value

    def whole(self, key: str, *, least: int = 1, most: int | None = None) -> int | None:
        value: int | None = self.optional(key, int, "whole number")
        if value is not None and (value < least or (most is not None and value > most)):
            limit = f"a whole number, {least} or more" if most is None else f"a whole number from {least} to the profile's {most}"
            self.wrong(key, f"`{key}` is {shown(value)}", value, limit)
        return value

    def finish(self, what: str) -> None:
        if self.problems:
            told = "; ".join(f"{one.message} at {one.pointer or '/'}" for one in self.problems[:_TOLD])
            more = f" (and {len(self.problems) - _TOLD} more)" if len(self.problems) > _TOLD else ""
            raise InvalidInput(f"{what}: {told}{more}", code="model_profile_refused", problems=self.problems)


def _split(value: str) -> SplitResult | None:
    try:
        return urlsplit(value)
    except ValueError:
        return None
