"""Errors as problem+json (RFC 9457): the one place that knows which error is which HTTP status.

It must not show what a stranger has no business with: no stack, no SQL, no path of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from agiwo.errors import (
    AgiwoError,
    Changed,
    Conflict,
    Denied,
    Gone,
    InvalidInput,
    NotFound,
    Overloaded,
    Problem,
    ServiceError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    ValueRefused,
)

MEDIA_TYPE = "application/problem+json"

_BY_CODE: Mapping[str, int] = {
    "malformed": 400,
    "bad_cursor": 400,
    "unsupported_media_type": 415,
    "unsupported_encoding": 415,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "address_too_long": 414,
    "headers_too_large": 431,
}
_BY_CLASS: Sequence[tuple[type[AgiwoError], int]] = (
    (InvalidInput, 422),
    (NotFound, 404),
    (Conflict, 409),
    (Gone, 410),
    (Changed, 412),
    (TooLarge, 413),
    (Unauthenticated, 401),
    (Denied, 403),
    (Overloaded, 429),
    (Unavailable, 503),
    (ValueRefused, 422),
)


def status_of(error: AgiwoError) -> int:
    """The HTTP status of an error; 500 only for what is no caller's doing."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    for kind, status in _BY_CLASS:
        if isinstance(error, kind):
            return status
    return 500


def document(status: int, code: str, detail: str, errors: Sequence[Problem] = (), **more: Any) -> dict[str, Any]:
    """The body of a problem; `code` is stable, `detail` is for people, `errors` name the places."""
    out: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "code": code, "detail": detail}
    if errors:
        out["errors"] = [problem.to_json() for problem in errors]
    out.update(more)
    return out


def of(error: AgiwoError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers that answer an error."""
    status = status_of(error)
    problems: tuple[Problem, ...] = ()
    if isinstance(error, ServiceError):
        problems = error.problems
    elif isinstance(error, ValueRefused):
        problems = (Problem(error.code, error.message, error.pointer),)
    headers: dict[str, str] = {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status == 408:
        headers["connection"] = "close"
    if status in (429, 503):
        headers["retry-after"] = str(error.details.get("retry_after", 1))
    return status, document(status, error.code, error.message, problems, **error.details), headers


#: JSON Schema of the body, for the OpenAPI document.
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "description": "An error as RFC 9457 has it. `code` is stable; `errors` names every place.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["code", "severity", "message", "pointer"],
                "properties": {
                    "code": {"type": "string"},
                    "severity": {"enum": ["error", "warning"]},
                    "message": {"type": "string"},
                    "pointer": {"type": "string", "description": "JSON Pointer, or the name of a query parameter as `?name`"},
                    "line": {"type": "integer"},
                    "column": {"type": "integer"},
                    "found": {"type": "string"},
                    "expected": {"type": "string"},
                    "nearest": {"type": "string"},
                    "via": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}
