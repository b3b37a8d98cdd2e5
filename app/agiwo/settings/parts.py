"""The parts of the settings that have a structure of their own: connections, keys, channels.

They check what an operator wrote as far as it can be known without opening anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from agiwo.errors import InvalidInput
from agiwo.names import nearest
from agiwo.values import shown


class SettingsRefused(InvalidInput):
    """The settings cannot be used."""

    code = "settings_refused"


#: What a Redis URL may say behind the question mark.
_REDIS_OPTIONS = frozenset({"db", "ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname"})


def redis_url_problem(url: str) -> str | None:
    """What is wrong with a Redis URL, in words that do not show it; None if nothing is."""
    expected = "a Redis URL is redis://HOST:PORT/NUMBER, rediss://… or unix:///PATH?db=NUMBER"
    try:
        parts = urlsplit(url)
        good = parts.path.startswith("/") if parts.scheme == "unix" else bool(parts.hostname) and parts.port != 0
    except ValueError:
        return expected
    if parts.scheme not in ("redis", "rediss", "unix") or not good:
        return expected
    if parts.scheme != "unix" and not re.fullmatch(r"/?[0-9]{0,5}", parts.path):
        return f"{expected}, and the database in it is a number"
    unknown = parse_qs(parts.query, keep_blank_values=True).keys() - _REDIS_OPTIONS
    return f"a Redis URL takes the options {', '.join(sorted(_REDIS_OPTIONS))}, and no other" if unknown else None


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


#: The options of each kind of connection: what they take, in words and in types.
CONNECTION_OPTIONS: Mapping[str, Mapping[str, tuple[str, type | tuple[type, ...]]]] = {
    "postgres": {"pool_size": ("a whole number of connections", int)},
    "sqlite": {},
    "smtp": {
        "sender": ("an address", str),
        "domain": ("a domain", str),
        "timeout": ("a number of seconds", (int, float)),
        "max_bytes": ("a whole number of bytes", int),
        "starttls": ("true or false", bool),
        "reconcile_url": ("an address", str),
    },
    "http": {
        "headers": ("a mapping from names to texts or {secret: NAME}", dict),
        "auth": ("{bearer: NAME} or {basic: {user: USER, password: NAME}}", dict),
        "ca_file": ("the path of a file with certificates", str),
    },
    "folder": {"writable": ("true or false", bool), "max_bytes": ("a whole number of bytes", int)},
}


class ConnectionSetting(BaseModel):
    """A named way to a database, a mail server, an HTTP service or a folder; further keys are options of its kind."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: Literal["postgres", "sqlite", "smtp", "http", "folder"]
    url: SecretStr
    tenants: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _known_options(self) -> ConnectionSetting:
        known = CONNECTION_OPTIONS[self.kind]
        for name, value in (self.model_extra or {}).items():
            if name not in known:
                near = nearest(name, known)
                raise ValueError(f"a connection of kind {self.kind} has no `{name[:80]}`" + (f"; did you mean `{near}`?" if near else ""))
            said, types = known[name]
            positive = not isinstance(value, int | float) or isinstance(value, bool) or value > 0
            if not isinstance(value, types) or (isinstance(value, bool) and types is not bool) or not positive:
                raise ValueError(f"`{name}` is {shown(value)}, expected {said}")
        return self


class ApiKeySetting(Part):
    """Who may call the API: the key itself stands in the environment variable `env`, or as its SHA-256 here."""

    name: str = Field(min_length=1, max_length=100)
    sha256: str | None = Field(None, pattern="^[0-9a-fA-F]{64}$")
    env: str | None = None
    tenant: str = "default"
    roles: tuple[str, ...] = ("admin",)

    @model_validator(mode="after")
    def _one_form(self) -> ApiKeySetting:
        if (self.sha256 is None) == (self.env is None):
            raise ValueError("exactly one of `sha256` and `env` is needed")
        return self

    def digest(self, environment: Mapping[str, str]) -> str:
        """The SHA-256 of the key's text. Raises SettingsRefused if its variable is not set."""
        if self.sha256 is not None:
            return self.sha256.lower()
        text = environment.get(self.env or "", "")
        if not text:
            raise SettingsRefused(f"the API key {self.name!r} is to stand in the variable {self.env}, which is not set")
        return hashlib.sha256(text.encode()).hexdigest()


class MessageSetting(Part):
    """Where signed messages come from: `secret` is `whsec_…` or `env:NAME`, or several of them while one replaces another."""

    secret: SecretStr | tuple[SecretStr, ...]
    tenant: str = Field("default", min_length=1, max_length=100)

    @property
    def secrets(self) -> tuple[str, ...]:
        """All that may have signed."""
        given = self.secret if isinstance(self.secret, tuple) else (self.secret,)
        return tuple(one.get_secret_value() for one in given)

    @model_validator(mode="after")
    def _signed(self) -> MessageSetting:
        if not all(self.secrets) or not self.secrets:
            raise ValueError("a secret is needed")
        return self


class SignalSetting(Part):
    """A signal, all of it templates over `payload`: to one `instance`, or to the live ones of a `correlation_key`."""

    event: str = Field(min_length=1)
    payload: Any = "{{ payload }}"
    correlation_key: str | None = None
    instance: str | None = None

    @model_validator(mode="after")
    def _one_receiver(self) -> SignalSetting:
        if (self.correlation_key is None) == (self.instance is None):
            raise ValueError("exactly one of `correlation_key` and `instance` is needed")
        return self


class HookSetting(MessageSetting):
    """An address at which another system's events start a workflow (`input` and `correlation_key` are templates) or send a signal."""

    workflow: str | None = Field(None, min_length=1, max_length=128)
    version: str | None = Field(None, min_length=1, max_length=64)
    input: Any = "{{ payload }}"
    correlation_key: str | None = None
    signal: SignalSetting | None = None

    @model_validator(mode="after")
    def _one_purpose(self) -> HookSetting:
        if (self.workflow is None) == (self.signal is None):
            raise ValueError("exactly one of `workflow` and `signal` is needed")
        if self.signal is not None and self.model_fields_set & {"version", "input", "correlation_key"}:
            raise ValueError("a hook with `signal` has no `version`, `input` or `correlation_key` of its own")
        return self


class ApprovalChannelSetting(MessageSetting):
    """A channel over which people decide: `deciders` are `user:MAIL` or `user:*@DOMAIN`, who decide with these `roles`."""

    deciders: tuple[Annotated[str, Field(pattern=r"^user:[^\s@]+@[^\s@]+$")], ...] = Field(min_length=1)
    roles: tuple[str, ...] = ()


class BreakerSetting(Part):
    """What counts for the circuits of a tool in the place of what it declares; `open_for` in seconds."""

    failures: int | None = Field(None, ge=1, le=1000)
    open_for: float | None = Field(None, gt=0, le=86_400)


class RateSetting(Part):
    """How often a tool may be called: `limit` calls in `per` seconds."""

    limit: int = Field(ge=1, le=1_000_000)
    per: int = Field(60, ge=1, le=86_400)


#: What each kind of channel takes besides `kind` and `tenants`.
CHANNEL_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "mail": ("connection", "to"),
    "apprise": ("url", "principal"),
    "webhook": ("url", "principal"),
}


class ChannelSetting(Part):
    """How people are told: mail over a connection of kind smtp, a chat by the notification library, or a POST to an address."""

    kind: Literal["mail", "apprise", "webhook"] = "mail"
    connection: str = "mail"
    to: tuple[str, ...] = ()
    url: SecretStr | None = None
    principal: str | None = Field(default=None, pattern="^user:.+@.+$")
    tenants: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _of_its_kind(self) -> ChannelSetting:
        for name in sorted(self.model_fields_set - {"kind", "tenants"}):
            if name not in CHANNEL_OPTIONS[self.kind]:
                raise ValueError(f"a channel of kind {self.kind} has no `{name}`; it has {', '.join(CHANNEL_OPTIONS[self.kind])}")
        if self.kind != "mail" and self.url is None:
            raise ValueError(f"a channel of kind {self.kind} needs `url`")
        return self
