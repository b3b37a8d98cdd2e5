"""A notice of an approval as a mail: subject, text, and a link that is minted for the one who gets it.

Links are made when a notice goes out and are stored nowhere; a notice that cannot be delivered never fails an approval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from agiwo.clock import rfc3339
from agiwo.ports.notifier import Notifier
from agiwo.service.tokens import ApprovalLinks, Link
from agiwo.values import encode

#: Seconds that a link works longer than the approval, so that whoever opens it late sees what was decided.
LINK_KEPT = 7 * 86_400.0
#: Characters of the matter that a mail shows: a long one must not keep the notice from being delivered.
SHOWN = 20_000


class ApprovalNotices:
    """A Notifier that turns the outbox rows of approvals into mails and hands them to the channel's own notifier.

    `members` gives the people behind a principal: each gets a link of their own, so that the decision names who took it. `reader` says of a
    channel who reads it: "each" at an own address, one principal, or None for whoever may; these get no link, which would be anybody's.
    """

    def __init__(
        self,
        links: ApprovalLinks,
        channel: Notifier,
        members: Callable[[str], Sequence[str]],
        reader: Callable[[str], str | None] = lambda target: "each",
    ) -> None:
        self._reader = reader
        self._links = links
        self._channel = channel
        self._members = members

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        """Send one notice to everybody whom it is for. Raises agiwo.errors.StepError if the channel could not.

        Whoever was told already may be told again then, with the same key.
        """
        if body.get("about") != "approval":
            await self._channel.deliver(target, body)
            return
        reader, members = self._reader(target), self._members(body["to"])
        for person in members if reader == "each" else [reader if reader in members else None]:
            await self._channel.deliver(target, mail(self._links, body, person))


def link_of(body: Mapping[str, Any], person: str) -> Link:
    """The link of one person; who is asked as a member of a role decides as one."""
    role = body["to"].removeprefix("role:") if body["to"] != person else None
    return Link(body["tenant"], UUID(body["approval"]), person, body["expires_at"] + LINK_KEPT, role)


def mail(links: ApprovalLinks, body: Mapping[str, Any], person: str | None) -> dict[str, Any]:
    """The mail of an outbox row to one person: `to`, `subject`, `text`, `link`; `about`, `approval`, `tenant` and `trace_id` as they were.

    For nobody in particular it has no link, and says how else one decides.
    """
    link = None if person is None else links.url(link_of(body, person))
    shown = body.get("show")
    parts = [f"Your decision is needed: {body['title']}"]
    if shown not in (None, ""):
        text = shown if isinstance(shown, str) else encode(shown)
        parts.append(text if len(text) <= SHOWN else f"{text[:SHOWN]}…\n(The rest stands on the page.)")
    parts += [
        f"Decide it with: agiwo approve {body['approval']}" if link is None else f"Open this page to look at it and to decide:\n{link}",
        f"It is open until {rfc3339(body['expires_at'])[:16].replace('T', ' ')} UTC. If nobody decides, nothing is approved.",
        f"Workflow {body['workflow']} {body['version']}, step {body['path']}, instance {body['instance']}.",
    ]
    return {
        "about": body["about"],
        "approval": body["approval"],
        "trace_id": body.get("trace_id"),
        "tenant": body["tenant"],
        "to": body["to"] if person is None else person,
        "subject": _one_line(f"Approval needed: {body['title']}"),
        "text": "\n\n".join(parts) + "\n",
        "link": link,
    }


def _one_line(text: str, longest: int = 150) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
