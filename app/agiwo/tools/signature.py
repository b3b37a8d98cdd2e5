"""The JSON Schema of a function's parameters, from its type hints or from the short form, and their agreement with the function.

It must not guess: what it cannot say in JSON Schema is refused when the tool is registered.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agiwo.errors import ValueRefused
from agiwo.tools.context import ToolContext
from agiwo.values import check

_PLAIN: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


@dataclass(frozen=True, slots=True)
class Signature:
    """A function as a tool sees it: `named` parameters with whether each is required, and the one that takes the context."""

    named: Mapping[str, inspect.Parameter]
    hints: Mapping[str, Any]
    context: str | None
    takes_any: bool


def read(function: Callable[..., Any]) -> Signature:
    """The signature of a tool's function; raises TypeError for parameters that cannot be given by name."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as exc:
        raise TypeError(f"the type hints of {function.__qualname__} cannot be read: {exc}") from None
    named: dict[str, inspect.Parameter] = {}
    context, takes_any = None, False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"{function.__qualname__}: the parameter {name!r} cannot be given by name")
        elif hints.get(name) is ToolContext or (name == "ctx" and name not in hints):
            context = name
        else:
            named[name] = parameter
    return Signature(named, hints, context, takes_any)


def parameters_schema(function: Callable[..., Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of the arguments: as given, from the short form (a map of properties), or from the type hints.

    Raises TypeError if function and schema disagree on a name, or a type hint has no JSON form.
    """
    signature = read(function)
    if given is None:
        hinted = {name: _of_hint(signature.hints.get(name, Any), name) for name in signature.named}
        schema = _object({name: _with_default(part, signature.named[name]) for name, part in hinted.items()}, signature)
    elif _is_short(given, signature):
        schema = _object({name: _with_default(dict(part), signature.named.get(name)) for name, part in given.items()}, signature)
    else:
        schema = dict(given)
    _agree(function, schema, signature)
    return schema


def _is_short(given: Mapping[str, Any], signature: Signature) -> bool:
    names_fit = signature.takes_any or all(name in signature.named for name in given)
    looks_full = given.get("type") == "object" or any(name.startswith("$") for name in given)
    return not looks_full and names_fit and all(isinstance(part, Mapping) for part in given.values())


def _object(properties: dict[str, Any], signature: Signature) -> dict[str, Any]:
    required = [name for name in properties if (p := signature.named.get(name)) is None or p.default is p.empty]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _with_default(part: dict[str, Any], parameter: inspect.Parameter | None) -> dict[str, Any]:
    if parameter is None or parameter.default is parameter.empty or parameter.default is None or "default" in part:
        return part
    try:
        check(parameter.default)
    except ValueRefused:
        return part
    return {**part, "default": parameter.default}


def _agree(function: Callable[..., Any], schema: Mapping[str, Any], signature: Signature) -> None:
    properties = schema.get("properties", {})
    for name in properties:
        if name not in signature.named and not signature.takes_any:
            has = ", ".join(signature.named) or "none"
            raise TypeError(f"{function.__qualname__} has no parameter {name!r} that its schema names; it has: {has}")
    for name, parameter in signature.named.items():
        if parameter.default is parameter.empty and name not in properties:
            raise TypeError(f"{function.__qualname__} needs {name!r}, which its schema does not name")
        if parameter.default is parameter.empty and name not in schema.get("required", ()):
            raise TypeError(f"{function.__qualname__} needs {name!r}, which its schema does not require: require it or give it a default")


def _of_hint(hint: Any, name: str) -> dict[str, Any]:
    if isinstance(hint, typing.Hashable) and hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        texts = [extra for extra in arguments[1:] if isinstance(extra, str)]
        inner = _of_hint(arguments[0], name)
        return {**inner, "description": texts[0]} if texts else inner
    if origin in (typing.Union, types.UnionType):
        parts = [_of_hint(part, name) for part in arguments]
        if all(set(part) == {"type"} for part in parts):
            return {"type": [part["type"] for part in parts]}
        return {"anyOf": parts}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if hint is list or origin in (list, Sequence):
        return {"type": "array", "items": _of_hint(arguments[0], name)} if arguments else {"type": "array"}
    if hint is dict or origin in (dict, Mapping):
        if arguments and arguments[0] is not str:
            raise TypeError(f"the parameter {name!r}: the keys of a JSON object are text, not {arguments[0]!r}")
        inside = _of_hint(arguments[1], name) if arguments else {}
        return {"type": "object", "additionalProperties": inside} if inside else {"type": "object"}
    if typing.is_typeddict(hint):
        fields = typing.get_type_hints(hint)
        properties = {key: _of_hint(part, f"{name}.{key}") for key, part in fields.items()}
        return {"type": "object", "properties": properties, "required": sorted(hint.__required_keys__), "additionalProperties": False}
    raise TypeError(f"the parameter {name!r}: the type {hint!r} has no JSON form known here; give `parameters` as a JSON Schema")
