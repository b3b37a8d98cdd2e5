"""Brings a notice to a person over the channel that the definition names.

It knows who is behind `role:NAME` by the configuration, and must not know what a notice is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agiwo.errors import StepError
from agiwo.ports.notifier import Notifier


class Members:
    """Who is behind a principal; `roles` are the members of each role, as mail addresses or `user:MAIL`."""

    def __init__(self, roles: Mapping[str, Sequence[str]]) -> None:
        self._roles = {f"role:{name}": [f"user:{member.removeprefix('user:')}" for member in members] for name, members in roles.items()}

    def __call__(self, principal: str) -> Sequence[str]:
        """The people behind a role, else the principal itself."""
        return self._roles.get(principal) or [principal]


class Channels:
    """A Notifier whose `target` is the name of a channel; `body` has `to` (a principal), `subject`, `text`, `about` and `approval`.

    `channels` are notifiers whose target is an address.
    """

    def __init__(self, channels: Mapping[str, Notifier]) -> None:
        self._channels = channels

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        """Tell one person. Raises StepError if there is no such channel, no address behind the principal, or it could not be done."""
        channel = self._channels.get(target)
        if channel is None:
            there = ", ".join(sorted(self._channels)) or "none"
            raise StepError(f"there is no channel {target!r} in the configuration; there are: {there}", type="NotFound", not_done=True)
        principal = str(body.get("to", ""))
        kind, _, address = principal.partition(":")
        if kind != "user" or "@" not in address:
            raise StepError(f"the configuration gives no address for {principal!r}", type="NotFound", not_done=True)
        key = f"{body.get('about', 'notice')}.{body.get('approval', '')}.{address.replace('@', '.')}"
        told = {"subject": body.get("subject"), "text": body.get("text"), "key": key, "trace_id": body.get("trace_id")}
        await channel.deliver(address, told)
