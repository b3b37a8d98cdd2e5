"""The bound on a rendering's work: counted units and a size of result, never a clock.

It must not depend on the machine's speed: the same template over the same data always stops at the same place.
"""

from __future__ import annotations

from agiwo.errors import TemplateError

MAX_SOURCE = 20_000  #: characters of one template
MAX_UNITS = 200_000  #: elements and characters that a rendering may walk or make
MAX_RESULT = 1_000_000  #: bytes of text that a rendering may write


class Meter:
    """What one rendering may still do."""

    __slots__ = ("result", "units")

    def __init__(self) -> None:
        self.units = MAX_UNITS
        self.result = MAX_RESULT

    def walk(self, units: int = 1) -> None:
        """Count work *before* it is done. Raises TemplateError when it is used up."""
        self.units -= units
        if self.units < 0:
            raise TemplateError(f"the template does too much work: more than {MAX_UNITS:,} elements or characters walked")

    def wrote(self, text: str) -> None:
        """Count text that goes into the result. Raises TemplateError over the size."""
        # Characters first: a text that is too long anyway is not encoded only to be measured.
        self.result -= len(text) if text.isascii() or len(text) > self.result else len(text.encode())
        if self.result < 0:
            raise TemplateError(f"the template's result is larger than {MAX_RESULT:,} bytes")

    def measure(self, value: object) -> None:
        """Count every element and character of a value as walked, stopping as soon as too much is known to be there."""
        self.walk(weigh(value, self.units))

    def result_holds(self, value: object) -> None:
        """Refuse a value that the template made and that is larger than a result may be; it is not used up."""
        if weigh(value, self.result) > self.result:
            raise TemplateError(f"the template's result is larger than {MAX_RESULT:,} bytes")


def weigh(value: object, limit: int) -> int:
    """About the length of a value as JSON text, counted without making it; stops early beyond `limit`.

    Shared parts count each time that they appear, so a small value with many references cannot hide its size.
    """
    total = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            total += len(item) + 2
        elif isinstance(item, dict):
            total += 2 + len(item)
            if total <= limit:
                total += sum(map(len, item))
                stack.extend(item.values())
        elif isinstance(item, list | tuple):
            total += 2 + len(item)
            if total <= limit:
                stack.extend(item)
        else:
            total += 4
        if total > limit:
            break
    return total
