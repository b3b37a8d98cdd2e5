"""The words in which schemas of the document are written: texts, times, counts, objects, pages, references.

Describes; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agiwo.api import problems

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
TIME: Schema = {"type": "string", "format": "date-time"}
MAYBE_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
UUID: Schema = {"type": "string", "format": "uuid"}
ANY: Schema = {"description": "any JSON value"}
OBJECT: Schema = {"type": "object", "additionalProperties": True}
LINKS: Schema = {"type": "object", "additionalProperties": TEXT}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
COUNT: Schema = {"type": "integer", "minimum": 0}
COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}
NUMBER: Schema = {"type": "number"}
MAYBE_COUNT: Schema = {"type": ["integer", "null"], "minimum": 0}
ACTIONS: Schema = {
    "type": "array",
    "description": "the calls that change this and are allowed now",
    "items": {
        "type": "object",
        "required": ["name", "method", "href"],
        "properties": {"name": TEXT, "method": {"const": "POST"}, "href": TEXT, "path": TEXT},
    },
}


PROBLEMS: Schema = {"type": "array", "items": problems.SCHEMA["properties"]["errors"]["items"]}


def ref(name: str) -> Schema:
    """A reference to one of the shared schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(properties: Mapping[str, Schema], description: str = "", optional: tuple[str, ...] = ()) -> Schema:
    """An object that has all of `properties`, but for those that are `optional`."""
    return {
        "type": "object",
        "description": description,
        "required": [name for name in properties if name not in optional],
        "properties": dict(properties),
    }


def page_of(item: str) -> Schema:
    """A keyset page of the named schema."""
    return object_of(
        {"items": {"type": "array", "items": ref(item)}, "next_cursor": MAYBE_TEXT},
        "One page; `next_cursor` is null on the last one and stays good while rows are added.",
    )
