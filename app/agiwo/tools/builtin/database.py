"""`database.query` and `database.execute`: statements with bound values on a named connection, reading only or in a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.definition.contract import Effect
from agiwo.tools.context import ToolContext
from agiwo.tools.sql.postgres import read_postgres
from agiwo.tools.sql.sqlite import read_sqlite
from agiwo.tools.sql.writing import write_postgres, write_sqlite
from agiwo.tools.tool import tool

DEFAULT_CONNECTION = "default"
MAX_ROWS = 10_000
_STATEMENT: Mapping[str, Any] = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": 100_000},
        {
            "type": "object",
            "properties": {
                "statement": {"type": "string", "minLength": 1, "maxLength": 100_000},
                "values": {"type": "object", "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}},
            },
            "required": ["statement"],
            "additionalProperties": False,
        },
    ],
}
_SHARED: Mapping[str, Any] = {
    "connection": {"type": "string", "default": DEFAULT_CONNECTION, "description": "The name of the database connection."},
    "max_rows": {
        "type": "integer",
        "minimum": 1,
        "maximum": 1_000_000,
        "default": MAX_ROWS,
        "description": "A result with more rows is an error.",
    },
}


@tool(
    name="database.query",
    description="Reads rows from a configured database; gives a list with one object for each row, its columns as keys.",
    effect="read",
    uses={"query": "sql"},
    breaker={"key": "connection"},
    parameters={
        "type": "object",
        "properties": {
            "query": {**_STATEMENT, "description": "One SELECT statement; each {{ }} in it becomes a bound value."},
            **_SHARED,
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    result={"type": "array", "items": {"type": "object"}},
    keeps_off=True,
    connections=["connection"],
)
async def query(
    ctx: ToolContext, query: str | Mapping[str, Any], connection: str = DEFAULT_CONNECTION, max_rows: int = MAX_ROWS
) -> list[dict[str, Any]]:
    """Integers come exact, decimals as the float of the same decimal (else text), times as ISO 8601, bytes as base64, JSON as its value."""
    spec = ctx.connections.get(connection, "postgres", "sqlite")
    if spec.kind == "sqlite":
        return await read_sqlite(spec, query, max_rows)
    return await read_postgres(spec, ctx.connections, query, max_rows, ctx.remaining())


def _effect_of(parameters: Mapping[str, Any]) -> Effect:
    return Effect.IDEMPOTENT_WRITE if parameters.get("effect") == Effect.IDEMPOTENT_WRITE else Effect.WRITE


@tool(
    name="database.execute",
    description="Changes a configured database by one statement in a transaction; gives the rows affected, and those that it returns.",
    effect="write",
    effect_of=_effect_of,
    uses={"statement": "sql"},
    breaker={"key": "connection"},
    parameters={
        "type": "object",
        "properties": {
            "statement": {**_STATEMENT, "description": "One statement; each {{ }} in it becomes a bound value."},
            **_SHARED,
            "effect": {
                "enum": ["write", "idempotent_write"],
                "default": "write",
                "description": "idempotent_write promises that the statement may be run twice, such as one with ON CONFLICT DO NOTHING.",
            },
        },
        "required": ["statement"],
        "additionalProperties": False,
    },
    result={
        "type": "object",
        "properties": {"rows_affected": {"type": "integer"}, "rows": {"type": "array", "items": {"type": "object"}}},
        "required": ["rows_affected", "rows"],
        "additionalProperties": False,
    },
    keeps_off=True,
    connections=["connection"],
)
async def execute(
    ctx: ToolContext,
    statement: str | Mapping[str, Any],
    connection: str = DEFAULT_CONNECTION,
    max_rows: int = MAX_ROWS,
    effect: str = "write",
) -> dict[str, Any]:
    """All or nothing: an error that came before the commit was asked for is marked `not_done`. `effect` is read at publishing."""
    spec = ctx.connections.get(connection, "postgres", "sqlite")
    if spec.kind == "sqlite":
        affected, rows = await write_sqlite(spec, statement, max_rows)
    else:
        affected, rows = await write_postgres(spec, ctx.connections, statement, max_rows, ctx.remaining())
    return {"rows_affected": affected, "rows": rows}
