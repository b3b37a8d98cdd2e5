"""Answers of the API: JSON that can always be encoded, whatever was sent, and problems in one form.

Holds no rule about what is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from agiwo.api import problems
from agiwo.errors import AgiwoError
from agiwo.values import encode


class JSONAnswer(JSONResponse):
    """A JSON body, exact for integers of any length; what UTF-8 has no place for is shown as `?`.

    `kept` is what a repetition under the same key is answered with, where the answer has something that is shown once; else the same.
    """

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None, *, kept: Any = None) -> None:
        super().__init__(content, status_code, headers)
        self.kept = self.body if kept is None else self.render(kept)

    def render(self, content: Any) -> bytes:
        return encode(content).encode("utf-8", "replace")


class ProblemAnswer(JSONAnswer):
    """An error as problem+json."""

    media_type = problems.MEDIA_TYPE


def problem(error: AgiwoError) -> ProblemAnswer:
    """The answer to an error that was raised on purpose."""
    status, body, headers = problems.of(error)
    return ProblemAnswer(body, status, headers)


def store_away() -> ProblemAnswer:
    """The answer while the storage is away."""
    return plain_problem(503, "unavailable", "the storage does not answer at the moment; try again", {"retry-after": "1"})


def plain_problem(status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> ProblemAnswer:
    """The answer to a refusal that comes from the framework."""
    return ProblemAnswer(problems.document(status, code, detail), status, headers)
