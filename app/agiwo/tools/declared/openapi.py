"""Operations of an OpenAPI document as tools: parameters and result as JSON Schema, effect by method, credentials by the operator alone.

The document is hostile input: nothing in it is a template, an address or a credential, and no reference leads out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any
from urllib.parse import quote

from agiwo.definition.contract import Breaker, Effect, ToolContract
from agiwo.definition.report import Path, Report
from agiwo.definition.yaml_text import MAX_BYTES, read_text
from agiwo.errors import InvalidInput, PermissionDeniedError, StepError, ValidationError
from agiwo.outbound.guard import Guard
from agiwo.outbound.service import OWN_HEADERS, authorization
from agiwo.schema import Schema
from agiwo.tools.context import ToolContext
from agiwo.tools.declared.filling import written
from agiwo.tools.declared.references import References, Refused, used_definitions
from agiwo.tools.declared.statuses import Meaning, meaning_of, meanings
from agiwo.tools.exchange import EFFECTS, Outgoing, exchange, failure, is_error, meant, read_body
from agiwo.tools.tool import breaker_of
from agiwo.values import encode, shown

MAX_OPERATIONS = 500
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_PART = re.compile(r"\{([^{}]+)\}")
_BAD_PATH = re.compile(r"[?#\\\s{}]")
_JSON = re.compile(r"application/(json|[\w.+-]+\+json)(;.*)?")
#: Headers that a document may not ask for: the operator says who calls, and what is sent is said by what it is.
_NOT_BY_DOCUMENT = {"accept", "content-type", "authorization", "cookie", "idempotency-key", "traceparent", *OWN_HEADERS}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an argument goes: `where` is path, query or header, `name` how it is called there."""

    where: str
    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """What an imported tool does when it is called: `path` has constants and the names of arguments (as 1-tuples) in turn."""

    name: str
    method: str
    base: str
    path: tuple[str | tuple[str], ...]
    places: Mapping[str, Place]
    body: str | None
    connection: str | None
    auth: Mapping[str, Any]
    errors: tuple[Meaning, ...]

    async def call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Raises StepError: by the operator's errors, else by status; for the guard, the network, and what no path or header can hold."""
        headers = authorization(self.auth, ctx.secrets, f"the tool {self.name!r}")
        query = {}
        for name, place in self.places.items():
            if name not in arguments or place.where == "path":
                continue
            if place.where == "query":
                query[place.name] = arguments[name]
            else:
                headers[place.name] = self._text(name, arguments[name])
        body = arguments.get(self.body) if self.body is not None else None
        if self.body in arguments and isinstance(body, str | None):
            headers["content-type"], body = "application/json", encode(body)
        answer = await exchange(ctx, Outgoing(self.method, self._url(arguments), query, headers, body, self.connection))
        meaning = meaning_of(self.errors, answer.status)
        if meaning is not None:
            raise meant(answer, meaning.type, meaning.message, meaning.not_done, ctx.clock.now())
        if is_error(answer.status, None):
            raise failure(answer, None, ctx.clock.now())
        return None if self.method == "HEAD" else read_body(answer)

    def _url(self, arguments: Mapping[str, Any]) -> str:
        out = [self.base]
        for part in self.path:
            if isinstance(part, str):
                out.append(part)
                continue
            text = self._text(part[0], arguments.get(part[0]))
            if text in ("", ".", ".."):
                raise PermissionDeniedError(f"{self.name}: {part[0]} would lead out of the path of the operation", not_done=True)
            out.append(quote(text, safe=""))
        return "".join(out)

    def _text(self, name: str, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(self._text(name, one) for one in value)
        text = written(value)
        if text is None:
            raise ValidationError(f"{self.name}: {name} is {shown(value)}; expected a text, a number or a list of them", not_done=True)
        return text


def imported(declared: Mapping[str, Any], at: Path, report: Report, folder: FilePath) -> Iterator[tuple[ToolContract, Operation]]:
    """The contracts and operations of an `openapi` part whose form is right; what cannot be imported is noted."""
    document = _document(declared.get("document"), (*at, "document"), report, folder)
    auth = declared.get("auth", {})
    if document is None or not _reachable(declared, auth, at, report):
        return
    found = list(_operations(document))
    names = [operation.get("operationId") for _, _, _, operation in found]
    wanted = declared.get("operations")
    for key, asked in (("operations", wanted or ()), ("effects", declared.get("effects", {}))):
        for name in asked:
            if name not in names:
                report.error(
                    "unknown_name", f"the document has no operation `{str(name)[:80]}`", (*at, key), found=str(name)[:80],
                    nearest=report.nearest(str(name), [one for one in names if isinstance(one, str)]),
                )  # fmt: skip
    chosen = [one for one, name in zip(found, names, strict=True) if isinstance(name, str) and (wanted is None or name in wanted)]
    if len(chosen) > MAX_OPERATIONS:
        report.error(
            "too_many", f"{len(chosen)} operations would be imported, allowed are {MAX_OPERATIONS}: name them under `operations`", at
        )
        return
    errors = meanings(declared.get("errors", {}), (*at, "errors"), report)
    taken: set[str] = set()
    for path, method, item, operation in chosen:
        try:
            contract, call = _made(declared, document, path, method, item, operation, auth, errors)
        except Refused as exc:
            report.error("not_importable", f"the operation `{operation['operationId'][:80]}`: {exc}", (*at, "document"))
            continue
        if contract.name in taken:
            report.error("duplicate", f"two operations would be the tool `{contract.name}`", (*at, "document"), found=contract.name)
            continue
        taken.add(contract.name)
        yield contract, call


def _document(given: Any, at: Path, report: Report, folder: FilePath) -> Mapping[str, Any] | None:
    if isinstance(given, str):
        file = (folder / given).resolve()
        if not file.is_relative_to(folder.resolve()):
            report.error("wrong_value", "the document has to lie below the folder of the file that names it", at, found=shown(given))
            return None
        try:
            with file.open("rb") as opened:
                reading = read_text(opened.read(MAX_BYTES + 1))
        except OSError as exc:
            report.error("unreadable", f"the document cannot be read: {exc.strerror}", at, found=shown(given))
            return None
        for problem in reading.problems:
            report.error(problem.code, f"{given}:{problem.line or 1}:{problem.column or 1}: {problem.message}", at)
        given = reading.value if reading.readable else None
    if not isinstance(given, Mapping):
        if not report.broken:
            report.error("wrong_type", "an OpenAPI document is an object", at)
        return None
    if not str(given.get("openapi", "")).startswith("3."):
        report.error(
            "wrong_value", "expected a document of OpenAPI 3.0 or 3.1", at, found=shown(str(given.get("openapi"))), expected="openapi: 3.x"
        )
        return None
    return given


def _reachable(declared: Mapping[str, Any], auth: Mapping[str, Any], at: Path, report: Report) -> bool:
    """Whether the operator says where the service is; the document's own servers are nobody's word."""
    if "auth" in declared and len(auth) != 1:
        report.error("wrong_form", "`auth` is one of bearer, basic and connection", (*at, "auth"))
        return False
    if ("connection" in auth) == ("base_url" in declared):
        report.error(
            "wrong_form", "either `base_url` or `auth: {connection: NAME}` says where the service is", at, expected="one of the two"
        )
        return False
    try:
        if "base_url" in declared:
            Guard().check_url(declared["base_url"])
    except StepError as exc:
        report.error("wrong_value", exc.message, (*at, "base_url"))
        return False
    return True


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    paths = document.get("paths")
    for path, item in paths.items() if isinstance(paths, Mapping) else ():
        if isinstance(item, Mapping):
            for method in _METHODS:
                if isinstance(item.get(method), Mapping):
                    yield path, method.upper(), item, item[method]


def _made(
    declared: Mapping[str, Any], document: Mapping[str, Any], path: str, method: str, item: Mapping[str, Any],
    operation: Mapping[str, Any], auth: Mapping[str, Any], errors: tuple[Meaning, ...],
) -> tuple[ToolContract, Operation]:  # fmt: skip
    """Raises Refused."""
    references = References(document)
    properties: dict[str, Any] = {}
    places: dict[str, Place] = {}
    required: list[str] = []
    for given in _parameters(references, item, operation):
        where, name = given["in"], given["name"]
        if where == "header" and name.lower() in _NOT_BY_DOCUMENT:
            continue
        if where == "cookie" or where not in ("path", "query", "header"):
            if given.get("required") is True:
                raise Refused(f"the parameter {shown(name)} goes into a {shown(where)}, which is not sent")
            continue
        key = name if name not in properties else f"{name}_{where}"
        properties[key] = _described(_of_parameter(references, given), given)
        places[key] = Place(where, name)
        if given.get("required") is True or where == "path":
            required.append(key)
    body = _body(references, operation)
    name_of_body = None
    if body is not None:
        name_of_body = "body" if "body" not in properties else "request_body"
        properties[name_of_body], needed = body
        required += [name_of_body] if needed else []
    parameters = {"type": "object", "properties": properties, "additionalProperties": False, **({"required": required} if required else {})}
    result = _result(references, operation)
    definitions = references.definitions()
    name = f"{declared['prefix']}.{_tool_name(operation['operationId'])}"
    contract = ToolContract(
        name=name,
        description=str(operation.get("summary") or operation.get("description") or f"{method} {path}")[:1000],
        parameters=_whole(parameters, definitions),
        result=None if result is None else _whole(result, definitions),
        effect=Effect(declared.get("effects", {}).get(operation["operationId"]) or EFFECTS[method]),
        timeout=declared.get("timeout"),
        breaker=_breaker(name, declared),
    )
    try:
        for schema in (contract.parameters, contract.result):
            if schema is not None:
                Schema.compile(schema)
    except InvalidInput as exc:
        raise Refused(exc.message) from None
    base = "" if "connection" in auth else declared["base_url"].rstrip("/")
    call = Operation(
        name, method, base, _path(path, places), places, name_of_body, auth.get("connection"), {} if "connection" in auth else auth, errors
    )
    return contract, call


def _breaker(name: str, declared: Mapping[str, Any]) -> Breaker | None:
    try:
        return breaker_of(name, declared.get("breaker", True))
    except ValueError as exc:
        raise Refused(str(exc)) from None


def _parameters(references: References, item: Mapping[str, Any], operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of the path and of the operation, which win."""
    out: dict[tuple[str, str], Mapping[str, Any]] = {}
    for owner in (item, operation):
        listed = owner.get("parameters", [])
        if not isinstance(listed, list):
            raise Refused("its parameters are no list")
        for one in listed:
            found = references.followed(one)
            if not isinstance(found.get("in"), str) or not isinstance(found.get("name"), str):
                raise Refused("a parameter has no name or no place")
            out[(found["in"], found["name"])] = found
    return list(out.values())


def _of_parameter(references: References, given: Mapping[str, Any]) -> Any:
    usual = {"query": ("form", True), "path": ("simple", False), "header": ("simple", False)}[given["in"]]
    if (given.get("style", usual[0]), given.get("explode", usual[1])) != usual or "content" in given:
        raise Refused(f"the parameter {shown(given['name'])} is written in a way that is not sent (`style`, `explode` or `content`)")
    return references.schema(given.get("schema", {}))


def _described(schema: Any, given: Mapping[str, Any]) -> Any:
    text = given.get("description")
    if isinstance(schema, dict) and isinstance(text, str) and "description" not in schema:
        return {**schema, "description": text[:1000]}
    return schema


def _body(references: References, operation: Mapping[str, Any]) -> tuple[Any, bool] | None:
    if "requestBody" not in operation:
        return None
    body = references.followed(operation["requestBody"])
    schema = _json(references, body)
    if schema is None:
        if body.get("required") is True:
            raise Refused("its body is not JSON")
        return None
    return schema, body.get("required") is True


def _json(references: References, holder: Mapping[str, Any]) -> Any:
    """The schema of the JSON that a body or an answer holds; None if it holds something else, or nothing."""
    content = holder.get("content")
    for kind, media in content.items() if isinstance(content, Mapping) else ():
        if _JSON.fullmatch(kind) and isinstance(media, Mapping):
            return references.schema(media.get("schema", {}))
    return None


def _result(references: References, operation: Mapping[str, Any]) -> Any:
    """What a good answer holds: null where it may hold nothing; None if the document does not say it."""
    responses = operation.get("responses")
    found: list[Any] = []
    for status, one in responses.items() if isinstance(responses, Mapping) else ():
        if re.fullmatch(r"2(\d\d|XX)", str(status)):
            answer = references.followed(one)
            schema = _json(references, answer)
            if schema is None and isinstance(answer.get("content"), Mapping) and answer["content"]:
                return None  # text or bytes: whatever they are, they are no JSON to be checked
            found.append({"type": "null"} if schema is None else schema)
    if not found:
        return None
    return found[0] if len(found) == 1 else {"anyOf": found}


def _whole(schema: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    used = used_definitions(schema, definitions)
    whole = schema if isinstance(schema, dict) else {"allOf": [schema]}
    return {**whole, "$defs": used} if used else whole


def _path(path: str, places: Mapping[str, Place]) -> tuple[str | tuple[str], ...]:
    keys = {place.name: key for key, place in places.items() if place.where == "path"}
    out: list[str | tuple[str]] = []
    for index, part in enumerate(_PART.split(path)):
        if index % 2:
            if part not in keys:
                raise Refused(f"its path has {{{part[:80]}}}, and there is no such parameter")
            out.append((keys[part],))
        elif part:
            if _BAD_PATH.search(part) or not part.isascii() or any(step in (".", "..") for step in part.split("/")):
                raise Refused(f"its path has {shown(part[:80])}")
            out.append(part)
    if not path.startswith("/") or path.startswith("//"):
        raise Refused("its path does not begin with one /")
    return tuple(out)


def _tool_name(operation: str) -> str:
    parts = [re.sub(r"[^A-Za-z0-9_-]+", "_", part) for part in operation.split(".") if part]
    return ".".join(part if re.match(r"[A-Za-z_]", part) else f"_{part}" for part in parts) or "_"
