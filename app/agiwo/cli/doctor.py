"""`agiwo doctor`: everything that an operator would look at, in one command whose status says whether all is well.

It reads what the admin routes say and judges it; it changes nothing, and what the key may not see it names instead of passing it by.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agiwo.cli.client import Client
from agiwo.cli.lists import node_line
from agiwo.cli.screen import FAILED, CommandEnds, give, say
from agiwo.cli.shown import failure_text, span_text

#: Seconds after which an instance that could run and does not is a sign that nodes are too few or stuck.
LATE = 60.0
#: Dead letters and circuits that are looked at, and places of dead letters that are shown.
COUNTED, SHOWN = 1000, 10

GOOD, WRONG, UNSEEN = "ok", "wrong", "not seen"
_MARKS = {GOOD: "✓", WRONG: "✗", UNSEEN: "-"}
_MARKS = {GOOD: "✓", WRONG: "✗", UNSEEN: "-"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look showed: `state` is ok, wrong or not seen (the key may not); `details` are lines for people."""

    name: str
    state: str
    summary: str
    details: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "summary": self.summary, "details": self.details}


async def doctor(server: str, key: str | None, as_json: bool) -> None:
    """Look at everything. Raises CommandEnds if something is wrong, or the service cannot be reached."""
    async with Client(server, key) as client:
        findings = [await _parts(client)]
        findings += await asyncio.gather(*(_seen(name, look(client)) for name, look in LOOKS.items()))
    wrong = [finding for finding in findings if finding.state == WRONG]
    if as_json:
        give({"well": not wrong, "findings": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            say(f"{_MARKS[finding.state]} {finding.name}: {finding.summary}")
            for line in finding.details:
                say(f"    {line}")
    if wrong:
        raise CommandEnds(FAILED)


async def _seen(name: str, look: Awaitable[Finding]) -> Finding:
    try:
        return await look
    except CommandEnds as exc:
        code = exc.document.get("code") if isinstance(exc.document, dict) else None
        if exc.status != FAILED:
            raise
        return Finding(name, UNSEEN if code == "role_missing" else WRONG, exc.message.splitlines()[0])


async def _parts(client: Client) -> Finding:
    status, document = await client.look("/readyz")
    if not isinstance(document, dict) or "parts" not in document:
        said = document.get("detail") if isinstance(document, dict) else None
        raise CommandEnds(FAILED, said or f"/readyz answers with status {status}: is {client.server} an Agiwo service?", document)
    away = [name for name, works in document["parts"].items() if not works]
    there = ", ".join(name for name, works in document["parts"].items() if works)
    return Finding("parts", WRONG, f"away: {', '.join(away)}") if away else Finding("parts", GOOD, f"{there} work")


async def _promises(client: Client) -> Finding:
    found = await client.get("/v1/admin/invariants")
    broken = [check for check in found["checks"] if not check["holds"]]
    if not broken:
        return Finding("promises", GOOD, f"all {len(found['checks'])} hold")
    details = [f"{check['name']}: {check['meaning']}: {', '.join(check['broken_by'][:5])}" for check in broken]
    return Finding("promises", WRONG, f"{len(broken)} do not hold", details)


async def _nodes(client: Client) -> Finding:
    items = (await client.get("/v1/admin/nodes"))["items"]
    alive = [row for row in items if row["state"] == "alive"]
    stuck = [row for row in items if row["state"] != "alive" and row["instances"]]
    if stuck:
        return Finding("nodes", WRONG, "nodes that are gone hold instances", [node_line(row) for row in stuck])
    return Finding("nodes", GOOD if alive else WRONG, f"{len(alive)} alive", [node_line(row) for row in alive])


async def _queues(client: Client) -> Finding:
    found = await client.get("/v1/admin/queues")
    oldest = found["oldest_ready_seconds"]
    summary = (
        f"{found['ready']} ready to run" + (f", the oldest for {span_text(oldest)}" if oldest is not None else "")
        + f", {found['timed']} wait for a time, {found['waiting']} for news, {found['approvals']} for people"
    )  # fmt: skip
    return Finding("queues", WRONG if oldest is not None and oldest > LATE else GOOD, summary)


async def _circuits(client: Client) -> Finding:
    details = []
    async for circuit in client.pages("/v1/admin/breakers", COUNTED):
        if circuit["state"] != "closed":
            why = f": {failure_text(circuit['last_error'])}" if circuit.get("last_error") else ""
            details.append(f"{circuit['name']} {circuit['key']} is {circuit['state'].replace('_', ' ')}{why}")
    return (
        Finding("circuits", WRONG, f"{len(details)} let no call through", details) if details else Finding("circuits", GOOD, "all closed")
    )


async def _letters(client: Client) -> Finding:
    dead = Counter([(row["target"], row["last_error"]) async for row in client.pages("/v1/admin/outbox", COUNTED, state="dead")])
    if not dead:
        return Finding("deliveries", GOOD, "no dead letters")
    more = " or more" if dead.total() == COUNTED else ""
    details = [f"{target}: {count} given up, {why or 'nobody knows why'}" for (target, why), count in dead.most_common(SHOWN)]
    return Finding("deliveries", WRONG, f"{dead.total()}{more} dead letters", details)


LOOKS: dict[str, Callable[[Client], Awaitable[Finding]]] = {
    "promises": _promises,
    "nodes": _nodes,
    "queues": _queues,
    "circuits": _circuits,
    "deliveries": _letters,
}
