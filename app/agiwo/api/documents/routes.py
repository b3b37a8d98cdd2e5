"""How a route says what it takes and answers: good answers, refusals, dry runs, bodies, parameters, and what is so for every call.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from agiwo.api import problems
from agiwo.api.documents.terms import Schema, ref


def answer(
    schema: str, description: str, *, example: Any = None, media_type: str = "application/json", dry: bool = False
) -> dict[str, Any]:
    """The documentation of a good answer; `dry` if a dry run of the change has this status too."""
    content: dict[str, Any] = {"schema": {"anyOf": [ref(schema), ref("DryRun")]} if dry else ref(schema)}
    if example is not None:
        content["example"] = example
    return {"description": description, "content": {media_type: content}}


_REFUSALS: Mapping[int, str] = {
    400: "What was sent is malformed.",
    401: "No valid credential.",
    403: "The credential does not allow this.",
    404: "There is no such thing, or it is not yours.",
    405: "This method is not taken here.",
    408: "The body took too long to arrive.",
    409: "The present state does not allow this.",
    410: "It is over.",
    412: "The matter has changed.",
    413: "The body is too large.",
    414: "The address is too long.",
    415: "This content type or encoding is not taken.",
    422: "What was sent does not fit; `errors` names the places.",
    429: "Too much is waiting.",
    431: "The headers are too large.",
    503: "A part that this needs is away at the moment.",
}
_PROBLEM = {problems.MEDIA_TYPE: {"schema": ref("Problem")}}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of the refusals that a route may give, besides those that every route may give."""
    return {status: {"description": _REFUSALS[status], "content": _PROBLEM} for status in sorted({400, 401, 403, 422, 503, *statuses})}


#: The answer to a dry run, for a change whose own answer has another status than 200.
DRY: Mapping[int | str, dict[str, Any]] = {200: answer("DryRun", "With `dry_run`: what would happen; nothing has been written.")}

KEY_FORM: Schema = {"type": "string", "pattern": "^[!-~]{1,255}$"}
_KEY_SAYS = "the same call under the same key is made once and answered again for 24 hours; a refused call uses no key up"


def add_conventions(document: Schema) -> None:
    """What is so for every call, once for all: each change under `/v1` takes an `Idempotency-Key`."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            change = method != "get" and path.startswith("/v1/")
            for status in (414, 431, *((408, 413) if change else ())):
                operation["responses"].setdefault(str(status), {"description": _REFUSALS[status], "content": _PROBLEM})
            if not change:
                continue
            parameters = operation.setdefault("parameters", [])
            if not any(given["name"] == "Idempotency-Key" for given in parameters):
                parameters.append(parameter("Idempotency-Key", "header", KEY_FORM, _KEY_SAYS))
            operation["responses"].setdefault("409", {"description": _REFUSALS[409], "content": _PROBLEM})


def body(model: type[BaseModel], example: Any = None, *, required: bool = False) -> dict[str, Any]:
    """The documentation of a JSON body that the route reads by itself."""
    content: dict[str, Any] = {"schema": model.model_json_schema(ref_template="#/components/schemas/{model}")}
    if example is not None:
        content["example"] = example
    return {"requestBody": {"required": required, "content": {"application/json": content}}}


def parameter(name: str, where: str, schema: Schema, description: str, *, required: bool = False) -> dict[str, Any]:
    """The documentation of a parameter that the route reads by itself."""
    return {"name": name, "in": where, "required": required, "schema": schema, "description": description}
