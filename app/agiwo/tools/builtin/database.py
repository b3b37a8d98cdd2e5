"""`database.query`: rows by a statement with bound values, from a named connection, reading only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.tools.context import ToolContext
from agiwo.tools.sql.postgres import read_postgres
from agiwo.tools.sql.sqlite import read_sqlite
from agiwo.tools.tool import tool

DEFAULT_CONNECTION = "default"
MAX_ROWS = 10_000


@tool(
    name="database.query",
    description="Reads rows from a configured database; gives a list with one object for each row, its columns as keys.",
    effect="read",
    uses={"query": "sql"},
    parameters={
        "type": "object",
        "properties": {
            "query": {
                "description": "One SELECT statement; each {{ }} in it becomes a bound value.",
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
            },
            "connection": {"type": "string", "default": DEFAULT_CONNECTION, "description": "The name of the database connection."},
            "max_rows": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1_000_000,
                "default": MAX_ROWS,
                "description": "A result with more rows is an error.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    result={"type": "array", "items": {"type": "object"}},
    keeps_off=True,
)
async def query(
    ctx: ToolContext, query: str | Mapping[str, Any], connection: str = DEFAULT_CONNECTION, max_rows: int = MAX_ROWS
) -> list[dict[str, Any]]:
    """Integers come exact, decimals as the float of the same decimal (else text), times as ISO 8601, bytes as base64, JSON as its value."""
    spec = ctx.connections.get(connection, "postgres", "sqlite")
    if spec.kind == "sqlite":
        return await read_sqlite(spec, query, max_rows)
    return await read_postgres(spec, ctx.connections, query, max_rows, ctx.remaining())
