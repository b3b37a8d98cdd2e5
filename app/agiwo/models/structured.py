"""What an answer says: its end first, then the first value in it that fits the author's schema.

Pure: asks nobody again, converts nothing, and never looks for a value inside a model's thinking.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from agiwo.errors import InvalidInput, ValidationError, ValueRefused
from agiwo.models.protocol import Mode, ModelReply
from agiwo.models.strict import OPENAI, WRAP, Dialect, SentSchema, object_schema, sent_schema, without_added_nulls
from agiwo.schema import Schema
from agiwo.values import JSON, canonical, check, decode_strict, shown

MAX_PROBLEMS = 5
_MAX_STARTS = 64
_MAX_FENCES = 8
_THINK_END = "</think>"
_THINK_START = "<think>"
_FENCE = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")


class End(StrEnum):
    """How an answer ended."""

    COMPLETE = "complete"  # the model said all it had to say
    TRUNCATED = "truncated"  # a limit cut it off
    REFUSED = "refused"  # the model or a filter declined
    TOOL_CALL = "tool_call"  # it wants a tool
    TOO_LONG = "too_long"  # prompt and answer together do not fit the model
    PAUSED = "paused"  # it would go on if it were asked to
    UNKNOWN = "unknown"  # a word that we do not know proves nothing


_ENDS: Mapping[str, End] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn"), End.COMPLETE),
    **dict.fromkeys(("length", "max_tokens", "model_length"), End.TRUNCATED),
    **dict.fromkeys(("content_filter", "refusal", "safety"), End.REFUSED),
    **dict.fromkeys(("tool_calls", "tool_use", "function_call"), End.TOOL_CALL),
    "model_context_window_exceeded": End.TOO_LONG,
    "pause_turn": End.PAUSED,
}


def end_of(finish_reason: str) -> End:
    """What an endpoint's word for the end of an answer means."""
    return _ENDS.get(finish_reason.lower(), End.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The value that the answer gave, and where in the answer it stood."""

    value: JSON
    source: str


@dataclass(frozen=True, slots=True)
class OutputProblem:
    """Why an answer gives no output: the failure's type, its reason in one word, and what a validator said (at most five).

    `askable` tells whether asking again with these words can help.
    """

    type: str
    reason: str
    message: str
    problems: tuple[str, ...] = ()
    askable: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """The author's schema, against which answers are checked, and the form in which it is sent."""

    schema: Schema
    sent: SentSchema


def expect(schema: Mapping[str, JSON], mode: Mode = Mode.JSON_SCHEMA, dialect: Dialect = OPENAI) -> Expected:
    """All that is needed to ask for, and to check, a value of `schema` in this mode.

    Raises StepError (ValidationError) if it is no JSON Schema.
    """
    compiled = compiled_schema(schema)
    # Sent in the author's order, which the compiled form does not keep: models write properties in the order of the schema.
    if mode in (Mode.JSON_SCHEMA, Mode.TOOL):
        return Expected(compiled, sent_schema(schema, dialect, always_object=mode is Mode.TOOL))
    if mode is Mode.JSON_OBJECT:
        return Expected(compiled, object_schema(schema))
    return Expected(compiled, SentSchema(dict(schema), strict=False))


def compiled_schema(schema: Mapping[str, JSON]) -> Schema:
    try:
        return Schema.compile(schema)
    except InvalidInput as exc:
        raise ValidationError(f"output_schema: {exc.message}", details={"problems": [p.to_json() for p in exc.problems[:100]]}) from None


def _told(schema: Schema, value: JSON) -> tuple[str, ...]:
    return tuple(f"at {found.pointer or '/'}: {found.message}" for found in schema.problems(value)[:MAX_PROBLEMS])


def parse_reply(reply: ModelReply, expected: Expected | None, max_tokens: int | None = None) -> Parsed | OutputProblem:
    """The output that an answer gives; without a schema its text as it stands.

    `max_tokens` is the limit that was asked for, named when the answer was cut off.
    """
    problem = _not_complete(reply, expected, max_tokens)
    if problem is not None:
        return problem
    text = reply.text or ""
    if expected is None:
        if not text:
            return OutputProblem("OutputInvalid", "empty", "the model answered with nothing")
        return _keepable(text) or Parsed(text, "text")
    if not text and not reply.arguments:
        return OutputProblem("OutputInvalid", "empty", "the model answered with nothing")
    return _first_fitting(text, reply.arguments, expected)


def _not_complete(reply: ModelReply, expected: Expected | None, max_tokens: int | None) -> OutputProblem | None:
    end = end_of(reply.finish_reason)
    if end is End.TRUNCATED:
        now = "not set" if max_tokens is None else f"now {max_tokens}"
        return OutputProblem("Truncated", "length", f"truncated: raise max_tokens ({now})")
    if end is End.REFUSED or reply.refusal:
        said = f": {shown(reply.refusal, 300)}" if reply.refusal else f" ({reply.finish_reason})"
        return OutputProblem("Refused", "refusal", f"the model or its filter refused{said}")
    if end is End.TOO_LONG:
        return OutputProblem("ContextTooLong", "context", "the prompt and its answer do not fit the model's context")
    if end is End.PAUSED:
        return OutputProblem("Unavailable", "incomplete", "the answer is incomplete: the model paused")
    if end is End.TOOL_CALL and (expected is None or reply.arguments is None):
        return OutputProblem("OutputInvalid", "tool_call", "the model called a tool, and none was offered")
    if end is End.UNKNOWN:
        return OutputProblem("Unavailable", "incomplete", f"the answer ended with {shown(reply.finish_reason)}, which proves no end")
    return None


def _keepable(value: JSON) -> OutputProblem | None:
    try:
        check(value)
    except ValueRefused as exc:
        where = f" at {exc.pointer}" if exc.pointer else ""
        return OutputProblem("OutputInvalid", "not_storable", f"the model's output cannot be stored: {exc.message}{where}")
    return None


def _first_fitting(text: str, arguments: str | None, expected: Expected) -> Parsed | OutputProblem:
    told: OutputProblem | None = None
    for source, value in _candidates(text, arguments):
        answer = _fit(value, expected, source)
        if isinstance(answer, Parsed):
            return answer
        if answer.reason == "not_storable":
            return answer
        told = told or answer
    why = _why_no_json(text or arguments or "")
    return told or OutputProblem("OutputInvalid", "parse", why, (why,), askable=True)


def _why_no_json(text: str) -> str:
    try:
        decode_strict(after_thinking(text).strip().encode("utf-8", "replace"))
    except ValueRefused as exc:
        return f"the answer holds no JSON value ({exc.message})"
    return "the answer holds no JSON value"


def _fit(value: JSON, expected: Expected, source: str) -> Parsed | OutputProblem:
    problem = _keepable(value)
    if problem is not None:
        return problem
    first: tuple[str, ...] = ()
    for form in _forms(value, expected):
        if _is_the_schema(form, expected):
            first = first or ("the answer is the schema itself, not a value that fits it",)
            continue
        told = _told(expected.schema, form)
        if not told:
            return Parsed(form, source)
        first = first or told
    return OutputProblem("OutputInvalid", "schema", f"the answer does not fit output_schema: {first[0]}", first, askable=True)


def _forms(value: JSON, expected: Expected) -> Iterator[JSON]:
    """The value in the ways that it may be meant: out of its wrapping, as it is, without nulls that only our sent form asked for."""
    for seen in _decoded(value):
        if expected.sent.wrapped and isinstance(seen, dict) and set(seen) == {WRAP}:
            yield from _plain(seen[WRAP], expected)
        yield from _plain(seen, expected)


def _plain(value: JSON, expected: Expected) -> Iterator[JSON]:
    yield value
    if expected.sent.strict:
        stripped = without_added_nulls(value, expected.schema.source, lambda schema: Schema.compile(schema).fits(None))
        if stripped != value:
            yield stripped


def _decoded(value: JSON) -> Iterator[JSON]:
    yield value
    if isinstance(value, str):
        inner = _loads(value)
        if inner and isinstance(inner[0], dict | list) and _keepable(inner[0]) is None:
            yield inner[0]


def _is_the_schema(value: JSON, expected: Expected) -> bool:
    if not isinstance(value, dict) or not value:
        return False
    own = canonical(value)
    return own in (canonical(expected.schema.source), canonical(dict(expected.sent.schema)))


def _candidates(text: str, arguments: str | None = None) -> Iterator[tuple[str, JSON]]:
    """JSON values of an answer, most literal first; lazily, so that a fitting one ends the search."""
    for value in _loads(arguments or ""):
        yield "tool", value
    for value in _loads(text):
        yield "text", value
    answer = after_thinking(text)
    if answer != text:
        for value in _loads(answer):
            yield "after_thinking", value
    for count, fence in enumerate(_FENCE.finditer(answer)):
        if count == _MAX_FENCES:
            break
        for value in _loads(fence.group(1)):
            yield "fence", value
    for value in balanced(answer):
        yield "balanced", value


def after_thinking(text: str) -> str:
    """The part of an answer that is no thinking: behind the last end mark, or before a start mark that nothing ends."""
    cut = text.rfind(_THINK_END)
    answer = text[cut + len(_THINK_END) :] if cut >= 0 else text
    opened = answer.find(_THINK_START)
    return answer if opened < 0 else answer[:opened]


def balanced(text: str) -> Iterator[JSON]:
    """JSON objects and lists that stand in a text, left to right; looks at no more than 64 opening brackets."""
    decoder = _decoder()
    at = 0
    for _ in range(_MAX_STARTS):
        start = _OPENING.search(text, at)
        if start is None:
            return
        try:
            value, at = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError, ValueRefused):
            at = start.end()
        else:
            yield value


def _loads(text: str) -> tuple[JSON, ...]:
    """The one JSON value that a text is, or nothing."""
    try:
        return (_decoder().decode(text.strip()),)
    except (ValueError, RecursionError, ValueRefused):
        return ()


def _decoder() -> json.JSONDecoder:
    # No check for storable text here: a value that cannot be stored is told apart from a text that is no JSON.
    return json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    raise ValueRefused(f"{name} is no JSON number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueRefused("a key stands twice in one object")
    return out
