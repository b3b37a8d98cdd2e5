"""How routes read a request: the caller, the body as strict JSON, and no query parameter that they do not know.

Says nothing about what any route does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from pydantic import ValidationError as PydanticError
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.guard import Seen
from agiwo.errors import InvalidInput, Problem, Unauthenticated, ValueRefused
from agiwo.service.beside import beside
from agiwo.service.callers import Caller
from agiwo.values import decode_strict, pointer, shown

_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
#: Bytes of JSON above which it is read beside the loop: ten megabytes take seconds.
_LARGE = 200_000
_MEDIA_TYPE_OF_JSON = re.compile(r"application/(?:[\w.-]+\+)?json")


class StrictRoute(APIRoute):
    """A route that refuses query parameters which its function and its documentation do not name."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        known = frozenset(
            [field.alias for field in self.dependant.query_params]
            + [p["name"] for p in (self.openapi_extra or {}).get("parameters", ()) if p["in"] == "query"]
        )

        async def strict(request: Request) -> Response:
            if request.scope["query_string"] and not known.issuperset(request.query_params):
                raise _unknown_parameters(known, request)
            return await answer(request)

        return strict


def _unknown_parameters(known: frozenset[str], request: Request) -> InvalidInput:
    expected = ", ".join(sorted(known)) or "no parameter"
    problems = [
        Problem("unknown_parameter", f"there is no such query parameter; expected {expected}", f"?{name[:80]}", expected=expected)
        for name in request.query_params
        if name not in known
    ]
    return InvalidInput("the query has parameters that are not known here", code="invalid_parameters", problems=problems)


def router(tag: str) -> APIRouter:
    """An empty router whose routes are strict and answer in our own JSON."""
    return APIRouter(route_class=StrictRoute, default_response_class=JSONAnswer, tags=[tag])


def seen(request: Request) -> Seen:
    """What the guard found out about this request."""
    found: Seen = request.scope["agiwo"]
    return found


def caller_of(request: Request) -> Caller:
    """Who calls. Raises Unauthenticated for nobody."""
    caller = seen(request).caller
    if caller is None:
        raise Unauthenticated("an API key is needed: `Authorization: Bearer …`")
    return caller


class Body(BaseModel):
    """A JSON body whose fields are all known and have exactly the type that is documented."""

    model_config = ConfigDict(extra="forbid", strict=True)


B = TypeVar("B", bound=Body)


async def read_json(request: Request, *, optional: bool = True) -> Any:
    """The body as JSON; an absent one is `{}` where a body is `optional`.

    Raises InvalidInput: `unsupported_media_type` (415) for another content type, `malformed` (400) for what is no JSON or cannot be kept.
    """
    raw = await request.body()
    if not raw and optional:
        return {}
    check_media_type(request)
    try:
        return decode_strict(raw) if len(raw) <= _LARGE else await beside(decode_strict, raw)
    except ValueRefused as exc:
        # Text that is no JSON is malformed; JSON that we cannot keep is understood and refused.
        code = "malformed" if exc.message.startswith("the text is not") else exc.code
        raise InvalidInput(exc.message, code=code, problems=(Problem(exc.code, exc.message, exc.pointer),)) from None


def check_media_type(request: Request) -> None:
    """Raises InvalidInput (`unsupported_media_type`) unless the body says that it is JSON in UTF-8."""
    kind, _, rest = request.headers.get("content-type", "").partition(";")
    if _MEDIA_TYPE_OF_JSON.fullmatch(kind.strip().lower()) is None:
        raise InvalidInput(f"the content type {shown(kind)} is not taken; send application/json", code="unsupported_media_type")
    check_charset(rest)


def check_charset(parameters: str) -> None:
    """Raises InvalidInput (`unsupported_media_type`) for another encoding than UTF-8."""
    found = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    if found is not None and found[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise InvalidInput(f"the encoding {shown(found[1])} is not taken; send UTF-8", code="unsupported_media_type")


def fit(model: type[B], value: Any) -> B:
    """The body as its model. Raises InvalidInput that names every field that does not fit."""
    try:
        return model.model_validate(value)
    except PydanticError as exc:
        problems = [body_problem(error, model) for error in exc.errors(include_url=False, include_context=False)]
        raise InvalidInput("the body does not fit", problems=problems) from None


def body_problem(error: Any, model: type[BaseModel] | None = None) -> Problem:
    """One of pydantic's errors in our words."""
    kind, at = error["type"], pointer(*error["loc"])
    found = None if kind == "missing" else _shown(error.get("input"))
    if kind == "extra_forbidden":
        expected = ", ".join(sorted(model.model_fields)) if model is not None else None
        return Problem("unknown_key", "there is no such field here", at, found=found, expected=expected)
    return Problem("missing" if kind == "missing" else "wrong_value", error["msg"], at, found=found)


def _shown(value: Any) -> str | None:
    try:
        return shown(value)
    except (TypeError, ValueError):
        return None


def idempotency_key(request: Request) -> str | None:
    """The `Idempotency-Key` header. Raises InvalidInput if it is not 1 to 255 visible ASCII characters."""
    key = request.headers.get("idempotency-key")
    if key is not None and _IDEMPOTENCY_KEY.fullmatch(key) is None:
        raise InvalidInput("Idempotency-Key must be 1 to 255 visible ASCII characters", code="bad_idempotency_key")
    return key


_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s|m)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


def seconds(text: str | None, name: str, most: float) -> float | None:
    """A span from a query parameter: a number of seconds, or digits with ms, s or m. Raises InvalidInput if it is none or too long."""
    if text is None:
        return None
    found = _DURATION.fullmatch(text)
    if found is None or (span := float(found[1]) * _SECONDS[found[2]]) > most:
        expected = f"a duration of at most {most:g} seconds, like 30s"
        problem = Problem("wrong_value", f"expected {expected}", f"?{name}", found=shown(text), expected=expected)
        raise InvalidInput(f"`{name}` must be {expected}", code="invalid_parameters", problems=(problem,))
    return span
