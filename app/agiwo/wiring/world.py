"""What definitions can reach, as the settings have it: connections and their guard, model profiles, secrets.

It refuses at start what cannot work, and opens no connection.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from agiwo.clock import Clock
from agiwo.errors import ServiceError, StepError, Unavailable
from agiwo.executors.guarded import MODELS
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import ModelProvider
from agiwo.models.providers import provider_for
from agiwo.names import nearest
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.outbound.folder import Folder
from agiwo.outbound.guard import Guard
from agiwo.outbound.service import HttpService
from agiwo.settings import Settings, secrets_of
from agiwo.settings.parts import SettingsRefused
from agiwo.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class World:
    """What definitions can reach: tools, connections, models, secrets. `providers` are open ways to the models by profile name."""

    registry: ToolRegistry
    connections: Connections
    profiles: Mapping[str, ModelProfile]
    providers: Mapping[str, ModelProvider]
    secrets: Mapping[str, str]


def build_world(settings: Settings, registry: ToolRegistry, clock: Clock) -> World:
    """What the settings let definitions reach; loads the clients of the models, which takes seconds.

    Raises SettingsRefused for a profile that cannot be used.
    """
    profiles = {}
    try:
        for name, data in settings.profiles().items():
            profiles[name] = ModelProfile.from_mapping(name, data, os.environ)
        providers = {name: provider_for(profile, clock) for name, profile in profiles.items()}
    except (ServiceError, Unavailable) as exc:
        raise SettingsRefused(f"the settings cannot be used:\n{exc.message}") from None
    _are_tools("breakers", settings.breakers, (*registry.contracts(), MODELS))
    _are_tools("rates", settings.rates, registry.contracts())
    connections = Connections(connection_specs(settings), Guard(settings.outbound_allow, never=_own_parts(settings)))
    return World(registry, connections, profiles, providers, secrets_of(os.environ))


def _are_tools(setting: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean `{near}`?" if near else ""
            raise SettingsRefused(f"the settings cannot be used: `{setting}` names {name[:80]!r}, and there is no such tool{hint}")


def _own_parts(settings: Settings) -> list[tuple[str, int]]:
    """Host and port of this service's own database and Redis: no call of a workflow is for them, whatever network is allowed."""
    out = []
    for url, port in ((settings.database_url, 5432), (settings.redis_url, 6379)):
        # A database may have several hosts, separated by commas.
        for host in urlsplit(url.get_secret_value()).netloc.rpartition("@")[2].split(",") if url is not None else ():
            with suppress(ValueError):
                parts = urlsplit(f"//{host}")
                out += [(parts.hostname, parts.port or port)] if parts.hostname else []
    return out


def connection_specs(settings: Settings) -> list[ConnectionSpec]:
    """The connections as configured. Raises SettingsRefused for one that cannot be used."""
    specs = [
        ConnectionSpec(
            name,
            one.kind,
            url_of(name, one.url.get_secret_value()),
            one.model_extra or {},
            None if one.tenants is None else frozenset(one.tenants),
            None if one.tools is None else frozenset(one.tools),
        )  # fmt: skip
        for name, one in settings.connections.items()
    ]
    try:
        for spec in specs:
            if spec.kind == "http":
                HttpService.of(spec)
            elif spec.kind == "folder":
                Folder.of(spec)
    except StepError as exc:
        raise SettingsRefused(f"the settings cannot be used: {exc.message}") from None
    return specs


def url_of(name: str, url: str) -> str:
    """The URL itself, or what stands in the variable that `env:NAME` names. Raises SettingsRefused if that is not set."""
    if not url.startswith("env:"):
        return url
    variable = url.removeprefix("env:")
    if not os.environ.get(variable):
        raise SettingsRefused(f"the connection {name!r} takes its URL from the variable {variable}, which is not set")
    return os.environ[variable]
