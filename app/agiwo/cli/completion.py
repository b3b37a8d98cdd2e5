"""Words that only the service knows, for a shell that completes them: ids of workflows, instances and approvals.

A shell waits for it while a person types: it asks once, for a moment, and where nobody answers it has nothing to offer.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

#: Seconds that the service has to answer, and items that are offered at most.
WITHIN, OFFERED = 0.7, 50


def workflow_ids(server: str, incomplete: str) -> list[tuple[str, str]]:
    """Ids that begin as given, each with the version that a trigger takes."""
    query = f"q={quote(incomplete, safe='')}&" if incomplete else ""
    rows = _items(server, f"/v1/workflows?{query}limit={OFFERED}")
    return [(row["workflow_id"], row["version"] or "") for row in rows if row["workflow_id"].startswith(incomplete)]


def instance_ids(server: str, incomplete: str) -> list[tuple[str, str]]:
    """Ids of the newest instances that begin as given."""
    rows = _items(server, f"/v1/instances?limit={OFFERED}")
    found = ((row["instance_id"], f"{row['workflow_id']} {row['status']}") for row in rows)
    return [one for one in found if one[0].startswith(incomplete)]


def approval_ids(server: str, incomplete: str) -> list[tuple[str, str]]:
    """Ids of what waits for a decision that begin as given."""
    rows = _items(server, f"/v1/approvals?status=pending&limit={OFFERED}")
    return [(row["approval_id"], row["title"]) for row in rows if row["approval_id"].startswith(incomplete)]


def _items(server: str, path: str) -> Iterator[Mapping[str, Any]]:
    try:
        found = _answer(server, path)["items"]
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
        return
    yield from found


def _answer(server: str, path: str) -> Any:
    at = urlsplit(server)
    kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
    connection = kind(at.hostname or "", at.port, timeout=WITHIN)
    key = os.environ.get("AGIWO_API_KEY")
    try:
        connection.request("GET", at.path.rstrip("/") + path, headers={"authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return json.loads(answer.read()) if answer.status == http.client.OK else {}
    finally:
        connection.close()
