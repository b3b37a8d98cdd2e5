"""How routes read a request: the caller, the body as strict JSON, the conventions of a change, and no query parameter unknown to them.

Says nothing about what any route does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Coroutine, Iterator
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

from fastapi import APIRouter, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as PydanticError
from starlette.responses import Response

from agiwo.api.answers import JSONAnswer
from agiwo.api.guard import Seen
from agiwo.complaints import complaint
from agiwo.errors import InvalidInput, Problem, TooLarge, Unauthenticated, ValueRefused
from agiwo.names import nearest
from agiwo.ports.answered import CallKey, KeptAnswer
from agiwo.service.beside import beside
from agiwo.service.callers import Caller
from agiwo.service.changes import LONGEST_REASON, Change
from agiwo.service.repeats import Repeats
from agiwo.values import decode_strict, pointer, shown

_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
#: Bytes of JSON above which it is read beside the loop: ten megabytes take seconds.
_LARGE = 200_000
#: Values in one body: a few hundred thousand hold the interpreter for some ten milliseconds, millions for a second.
VALUES_LIMIT = 500_000
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
#: Fields of a body that are not known and are still named one by one.
MOST_UNKNOWN = 50
_MEDIA_TYPE_OF_JSON = re.compile(r"application/(?:[\w.-]+\+)?json")


#: Says that an answer is that of an earlier call under the same key.
REPLAYED = "idempotency-replayed"
_KEPT_HEADERS = ("content-type", "location")

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def keeps_its_own_key(endpoint: Endpoint) -> Endpoint:
    """Marks a route whose verb keeps the promise of its Idempotency-Key by itself, in the transaction of what it does."""
    endpoint.keeps_its_own_key = True  # type: ignore[attr-defined]
    return endpoint


class StrictRoute(APIRoute):
    """A route that refuses query parameters which its function and its documentation do not name.

    A change with an `Idempotency-Key` is made once; its repetition gets the first answer, with the header `Idempotency-Replayed: true`.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        own_key = getattr(self.endpoint, "keeps_its_own_key", False)
        known = frozenset(
            list(_query_names(self.dependant)) + [p["name"] for p in (self.openapi_extra or {}).get("parameters", ()) if p["in"] == "query"]
        )

        async def strict(request: Request) -> Response:
            if request.scope["query_string"] and not known.issuperset(request.query_params):
                raise _unknown_parameters(known, request)
            if own_key or request.method in ("GET", "HEAD"):
                return await answer(request)
            key = idempotency_key(request)
            if key is None or _is_dry(request):
                return await answer(request)
            repeats: Repeats = request.app.state.repeats
            result = await repeats.once(CallKey(*_principal(request), key), await _digest(request), lambda: answer(request), _kept)
            return result if isinstance(result, Response) else _again(result)

        return strict


def _principal(request: Request) -> tuple[str, str]:
    """Whose key it is; where the address is the credential, the address has keys of its own."""
    if (caller := seen(request).caller) is not None:
        return caller.tenant, caller.principal
    return "", f"address:{hashlib.sha256(request.scope['path'].encode('utf-8', 'surrogateescape')).hexdigest()}"


async def made_once(request: Request, key: CallKey, make: Callable[[], Coroutine[Any, Any, Response]]) -> Response:
    """What `make` answers, once for this key; the same request again gets the same answer, another one under the key is a Conflict."""
    repeats: Repeats = request.app.state.repeats
    result = await repeats.once(key, await _digest(request), make, _kept)
    return result if isinstance(result, Response) else _again(result)


def _is_dry(request: Request) -> bool:
    return request.query_params.get("dry_run", "").lower() in ("true", "1", "yes", "on", "t", "y")


async def _digest(request: Request) -> str:
    """Tells a call from another one under the same key."""
    made = hashlib.sha256()
    for part in (request.method.encode(), request.scope["path"].encode("utf-8", "surrogateescape"), request.scope["query_string"]):
        made.update(len(part).to_bytes(8) + part)
    made.update(await request.body())
    return made.hexdigest()


def _kept(response: Response) -> KeptAnswer | None:
    """What is kept of an answer: nothing of a refusal or of a stream."""
    body = response.kept if isinstance(response, JSONAnswer) else getattr(response, "body", None)
    if response.status_code >= 400 or not isinstance(body, bytes):
        return None
    return KeptAnswer(response.status_code, {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}, body)


def _again(kept: KeptAnswer) -> Response:
    return Response(kept.body, kept.status, {**kept.headers, REPLAYED: "true"})


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _query_names(inner)


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


class ChangeBody(Body):
    """The body of a change, which may say why it is made."""

    reason: str | None = Field(default=None, max_length=LONGEST_REASON, description="why; it goes into the audit log")


#: Every route that changes something takes it: `dry_run: DryRun = False`.
DryRun = Annotated[bool, Query(description="check everything, change nothing; 200 says what would happen")]


#: And where the body is something else than our own JSON: `reason: Reason = None`.
Reason = Annotated[str | None, Query(max_length=LONGEST_REASON, description="why; it goes into the audit log")]


def change_of(asked: ChangeBody, dry_run: bool) -> Change:
    """What the verb is told of the change."""
    return Change(asked.reason, dry_run)


def tried(change: Change, action: str, object: str, present: Any = None, **more: Any) -> JSONAnswer:
    """The answer to a dry run that found nothing in the way: what would be done to what, and how it stands at present."""
    return JSONAnswer({"dry_run": True, "action": action, "object": object, "reason": change.reason, "present": present, **more})


B = TypeVar("B", bound=Body)


async def read_json(request: Request, *, optional: bool = True) -> Any:
    """The body as JSON; an absent one is `{}` where a body is `optional`.

    Raises InvalidInput: `unsupported_media_type` (415) for another content type, `malformed` (400) for what is no JSON or cannot be kept.
    """
    raw = await request.body()
    if not raw and optional:
        return {}
    check_media_type(request)
    return await read_value(raw)


async def read_value(raw: bytes) -> Any:
    """Bytes as JSON. Raises InvalidInput: `malformed` (400) for what is no JSON or cannot be kept."""
    try:
        return decode_strict(raw) if len(raw) <= _LARGE else await beside(_decoded, raw)
    except ValueRefused as exc:
        # Text that is no JSON is malformed; JSON that we cannot keep is understood and refused.
        code = "malformed" if exc.message.startswith("the text is not") else exc.code
        raise InvalidInput(exc.message, code=code, problems=(Problem(exc.code, exc.message, exc.pointer),)) from None


def _decoded(raw: bytes) -> Any:
    if _values(raw) > VALUES_LIMIT:
        raise TooLarge(f"a body may have at most {VALUES_LIMIT} values", code="too_many_values", limit=VALUES_LIMIT)
    return decode_strict(raw)


def _values(raw: bytes) -> int:
    """How many values a JSON text has at most, counted before any of them is made; commas in texts count only if there are many."""

    def most(text: bytes) -> int:
        return text.count(b",") + text.count(b"[") + text.count(b"{") + 1

    count = most(raw)
    return count if count <= VALUES_LIMIT or raw.count(b'"') > 4 * VALUES_LIMIT else most(_STRING.sub(b"", raw))


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
    """The body as its model. Raises InvalidInput that names the fields that do not fit.

    What is too large to be looked at field by field is refused before it is: the errors of a hundred thousand fields take seconds.
    """
    if isinstance(value, dict):
        _few_enough(model, value)
    try:
        return model.model_validate(value)
    except PydanticError as exc:
        problems = [body_problem(error, model) for error in exc.errors(include_url=False)]
        raise InvalidInput("the body does not fit", problems=problems) from None


def _few_enough(model: type[BaseModel], value: dict[str, Any]) -> None:
    unknown = [name for name in value if name not in model.model_fields]
    if len(unknown) > MOST_UNKNOWN:
        expected = ", ".join(sorted(model.model_fields))
        named = [Problem("unknown_key", "there is no such field here", pointer(name), expected=expected) for name in unknown[:MOST_UNKNOWN]]
        raise InvalidInput(f"the body does not fit: it has {len(unknown)} fields that are not known here", problems=named)
    for name, most in _lengths(model).items():
        given = value.get(name)
        if isinstance(given, dict | list) and len(given) > most:
            problem = Problem("wrong_value", f"expected at most {most} entries", pointer(name), found=f"{len(given)} entries")
            raise InvalidInput("the body does not fit", problems=(problem,))


@cache
def _lengths(model: type[BaseModel]) -> dict[str, int]:
    """How many entries a model's fields may have, by name, where it says so."""
    out = {}
    for name, field in model.model_fields.items():
        own = list(field.metadata)
        for kind in get_args(field.annotation):
            if get_origin(kind) is Annotated and get_origin(get_args(kind)[0]) in (dict, list):
                own += [more for one in get_args(kind)[1:] for more in one.metadata]
        for more in own:
            if (most := getattr(more, "max_length", None)) is not None:
                out[name] = most
    return out


def body_problem(error: Any, model: type[BaseModel] | None = None) -> Problem:
    """One of pydantic's errors in our words."""
    kind, at = error["type"], pointer(*error["loc"])
    found = None if kind == "missing" else _shown(error.get("input"))
    if kind == "extra_forbidden":
        expected = ", ".join(sorted(model.model_fields)) if model is not None else None
        fields = () if model is None or len(error["loc"]) > 1 else model.model_fields
        return Problem(
            "unknown_key", complaint(error, fields), at, found=found, expected=expected, nearest=nearest(str(error["loc"][-1]), fields)
        )
    return Problem("missing" if kind == "missing" else "wrong_value", complaint(error), at, found=found)


def _shown(value: Any) -> str | None:
    try:
        return shown(value)
    except (TypeError, ValueError):
        return None


def idempotency_key(request: Request) -> str | None:
    """The `Idempotency-Key` header. Raises InvalidInput if it is not one, of 1 to 255 visible ASCII characters."""
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1 or _IDEMPOTENCY_KEY.fullmatch(keys[0]) is None:
        raise InvalidInput("Idempotency-Key must be 1 to 255 visible ASCII characters, once", code="bad_idempotency_key")
    return keys[0]


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
