"""What stands in an instance's inbox, as reports for the machine.

It checks nothing that the service has to check; an item that makes no sense is an error that names it.
"""

from __future__ import annotations

from agiwo.errors import AgiwoError, Failure
from agiwo.machine.reports import (
    ApprovalDecided,
    CallbackReceived,
    CancelAsked,
    OutcomeDecided,
    Report,
    Resumed,
    SignalReceived,
)
from agiwo.ports.store import InboxItem


class UnknownItem(AgiwoError):
    """The inbox holds an item that this release does not know."""

    code = "unknown_inbox_item"


def to_report(item: InboxItem, at: float) -> Report:
    """The report of one item; `at` is the time at which it is taken up.

    Bodies: decision `{approval, action, by, channel, comment?, answer?: {values?, edited?: [value]}}`, cancel `{by, reason?}`, outcome
    `{path, by, done, result?, reason?}`, callback `{path, kind, result?, failure?, attempt?}`, signal
    `{id, event, payload, by, channel}`, resume `{by, reason?, paths?}`.
    Raises UnknownItem for any other kind, or if a part is missing.
    """
    body = item.body
    try:
        if item.kind == "decision":
            # The form and the edited text stand in the approval's own answer, as the storage keeps it.
            said = {**body, **(body.get("answer") or {})}
            edited = said.get("edited")
            return ApprovalDecided(
                at=at,
                approval=body["approval"],
                action=body["action"],
                by=body["by"],
                channel=body["channel"],
                comment=body.get("comment"),
                values=said.get("values"),
                edited=None if edited is None else (edited[0],),
            )
        if item.kind == "cancel":
            return CancelAsked(at=at, by=body["by"], reason=body.get("reason"))
        if item.kind == "outcome":
            return OutcomeDecided(at, body["path"], body["by"], body["done"], body.get("result"), body.get("reason"))
        if item.kind == "callback":
            failure = Failure.from_json(body["failure"]) if body.get("failure") is not None else None
            return CallbackReceived(at, body["path"], body["kind"], body.get("result"), failure, body.get("attempt"))
        if item.kind == "signal":
            return SignalReceived(at, body["id"], body["event"], body["payload"], body["by"], body["channel"])
        if item.kind == "resume":
            return Resumed(at, body["by"], body.get("reason"), body.get("paths"))
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as exc:
        raise UnknownItem(f"the inbox item {item.id} of kind {item.kind} is incomplete: {exc!r}") from exc
    raise UnknownItem(f"the inbox item {item.id} is of the unknown kind {item.kind!r}")
