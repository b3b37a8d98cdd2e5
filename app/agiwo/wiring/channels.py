"""Brings a message to people over the channel that a definition names.

It knows who is behind `role:NAME` by the configuration, and must not know what a message is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agiwo.clock import Clock
from agiwo.errors import StepError
from agiwo.notify.chat import ChatNotifier
from agiwo.notify.mail import MailNotifier
from agiwo.notify.webhook import WebhookNotifier
from agiwo.outbound.connections import Connections
from agiwo.ports.notifier import Notifier
from agiwo.settings import Settings
from agiwo.settings.parts import ChannelSetting, SettingsRefused
from agiwo.wiring.world import url_of


class Members:
    """Who is behind a principal; `roles` are the members of each role, as mail addresses or `user:MAIL`."""

    def __init__(self, roles: Mapping[str, Sequence[str]]) -> None:
        self._roles = {f"role:{name}": [f"user:{member.removeprefix('user:')}" for member in members] for name, members in roles.items()}

    def __call__(self, principal: str) -> Sequence[str]:
        """The people behind a role, else the principal itself."""
        return self._roles.get(principal) or [principal]


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel as configured.

    `addressed`: its notifier's target are addresses, each read by one person; any other channel is read by whoever reads it, or by
    `principal` alone. `to` are the addresses that are told if a step names none; `tenants` who may use it, None for everybody.
    """

    notifier: Notifier
    addressed: bool = False
    to: tuple[str, ...] = ()
    principal: str | None = None
    tenants: frozenset[str] | None = None


class Channels:
    """The channels by name. As a Notifier its `target` is a channel's name, and `body` has `to` (a principal), `subject` and `text`."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels

    def reader(self, name: str) -> str | None:
        """Who reads a channel: "each" if each is told at an own address, a principal if that is the only one, None if anybody may."""
        channel = self._channels.get(name)
        return "each" if channel is None or channel.addressed else channel.principal

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        """Tell one person, or those who read the channel.

        Raises StepError if there is no such channel, no address behind the principal, or it could not be done.
        """
        channel = self._channel(target, body.get("tenant"))
        principal, address = str(body.get("to", "")), ""
        if channel.addressed:
            kind, _, address = principal.partition(":")
            if kind != "user" or "@" not in address:
                raise StepError(f"the configuration gives no address for {principal!r}", type="NotFound", not_done=True)
        whom = address.replace("@", ".") or principal.replace(":", ".").replace("@", ".")
        key = f"{body.get('about', 'notice')}.{body.get('approval', '')}.{whom}"
        told = {"subject": body.get("subject"), "text": body.get("text"), "key": key, "trace_id": body.get("trace_id")}
        await channel.notifier.deliver(address, told)

    async def tell(self, tenant: str, name: str, to: Sequence[str], body: Mapping[str, Any]) -> list[str]:
        """Send a message of a step over a channel; gives the addresses that were told, none for a channel without addresses.

        Raises StepError as `deliver` does, PermissionDenied if the channel is not the tenant's.
        """
        channel = self._channel(name, tenant)
        if not channel.addressed:
            if to:
                raise StepError(f"the channel {name!r} takes no addresses: leave `to` out", type="ValidationError", not_done=True)
            await channel.notifier.deliver("", body)
            return []
        whom = list(to or channel.to)
        if not whom:
            raise StepError(f"the channel {name!r} needs `to`: who is to be told?", type="ValidationError", not_done=True)
        await channel.notifier.deliver("\n".join(whom), body)
        return whom

    def _channel(self, name: str, tenant: str | None) -> Channel:
        channel = self._channels.get(name)
        if channel is None:
            there = ", ".join(sorted(self._channels)) or "none"
            raise StepError(f"there is no channel {name!r} in the configuration; there are: {there}", type="NotFound", not_done=True)
        if channel.tenants is not None and tenant not in channel.tenants:
            raise StepError(f"the channel {name!r} is not for the tenant {tenant!r}", type="PermissionDenied", not_done=True)
        return channel


def open_channels(settings: Settings, connections: Connections, clock: Clock) -> tuple[Channels, list[WebhookNotifier]]:
    """The channels by name, and those that hold connections. Without any in the settings `mail` is one if there is such a connection.

    Raises SettingsRefused for one that cannot be used.
    """
    given = dict(settings.channels)
    if "mail" not in given and "mail" in settings.connections and settings.connections["mail"].kind == "smtp":
        given["mail"] = ChannelSetting()
    made: dict[str, Channel] = {}
    webhooks: list[WebhookNotifier] = []
    for name, one in given.items():
        notifier: Notifier
        try:
            if one.kind == "mail":
                connections.get(one.connection, "smtp")
                notifier = MailNotifier(connections, clock, one.connection)
            else:
                url = url_of(name, one.url.get_secret_value() if one.url is not None else "")
                notifier = ChatNotifier(url) if one.kind == "apprise" else WebhookNotifier(url, connections.guard)
        except (ValueError, StepError) as exc:
            raise SettingsRefused(f"the settings cannot be used: the channel {name!r}: {exc}") from None
        if isinstance(notifier, WebhookNotifier):
            webhooks.append(notifier)
        tenants = None if one.tenants is None else frozenset(one.tenants)
        made[name] = Channel(notifier, one.kind == "mail", one.to, one.principal, tenants)
    return Channels(made), webhooks
