"""YAML or JSON text to plain values that keep what a person wrote, with the place of everything in it.

Built on the parser's events, so that depth, size and aliases are counted while they come; it knows nothing of workflows and never raises
for bad text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from agiwo.errors import Problem, ValueRefused
from agiwo.values import JSON, MAX_DIGITS, check, pointer

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: dict[str, JSON] = {"true": True, "false": False, "null": None, "~": None, "": None}
_TEXT_TAG = "tag:yaml.org,2002:str"
_KNOWN_TAGS = (None, "!", _TEXT_TAG, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_BARE_TEMPLATE = re.compile(r"^\s*(?:-\s+)*(?:[^\s#'\"{][^#'\"]*?:\s+|-\s+)(\{\{.*)$")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands (counted from 1), where its key does, and a plain scalar's text as written if it is no text by itself."""

    line: int
    column: int
    key_line: int
    key_column: int
    written: str | None = None


@dataclass(slots=True)
class Reading:
    """What came out of a text: the value, the place of each part by JSON Pointer, and what is wrong."""

    value: JSON = None
    places: dict[str, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    readable: bool = True


def read_text(text: str | bytes) -> Reading:
    """Read a document of at most 1 MB; whatever is wrong stands in `problems`."""
    reading = Reading()
    source = _decoded(text, reading)
    if source is not None:
        _Builder(source, reading).build()
    reading.readable = reading.readable and source is not None
    return reading


def source_text(text: str | bytes) -> str:
    """The text as it can be shown again; bytes that are not UTF-8 show as replacement characters."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def _decoded(text: str | bytes, reading: Reading) -> str | None:
    def refuse(code: str, message: str, at: int = 0, **more: Any) -> None:
        before = source_text(text[:at])
        reading.problems.append(Problem(code, message, line=before.count("\n") + 1, column=at - before.rfind("\n"), **more))

    if len(text) > MAX_BYTES or len(text) > MAX_BYTES // 4 and isinstance(text, str) and len(text.encode("utf-8", "replace")) > MAX_BYTES:
        refuse("too_large", f"a definition has at most {MAX_BYTES:,} bytes", found=f"{len(text):,}", expected=f"at most {MAX_BYTES:,}")
        return None
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as exc:
            refuse("not_utf8", f"the text is not UTF-8 (byte {exc.start})", exc.start, expected="UTF-8")
            return None
    text = text.removeprefix("\ufeff")
    bad = re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]", text)
    if bad is not None:
        name = "NUL" if bad.group() == "\x00" else f"U+{ord(bad.group()):04X}"
        refuse("bad_character", f"the text holds the character {name}, which cannot be kept", bad.start(), found=name)
        return None
    return text


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is not finished yet."""

    at: tuple[str | int, ...]
    value: Any
    event: Any
    key: str | None = None
    key_event: Any = None
    keys: dict[str, int] = field(default_factory=dict)
    merged: list[Any] = field(default_factory=list)
    anchor: str | None = None
    as_key: bool = False
    nodes: int = 1


class _Stop(Exception):
    pass


class _Builder:
    """Values from events, by an explicit stack: a hostile text costs no recursion."""

    def __init__(self, source: str, reading: Reading) -> None:
        self.source = source
        self.out = reading
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.nodes = 0
        self.done = False

    def build(self) -> None:
        try:
            for event in yaml.parse(self.source, Loader=_LOADER):
                self._take(event)
            if not self.done:
                self._problem("empty", "the document is empty", None, expected="a workflow with id, version and steps")
                self.out.readable = False
        except _Stop:
            self.out.readable = False
        except yaml.YAMLError as exc:
            self._unreadable(exc)
        except RecursionError:
            self._problem("too_deep", f"the document is nested deeper than {MAX_DEPTH}", None)
            self.out.readable = False

    def _take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event, {} if kind is yaml.MappingStartEvent else [])
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(event)
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent and self.done:
            self._problem("many_documents", "a text holds one document; `---` begins a second one", event)
            raise _Stop

    # Parts

    def _scalar(self, event: Any) -> None:
        self._count(1, event)
        if event.tag not in _KNOWN_TAGS:
            self._problem("yaml_tag", f"the YAML tag {event.tag[:80]!r} is not taken", event, found=event.tag[:80], expected="plain values")
        text: str = event.value
        frame = self.stack[-1] if self.stack else None
        if frame is not None and frame.key is None and isinstance(frame.value, dict) and not frame.as_key:
            self._key(frame, text, event)
            return
        value: JSON = text
        written = None
        if event.implicit[0] and event.tag is None:
            value, written = self._resolved(text, event)
        self._kept(text, event)
        self._put(value, event, written, 1, event.anchor)

    def _resolved(self, text: str, event: Any) -> tuple[JSON, str | None]:
        if text in _WORDS:
            return _WORDS[text], text
        number = _NUMBER.fullmatch(text) if text[0] in "-0123456789" else None
        if number is None:
            return text, None
        if number.group(1) is None and number.group(2) is None:
            if len(text.lstrip("-")) > MAX_DIGITS:
                self._problem("value_refused", f"an integer has more than {MAX_DIGITS} digits", event, found=text[:40] + "…")
                return 0, text
            return int(text), text
        value = float(text)
        if value in (float("inf"), float("-inf")):
            self._problem("value_refused", "the number is too large to be kept", event, found=text[:40])
            return 0, text
        return value, text

    def _kept(self, text: str, event: Any) -> None:
        try:
            check(text)
        except ValueRefused as exc:
            self._problem("bad_character", exc.message, event)

    def _key(self, frame: _Frame, text: str, event: Any) -> None:
        self._kept(text, event)
        frame.key, frame.key_event = text, event
        if text == "<<" and event.implicit[0]:
            return
        line = event.start_mark.line + 1
        if text in frame.keys:
            first = frame.keys[text]
            self._problem(
                "duplicate_key",
                f"the key `{text[:80]}` stands twice here, first in line {first}",
                event,
                (*frame.at, text),
                found=text[:80],
            )
        else:
            frame.keys[text] = line

    def _open(self, event: Any, value: Any) -> None:
        self._count(1, event)
        if event.tag not in _KNOWN_TAGS:
            self._problem("yaml_tag", f"the YAML tag {event.tag[:80]!r} is not taken", event, found=event.tag[:80], expected="plain values")
        if len(self.stack) >= MAX_DEPTH:
            self._problem("too_deep", f"the document is nested deeper than {MAX_DEPTH}", event, expected=f"at most {MAX_DEPTH} levels")
            raise _Stop
        parent = self.stack[-1] if self.stack else None
        as_key = parent is not None and (parent.as_key or (isinstance(parent.value, dict) and parent.key is None))
        self.stack.append(_Frame(self._here(), value, event, anchor=event.anchor, as_key=as_key))

    def _close(self, event: Any) -> None:
        frame = self.stack.pop()
        parent = self.stack[-1] if self.stack else None
        if frame.as_key and parent is not None:
            if not parent.as_key:
                self._complex_key(parent, frame)
            return
        value = frame.value
        if isinstance(value, _Template):
            start, end = frame.event.start_mark.index, event.end_mark.index
            value = self.source[start:end]
        for merged in reversed(frame.merged):
            value = {**merged, **value}
        self._put(value, frame.event, None, frame.nodes, frame.anchor)

    def _complex_key(self, parent: _Frame, frame: _Frame) -> None:
        """A mapping or list as a key: nearly always a template that was not quoted."""
        parent.key, parent.key_event = "", None
        if isinstance(frame.value, dict) and frame.event.flow_style and parent.event.flow_style and not parent.keys:
            end = self.source.find("\n", parent.event.start_mark.index)
            shown = self.source[parent.event.start_mark.index : end if end > 0 else None].split("#")[0].strip().rstrip(",")
            self._quote(_balanced(shown), parent.event, parent.at)
            parent.value = _Template()
        else:
            self._problem("key_not_text", "a key must be text", frame.event, parent.at, expected="text")

    def _alias(self, event: Any) -> None:
        frame = self.stack[-1] if self.stack else None
        known = self.anchors.get(event.anchor)
        if known is None:
            inside = any(f.anchor == event.anchor for f in self.stack)
            what = "stands inside itself" if inside else "is not defined before it is used"
            self._problem("yaml_alias", f"the anchor `{event.anchor}` {what}", event, found=f"*{event.anchor}")
            known = (None, 1)
        value, nodes = known
        self._count(nodes, event)
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            if isinstance(value, str) and not frame.as_key:
                self._key(frame, value, _AliasKey(event))
            elif not frame.as_key:
                frame.key, frame.key_event = "", None
                self._problem("key_not_text", "a key must be text", event, expected="text")
            return
        self._put(value, event, None, nodes, None)

    # Putting together

    def _here(self) -> tuple[str | int, ...]:
        if not self.stack:
            return ()
        frame = self.stack[-1]
        if isinstance(frame.value, list):
            return (*frame.at, len(frame.value))
        return (*frame.at, frame.key or "") if not frame.as_key else frame.at

    def _put(self, value: JSON, event: Any, written: str | None, nodes: int, anchor: str | None) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, nodes)
        frame = self.stack[-1] if self.stack else None
        mark = event.start_mark
        at = self._here()
        key_mark = mark
        if frame is None:
            self.out.value, self.done = value, True
        else:
            frame.nodes += nodes
            if isinstance(frame.value, list):
                frame.value.append(value)
            elif frame.as_key or isinstance(frame.value, _Template):
                frame.key = None
                return
            else:
                key_mark = mark if frame.key_event is None else frame.key_event.start_mark
                self._member(frame, value, event)
        self.out.places[pointer(*at)] = Place(mark.line + 1, mark.column + 1, key_mark.line + 1, key_mark.column + 1, written)

    def _member(self, frame: _Frame, value: JSON, event: Any) -> None:
        key = frame.key or ""
        frame.key = None
        if key == "<<" and getattr(frame.key_event, "implicit", (False,))[0]:
            parts = value if isinstance(value, list) else [value]
            if all(isinstance(part, dict) for part in parts):
                frame.merged.extend(reversed(parts))
            else:
                self._problem("yaml_merge", "`<<` takes a mapping or a list of mappings", event, frame.at, expected="a mapping")
        elif key not in frame.value and frame.key_event is not None:
            frame.value[key] = value

    def _count(self, nodes: int, event: Any) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            self._problem(
                "too_many_values",
                f"the document holds more than {MAX_NODES:,} values once its anchors are filled in",
                event,
                expected=f"at most {MAX_NODES:,}",
            )
            raise _Stop

    # Problems

    def _problem(self, code: str, message: str, event: Any, at: tuple[str | int, ...] | None = None, **more: Any) -> None:
        where = pointer(*(self._here() if at is None else at))
        mark = event.start_mark if event is not None else None
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        self.out.problems.append(Problem(code, message, where, line, column, **more))

    def _quote(self, shown: str, event: Any, at: tuple[str | int, ...]) -> None:
        self._problem(
            "unquoted_template",
            f"quote this template: {_quoted(shown[:120])} (YAML reads bare braces as a mapping)",
            event,
            at,
            found=shown[:120],
            expected="a quoted text",
        )

    def _unreadable(self, exc: yaml.YAMLError) -> None:
        self.out.readable = False
        mark = getattr(exc, "problem_mark", None)
        if self.source.lstrip()[:1] in ("{", "[") and self._json():
            return
        line = mark.line if mark is not None else 0
        column = mark.column if mark is not None else 0
        lines = self.source.split("\n")
        context = getattr(exc, "context_mark", None)
        for number in dict.fromkeys((line, line - 1, context.line if context is not None else line)):
            bare = _BARE_TEMPLATE.match(lines[number]) if 0 <= number < len(lines) else None
            if bare is not None:
                shown = bare.group(1).strip()
                self.out.problems.append(
                    Problem(
                        "unquoted_template",
                        f"quote this template: {_quoted(shown)} (YAML reads bare braces as a mapping)",
                        pointer(*self._here()),
                        number + 1,
                        bare.start(1) + 1,
                        found=shown[:120],
                        expected="a quoted text",
                    )
                )
                return
        code, message = "not_yaml", f"this is no YAML: {getattr(exc, 'problem', None) or exc}"
        if 0 <= line < len(lines) and re.match(r"\s*\t", lines[line]):
            message = "a tab stands in the indentation; YAML takes spaces only"
        elif "nesting depth" in message:
            code, message = "too_deep", f"the document is nested deeper than {MAX_DEPTH}"
        self.out.problems.append(Problem(code, message[:300], pointer(*self._here()), line + 1, column + 1))

    def _json(self) -> bool:
        """JSON has spellings that YAML's parser does not take; its values count, their places are not known."""
        try:
            value = json.loads(self.source, object_pairs_hook=_once)
            check(value)
        except (ValueError, RecursionError, ValueRefused):
            return False
        self.out.value, self.out.readable = value, True
        self.out.places.clear()
        self.out.problems.clear()
        return True


class _Template(dict[str, Any]):
    """Stands for a mapping that is an unquoted template."""


@dataclass(slots=True)
class _AliasKey:
    event: Any
    implicit: tuple[bool, bool] = (False, False)

    @property
    def start_mark(self) -> Any:
        return self.event.start_mark


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return out


def _balanced(text: str) -> str:
    """The text up to the brace that closes its first one: what follows belongs to the mapping or list around a template."""
    depth = 0
    for index, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "}" and depth == 0:
            return text[: index + 1]
    return text


def _quoted(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'


def locate(places: Mapping[str, Place], at: str) -> Iterator[Place]:
    """The places that fit a pointer, nearest first: its own, else those of what encloses it."""
    while True:
        place = places.get(at)
        if place is not None:
            yield place
        if not at:
            return
        at = at.rpartition("/")[0]
