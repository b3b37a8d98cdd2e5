"""Keyset pages: how a request names its place in a list, and how an answer hands out the next one.

Knows no list; what is in one, and in which order, is the services' matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Query

from agiwo.api.answers import JSONAnswer
from agiwo.service.tokens import Cursors

Limit = Annotated[int, Query(ge=1, le=200, description="how many at most")]
Cursor = Annotated[str | None, Query(min_length=1, max_length=4096, description="`next_cursor` of the page before")]

T = TypeVar("T")


def before(cursors: Cursors, tenant: str, listed: str, cursor: str | None) -> UUID | None:
    """The id that a list by id, the newest first, goes on below; None for its beginning. Raises InvalidInput for a foreign cursor."""
    place = cursors.place(tenant, listed, cursor)
    return None if place is None else UUID(place)


def next_before(cursors: Cursors, tenant: str, listed: str, id: UUID | None) -> str | None:
    """The cursor for going on below this id; None for None: the list is over."""
    return None if id is None else cursors.at(tenant, listed, str(id))


def page(
    cursors: Cursors, tenant: str, listed: str, found: Sequence[T], limit: int, place: Callable[[T], Any], view: Callable[[T], Any]
) -> JSONAnswer:
    """The first `limit` rows as `view` shows them; if one more was found, with a cursor for the `place` of the last one shown."""
    next_cursor = cursors.at(tenant, listed, place(found[limit - 1])) if len(found) > limit else None
    return JSONAnswer({"items": [view(row) for row in found[:limit]], "next_cursor": next_cursor})


def by_id(row: Any) -> str:
    """The place of a row in a list by id."""
    return str(row.id)
