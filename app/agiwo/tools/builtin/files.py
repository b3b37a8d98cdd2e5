"""`file.read` and `file.write`: files in folders that the operator allows by name, as connections of kind `folder`."""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from agiwo.definition.contract import Effect
from agiwo.errors import ValidationError, ValueRefused
from agiwo.outbound.folder import Folder
from agiwo.tools.context import ToolContext
from agiwo.tools.tool import tool
from agiwo.values import check, decode_strict, encode, shown

DEFAULT_FOLDER = "files"
_PATH = {"type": "string", "minLength": 1, "maxLength": 1000, "description": "The file below the folder, such as reports/week.csv."}
_FOLDER = {"type": "string", "default": DEFAULT_FOLDER, "description": "The name of the folder's connection."}


@tool(
    name="file.read",
    description="Reads a file in an allowed folder; gives its path, its size in bytes and its content.",
    effect="read",
    parameters={
        "type": "object",
        "properties": {
            "path": _PATH,
            "folder": _FOLDER,
            "as": {"enum": ["text", "json", "base64"], "default": "text", "description": "What the content becomes; text is UTF-8."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    result={
        "type": "object",
        "properties": {"path": {"type": "string"}, "size": {"type": "integer"}, "content": {}},
        "required": ["path", "size", "content"],
        "additionalProperties": False,
    },
    keeps_off=True,
    connections=["folder"],
)
async def read(ctx: ToolContext, path: str, folder: str = DEFAULT_FOLDER, **more: str) -> dict[str, Any]:
    """Raises StepError: NotFound, PermissionDenied for what leads out, PayloadTooLarge, ValidationError if it is not what it should be."""
    where = Folder.of(ctx.connections.get(folder, "folder"))
    data = await asyncio.to_thread(where.read, path)
    return {"path": path, "size": len(data), "content": _content(data, more.get("as", "text"), path)}


def _content(data: bytes, form: str, path: str) -> Any:
    if form == "base64":
        return b64encode(data).decode()
    try:
        if form == "json":
            return decode_strict(data)
        text = data.decode()
        check(text)
    except UnicodeDecodeError as exc:
        message = f"{shown(path)} is no UTF-8 text (byte {exc.start}); read it as base64"
    except ValueRefused as exc:
        message = f"{shown(path)} cannot be read as {form}: {exc.message}"
    else:
        return text
    raise ValidationError(message, not_done=True)


def _effect_of(parameters: Mapping[str, Any]) -> Effect:
    return Effect.IDEMPOTENT_WRITE if parameters.get("effect") == Effect.IDEMPOTENT_WRITE else Effect.WRITE


@tool(
    name="file.write",
    description="Writes a file in an allowed folder, whole or not at all; gives its path and its size in bytes.",
    effect="write",
    effect_of=_effect_of,
    parameters={
        "type": "object",
        "properties": {
            "path": _PATH,
            "folder": _FOLDER,
            "content": {"description": "Text is written as UTF-8, anything else as JSON."},
            "encoding": {"enum": ["text", "base64"], "default": "text", "description": "base64: the content is bytes in that form."},
            "mode": {"enum": ["replace", "create"], "default": "replace", "description": "create: a file that is there is a Conflict."},
            "effect": {
                "enum": ["write", "idempotent_write"],
                "default": "write",
                "description": "idempotent_write says that the file may be written twice; nobody else writes it meanwhile.",
            },
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    result={
        "type": "object",
        "properties": {"path": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["path", "size"],
        "additionalProperties": False,
    },
    keeps_off=True,
    connections=["folder"],
)
async def write(
    ctx: ToolContext,
    path: str,
    content: Any,
    folder: str = DEFAULT_FOLDER,
    encoding: str = "text",
    mode: str = "replace",
    effect: str = "write",
) -> dict[str, Any]:
    """Raises StepError, marked `not_done` since a file is put in its place last; `effect` is read at publishing."""
    where = Folder.of(ctx.connections.get(folder, "folder"))
    if encoding == "base64":
        try:
            data = b64decode(content, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise ValidationError("content: this is no base64 text", not_done=True) from None
    else:
        data = (content if isinstance(content, str) else encode(content)).encode()
    await asyncio.to_thread(where.write, path, data, replace=mode == "replace")
    return {"path": path, "size": len(data)}
