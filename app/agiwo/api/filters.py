"""The query parameters by which instances are narrowed down, one for all lists that show them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from pydantic import AwareDatetime, BeforeValidator, StringConstraints

from agiwo.errors import InvalidInput, Problem
from agiwo.machine.state import InstanceStatus
from agiwo.ports.queries import InstanceFilter

LabelText = Annotated[str, StringConstraints(pattern="^[^:]+:", max_length=400)]
Name = Annotated[str | None, Query(min_length=1, max_length=128)]
Text = Annotated[str | None, Query(min_length=1, max_length=256)]


def _written(value: object) -> object:
    """Only what is written as a time: a bare number could be seconds or milliseconds."""
    if isinstance(value, str) and "T" not in value.upper():
        raise ValueError("expected RFC 3339 with a zone, as 2026-11-30T08:00:00Z")
    return value


Moment = Annotated[AwareDatetime | None, BeforeValidator(_written), Query(description="RFC 3339 with a zone, as 2026-11-30T08:00:00Z")]


def instance_filter(
    status: InstanceStatus | None = None,
    workflow: Name = None,
    version: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    correlation_key: Text = None,
    trace_id: Annotated[str | None, Query(pattern="^[0-9a-f]{32}$")] = None,
    started_by: Annotated[str | None, Query(min_length=1, max_length=320, description="a principal")] = None,
    error: Annotated[str | None, Query(min_length=1, max_length=128, description="the type of the error that it ended with")] = None,
    since: Moment = None,
    until: Moment = None,
    label: Annotated[list[LabelText] | None, Query(max_length=16, description="`name:value`; may be given several times")] = None,
) -> InstanceFilter:
    """What the query asks for. Raises InvalidInput."""
    return InstanceFilter(
        status=None if status is None else str(status),
        workflow=workflow,
        correlation_key=correlation_key,
        labels=_labels(label),
        version=version,
        trace_id=trace_id,
        starter=started_by,
        error=error,
        since=None if since is None else since.timestamp(),
        until=None if until is None else until.timestamp(),
    )


Wanted = Annotated[InstanceFilter, Depends(instance_filter)]


def _labels(given: list[str] | None) -> dict[str, str] | None:
    if not given:
        return None
    out: dict[str, str] = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name or name in out:
            raise InvalidInput(
                "`label` must be `name:value`, each name once",
                code="invalid_parameters",
                problems=(Problem("wrong_value", "expected `name:value`, each name once", "?label", found=text[:80]),),
            )
        out[name] = value
    return out
