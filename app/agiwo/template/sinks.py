"""Where a rendering's text goes, by how the place uses it: plain, HTML, URL, SQL; data never becomes part of the author's code.

A sink only collects; it decides nothing about which value comes next.
"""

from __future__ import annotations

from collections.abc import Collection
from html import escape
from typing import Any, Protocol
from urllib.parse import quote

from agiwo.errors import TemplateError
from agiwo.template import operators as op
from agiwo.template.marks import Marked, SecretName
from agiwo.template.meter import Meter
from agiwo.template.tables import Html
from agiwo.values import JSON

Parts = tuple[str | SecretName, ...]


class Sink(Protocol):
    """What a template's body writes to."""

    def constant(self, text: str) -> None:
        """Text that the author wrote."""

    def insert(self, value: object) -> None:
        """The value of one `{{ }}`."""


class TextSink:
    """Text, with each inserted value in the form that the place needs ("" plain, "html" escaped, "url" percent-encoded)."""

    __slots__ = ("_form", "_meter", "_parts")

    def __init__(self, meter: Meter, form: str = "") -> None:
        self._meter = meter
        self._form = form
        self._parts: list[str | SecretName] = []

    def constant(self, text: str) -> None:
        self._meter.wrote(text)
        self._parts.append(text)

    def insert(self, value: object) -> None:
        if type(value) is Marked:
            for part in value.parts:
                self._add(part)
        elif type(value) is Html:
            self.constant(value.text)
        else:
            self._add(op.write(op.admit(value, "the expression"), self._meter.result))

    def _add(self, part: str | SecretName) -> None:
        # A value at the very start of a URL is its base, written by whoever may choose the address; later ones are pieces of it.
        form = self._form if self._form != "url" or self._parts else ""
        if isinstance(part, SecretName):
            self._parts.append(SecretName(part.name, form))
            return
        if form and len(part) <= self._meter.result:
            part = escape(part) if form == "html" else quote(part, safe="")
        self.constant(part)

    def finish(self) -> tuple[str, Parts]:
        """The text, and its parts if it holds secrets."""
        if any(isinstance(part, SecretName) for part in self._parts):
            return Marked(tuple(self._parts)).hidden(), _merged(self._parts)
        return "".join(self._parts), ()  # type: ignore[arg-type]


def _merged(parts: list[str | SecretName]) -> Parts:
    """Neighbouring texts as one."""
    out: list[str | SecretName] = []
    for part in parts:
        if isinstance(part, str) and out and isinstance(out[-1], str):
            out[-1] += part
        elif part != "":
            out.append(part)
    return tuple(out)


class SqlSink:
    """A statement whose inserted values are bound: `:p1` stands in the text, the value with its type beside it."""

    __slots__ = ("_meter", "_next", "_taken", "_text", "slots", "values")

    def __init__(self, meter: Meter, taken: Collection[str]) -> None:
        self._meter = meter
        self._taken = taken  # names that the author's own text has behind a colon
        self._next = 1
        self._text: list[str] = []
        self.values: dict[str, JSON] = {}
        self.slots: list[tuple[str, Parts]] = []

    def constant(self, text: str) -> None:
        self._meter.wrote(text)
        self._text.append(text)

    def insert(self, value: object) -> None:
        while (name := f"p{self._next}") in self._taken:
            self._next += 1
        self._next += 1
        self.constant(f":{name}")
        if type(value) is Marked:
            self.values[name] = value.hidden()
            self.slots.append((name, value.parts))
        else:
            self.values[name] = op.admit(value, "the expression")

    def finish(self) -> dict[str, Any]:
        return {"statement": "".join(self._text), "values": self.values}


class NoSink:
    """The sink of a bare expression, which writes nothing."""

    __slots__ = ()

    def constant(self, text: str) -> None:
        raise TemplateError("an expression writes no text")

    def insert(self, value: object) -> None:
        raise TemplateError("an expression writes no text")
