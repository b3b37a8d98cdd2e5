"""Lists as the API gives them, page by page: instances, workflows, approvals, nodes.

With JSON each item is a line as it came, so that a long list can be read while it arrives.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from typing import Any

from agiwo.cli.client import Client
from agiwo.cli.screen import WRONG_USE, CommandEnds, give, say, tell
from agiwo.cli.shown import failure_text, mark, moment_text, span_text
from agiwo.clock import SystemClock, rfc3339
from agiwo.definition import durations


async def instances(server: str, key: str | None, wanted: Mapping[str, Any], most: int | None, as_json: bool) -> None:
    """List the instances that fit, at most so many (None: all)."""
    asked = {name: value for name, value in wanted.items() if value is not None}
    for name in ("since", "until"):
        if name in asked:
            asked[name] = _moment(asked[name], f"--{name}")
    if "status" in asked:
        asked["status"] = asked["status"].upper()
    async with Client(server, key) as client:
        given = await _listed(client.pages("/v1/instances", most, **asked), _instance_line, as_json)
    if given == most and not as_json:
        tell(f"these are the newest {given}; --all shows all, --limit more")


def _moment(text: str, option: str) -> str:
    """A time: as it is, or so long before now."""
    if "T" in text.upper():
        try:
            if datetime.fromisoformat(text).tzinfo is not None:
                return text
        except ValueError:
            pass
    else:
        try:
            return rfc3339(SystemClock().now() - durations.seconds(text))
        except ValueError:
            pass
    raise CommandEnds(WRONG_USE, f"{option}: {text[:80]!r} is no time: expected a span as 2h or 7d, or a time as 2026-11-30T08:00:00Z")


def _instance_line(row: Mapping[str, Any]) -> str:
    what = f"{row['workflow_id']} {row['version']}  {row['status']}"
    line = f"{mark(row['status'])} {row['instance_id']}  {moment_text(row['started_at'])}  {what}"
    if row.get("waiting_for"):
        line += f" for {row['waiting_for']}"
    if row.get("error"):
        line += f": {failure_text(row['error'])}"
    return line


async def workflows(server: str, key: str | None, containing: str | None, as_json: bool) -> None:
    """List the workflows by name."""
    async with Client(server, key) as client:
        await _listed(client.pages("/v1/workflows", None, q=containing), _workflow_line, as_json)


def _workflow_line(row: Mapping[str, Any]) -> str:
    line = f"{row['workflow_id']}  {row['version'] or '(none without being named)'}"
    more = [f"{row['version_count']} version{'' if row['version_count'] == 1 else 's'}"]
    if row.get("default"):
        more.append("marked as default")
    if row.get("draft_count"):
        more.append(f"{row['draft_count']} draft{'' if row['draft_count'] == 1 else 's'}")
    if row.get("paused"):
        why = f": {row['paused']['reason']}" if row["paused"]["reason"] else ""
        more.append(f"paused by {row['paused']['by']}{why}")
    return f"{line}  ({', '.join(more)})"


async def approvals(server: str, key: str | None, status: str, assignee: str | None, most: int | None, as_json: bool) -> None:
    """List approvals of a status (`all`: of any)."""
    wanted = {"status": None if status == "all" else status, "assignee": assignee}
    async with Client(server, key) as client:
        given = await _listed(client.pages("/v1/approvals", most, **wanted), _approval_line, as_json)
    if not given and not as_json:
        tell("nothing waits for a decision" if status == "pending" else "there is none")


def _approval_line(row: Mapping[str, Any]) -> str:
    line = f"{row['approval_id']}  {row['workflow_id']} {row['path']}: {row['title']}"
    if row["status"] != "pending":
        by = (row.get("decision") or {}).get("by")
        return f"{line}  ({row['status']}{f' by {by}' if by else ''})"
    who = ", ".join(row["approvers"]) or "whoever may approve"
    return f"{line}  (asks {who}" + (f" until {moment_text(row['expires_at'])})" if row.get("expires_at") else ")")


async def nodes(server: str, key: str | None, as_json: bool) -> None:
    """List the nodes, the living first."""
    async with Client(server, key) as client:
        found = await client.get("/v1/admin/nodes")
    for row in found["items"]:
        if as_json:
            give(row)
        else:
            say(node_line(row))


def node_line(row: Mapping[str, Any]) -> str:
    """A node in one line."""
    left = row.get("lease_left_seconds")
    lease = f", lease for {span_text(left)}" if left is not None else ""
    holds = f"{row['instances']} instances, {row['deliveries']} deliveries"
    return f"{row['name']}  {row['state']}, began {moment_text(row['started_at'])}{lease}, {holds}"


async def _listed(items: AsyncGenerator[Any, None], line: Callable[[Mapping[str, Any]], str], as_json: bool) -> int:
    given = 0
    async for item in items:
        given += 1
        if as_json:
            give(item)
        else:
            say(line(item))
    return given
