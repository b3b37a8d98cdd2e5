"""The ladder of ways to ask for JSON: which rungs a schema and an endpoint can stand on, and which of them an endpoint has refused lately.

A step down is taken only where the endpoint refuses the rung itself, never for a bad answer, and never past the profile's last rung.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from agiwo.clock import Clock
from agiwo.errors import StepError
from agiwo.models.protocol import Mode
from agiwo.models.strict import DIALECTS, NotStrict, strict_schema
from agiwo.values import JSON, digest, encode

#: Seconds for which a refused rung is not tried again; then the endpoint may have learned it.
REMEMBERED = 600.0
_MOST = 10_000
_STATUSES = (400, 404, 415, 422, 501)
_WORDS: Mapping[Mode, re.Pattern[str]] = {
    Mode.JSON_SCHEMA: re.compile(r"response_?format|json_?schema|output_?(config|format)|structured.outputs?|guided|grammar|schema", re.I),
    Mode.TOOL: re.compile(r"\btools?\b|tool_?choice|\bfunctions?\b|function.call|input_schema|schema", re.I),
    Mode.JSON_OBJECT: re.compile(r"response_?format|json_?(object|mode)", re.I),
}
_OF_THE_SCHEMA = re.compile(r"invalid.{0,20}schema|schema.{0,40}(invalid|too|complex|not permitted)|json_schema_invalid", re.I)


def why_not(schema: Mapping[str, JSON], mode: Mode, kind: str) -> str | None:
    """Why a schema cannot be asked for in this mode of this kind of endpoint; None if it can.

    An OpenAI endpoint takes any schema, and enforces it where it can; an Anthropic one refuses what it cannot enforce.
    """
    if mode is not Mode.JSON_SCHEMA or kind != "anthropic":
        return None
    try:
        strict_schema(schema, DIALECTS[kind])
    except NotStrict as exc:
        return str(exc)
    return None


class _Place(NamedTuple):
    profile: str
    model: str
    mode: Mode
    schema: str | None


class Rungs:
    """What endpoints have refused lately, for all steps of a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[_Place, float] = {}

    def for_schema(self, modes: tuple[Mode, ...], schema: Mapping[str, JSON], kind: str, profile: str, model: str) -> list[Mode]:
        """The rungs to try, in order; those refused lately only if nothing else is left.

        Raises StepError (ValidationError) if the schema can stand on none of them.
        """
        reasons = {mode: why_not(schema, mode, kind) for mode in modes}
        usable = [mode for mode in modes if reasons[mode] is None]
        if not usable:
            said = "; ".join(f"{mode}: {why}" for mode, why in reasons.items())
            raise StepError(
                f"output_schema cannot be asked for in any mode that the profile {profile!r} allows here ({said})",
                type="ValidationError",
                not_done=True,
            )
        now, own = self._clock.monotonic(), digest(schema)
        stand = [mode for mode in usable if all(self._until(profile, model, mode, which) <= now for which in (None, own))]
        return stand or usable[-1:]

    def refused(self, failure: StepError, mode: Mode, schema: Mapping[str, JSON], profile: str, model: str) -> bool:
        """Whether the endpoint refused this rung, which is then remembered: for this schema alone if it is the schema that it dislikes."""
        words = _WORDS.get(mode)
        if (
            words is None
            or failure.status not in _STATUSES
            or failure.type not in ("ValidationError", "NotFound", "ToolError", "Unavailable")
        ):
            return False
        said = _said(failure)
        if words.search(said) is None:
            return False
        if len(self._refused) >= _MOST:
            self._refused.clear()
        which = digest(schema) if _OF_THE_SCHEMA.search(said) else None
        self._refused[_Place(profile, model, mode, which)] = self._clock.monotonic() + REMEMBERED
        return True

    def _until(self, profile: str, model: str, mode: Mode, schema: str | None) -> float:
        return self._refused.get(_Place(profile, model, mode, schema), 0.0)


def _said(failure: StepError) -> str:
    """What the endpoint itself says; not what it may echo of the question."""
    raw = failure.data.get("raw") if isinstance(failure.data, Mapping) else None
    error = raw.get("error") if isinstance(raw, Mapping) else raw
    told = {key: error.get(key) for key in ("message", "code", "param", "type")} if isinstance(error, Mapping) else error
    return f"{failure.message} {encode(told)[:2000]}"
