"""The form of a declaration: which keys there are and what may stand in them.

It judges each part by itself; what parts mean to each other is judged where the tool is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.definition.contract import Effect
from agiwo.definition.report import Path, Report
from agiwo.definition.shape import (
    BAD,
    ByKind,
    Check,
    Duration,
    Many,
    Named,
    Number,
    Record,
    Text,
    Words,
    anything,
    expression,
    flag,
    schema,
)
from agiwo.errors import TREE, canonical_type
from agiwo.tools.exchange import EFFECTS, MOST_BODY
from agiwo.tools.tool import NAME, USES
from agiwo.values import JSON, shown

NAMED = Text(NAME.pattern, "a tool name: words joined by dots, such as crm.customer", 200)
SECRET = Text(r"[A-Za-z_][A-Za-z0-9_]*", "the name of a secret", 200)
_STATUSES = r"[1-5][0-9]{2}(-[1-5][0-9]{2})?|[1-5]xx"
_TYPE = r"[A-Za-z][A-Za-z0-9_]{0,99}"


def failure_type(report: Report, value: JSON, at: Path) -> Any:
    """The type of an error: one of the tree, or a tool's own."""
    found = Text(_TYPE, "the type of an error, such as NotFound")(report, value, at)
    if found is BAD:
        return BAD
    name = canonical_type(found)
    near = report.nearest(name, TREE)
    if name not in TREE and near is not None and near.lower() == name.lower():
        report.error("wrong_value", f"there is no type of error {shown(name)}", at, found=name, nearest=near)
        return BAD
    return name


def parameters(report: Report, value: JSON, at: Path) -> Any:
    """A JSON Schema of an object, or short: from each parameter to its schema; what has no default is needed then."""
    if not isinstance(value, Mapping):
        report.wrong(at, value, "a JSON Schema of an object, or a mapping from parameters to their schemas")
        return BAD
    if value.get("type") == "object" or any(name.startswith("$") for name in value):
        found = schema(report, value, at)
        if found is not BAD and found.source.get("type") != "object":
            report.error("wrong_schema", "parameters are an object: `type: object` is missing", at, expected="type: object")
            return BAD
        return found
    parts = {name: schema(report, part, (*at, name)) for name, part in value.items()}
    if any(part is BAD for part in parts.values()):
        return BAD
    needed = [name for name, part in parts.items() if not isinstance(part.source, Mapping) or "default" not in part.source]
    whole: dict[str, Any] = {"type": "object", "properties": dict(value), "additionalProperties": False}
    return schema(report, {**whole, "required": needed} if needed else whole, at)


BREAKER = ByKind(
    "false, or an object with failures, open_for and key",
    {
        "boolean": flag,
        "object": Record(
            "a breaker",
            {
                "failures": Number(1, 10**6),
                "open_for": Duration(),
                "key": Many(Text(), 1, "a list of parameters", single=True),
                "counts": Many(failure_type, 1, "a list of types of errors", single=True),
            },
        ),
    },
)
ERROR = Record(
    "an error",
    {"type": failure_type, "message": Text(longest=2000), "retry": flag, "not_done": flag},
    elsewhere={"status": "it is the key of the error"},
)
_STATUS = ByKind("a status such as 404, or 2xx", {"number": Number(100, 599), "string": Text("[1-5]xx", "a status such as 404, or 2xx")})
AUTH = Record(
    "`auth`",
    {"bearer": SECRET, "basic": Record("`basic`", {"user": Text(), "password": SECRET}, ("user", "password")), "connection": Text()},
)
_REQUEST: Mapping[str, Check] = {
    "method": Words(tuple(EFFECTS)),
    "url": Text(longest=8000),
    "query": Named(anything),
    "headers": Named(anything, r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", "the name of a header"),
    "body": anything,
    "result": expression,
    "max_bytes": Number(1, MOST_BODY),
}
HTTP = Record(
    "`http`",
    {
        **_REQUEST,
        "auth": AUTH,
        "errors": Named(ERROR, _STATUSES, "a status or a range: 404, 500-599 or 5xx"),
        "expect": Many(_STATUS, 1, "a list of statuses", single=True),
        "follow_redirects": flag,
    },
    ("url",),
)
RECONCILE = Record(
    "`reconcile`",
    {
        **_REQUEST,
        "done": Many(_STATUS, 1, "a list of statuses", single=True),
        "not_done": Many(_STATUS, 1, "a list of statuses", single=True),
        "running": Many(_STATUS, 1, "a list of statuses", single=True),
    },
    ("url",),
    elsewhere={"auth": "the probe goes with that of `http`"},
)
_ARGUMENTS = Many(ByKind("a text or a number", {"string": Text(), "number": Text()}), 1, "a list: the program and its arguments")
_VARIABLE = ByKind(
    "a text or {secret: NAME}", {"string": Text(), "number": Text(), "object": Record("a variable", {"secret": SECRET}, ("secret",))}
)
COMMAND = Record(
    "`command`",
    {
        "arguments": _ARGUMENTS,
        "folder": Text(r"/.*", "the absolute path of a folder"),
        "environment": Named(_VARIABLE, r"[A-Za-z_][A-Za-z0-9_]*", "the name of a variable"),
        "stdin": Text(),
        "output": Words(("text", "json", "lines", "none")),
        "max_bytes": Number(1, MOST_BODY),
        "exit_codes": Named(ERROR, r"[0-9]{1,3}", "an exit code from 0 to 255"),
        "expect": Many(Number(0, 255), 1, "a list of exit codes", single=True),
    },
    ("arguments",),
)
_SHARED: Mapping[str, Check] = {
    "description": Text(longest=10_000),
    "effect": Words(tuple(effect.value for effect in Effect)),
    "timeout": Duration(),
    "breaker": BREAKER,
}
TOOL = Record(
    "a tool",
    {
        **_SHARED,
        "name": NAMED,
        "parameters": parameters,
        "result": schema,
        "uses": Named(Words(USES)),
        "http": HTTP,
        "command": ByKind("a list of arguments or an object", {"array": _ARGUMENTS, "object": COMMAND}),
        "reconcile": RECONCILE,
    },
    ("name", "description"),
    elsewhere={key: "it belongs to `http`" for key in ("method", "url", "query", "headers", "body", "auth", "errors", "expect")},
)
OPENAPI = Record(
    "`openapi`",
    {
        "document": ByKind("the path of a document, or the document itself", {"string": Text(), "object": anything}),
        "prefix": NAMED,
        "base_url": Text(r"https?://[^{}]+", "an http or https address", 8000),
        "auth": AUTH,
        "operations": Many(Text(longest=200), 1, "a list of operationIds"),
        "effects": Named(Words(tuple(effect.value for effect in Effect))),
        "errors": Named(ERROR, _STATUSES, "a status or a range: 404, 500-599 or 5xx"),
        "timeout": Duration(),
        "breaker": BREAKER,
    },
    ("document", "prefix"),
)
DOCUMENT = Record("a document of tools", {"tools": Many(TOOL, 1, "a list of tools"), "openapi": OPENAPI})
