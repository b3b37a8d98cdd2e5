"""Brings a notice to the people behind a principal, over the channel that the definition names.

It knows who is behind `user:MAIL` and `role:NAME` by the configuration, and must not know what a notice is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agiwo.errors import StepError
from agiwo.ports.notifier import Notifier


class Channels:
    """A Notifier whose `target` is the name of a channel; `body` has `to` (a principal), `subject`, `text`, `about` and `approval`.

    `channels` are notifiers whose target is an address; `roles` are the members of each role, as mail addresses or `user:MAIL`.
    """

    def __init__(self, channels: Mapping[str, Notifier], roles: Mapping[str, Sequence[str]]) -> None:
        self._channels = channels
        self._roles = roles

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        """Tell everybody behind the principal. Raises StepError if there is no such channel, nobody behind it, or one was not told.

        Whoever was told already may be told again then, with the same key.
        """
        channel = self._channels.get(target)
        if channel is None:
            there = ", ".join(sorted(self._channels)) or "none"
            raise StepError(f"there is no channel {target!r} in the configuration; there are: {there}", type="NotFound", not_done=True)
        principal = str(body.get("to", ""))
        for address in self._addresses(principal):
            key = f"{body.get('about', 'notice')}.{body.get('approval', '')}.{address.replace('@', '.')}"
            await channel.deliver(address, {"subject": body.get("subject"), "text": body.get("text"), "key": key})

    def _addresses(self, principal: str) -> list[str]:
        kind, _, name = principal.partition(":")
        if kind == "user" and "@" in name:
            return [name]
        if kind == "role" and (members := self._roles.get(name)):
            return [member.removeprefix("user:") for member in members]
        raise StepError(f"the configuration gives no address for {principal!r}", type="NotFound", not_done=True)
