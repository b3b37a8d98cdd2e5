"""What an operator may set: environment variables that begin with AGIWO_, and one YAML file for what has structure.

Read by wiring and the command line alone; nothing here opens, connects or starts anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from agiwo.complaints import complaint
from agiwo.definition.yaml_text import Place, locate, read_text
from agiwo.errors import Problem
from agiwo.names import nearest
from agiwo.outbound.guard import Guard
from agiwo.settings.parts import (
    ApiKeySetting,
    ApprovalChannelSetting,
    BreakerSetting,
    ChannelSetting,
    ConnectionSetting,
    HookSetting,
    RateSetting,
    SettingsRefused,
    redis_url_problem,
)
from agiwo.values import pointer, shown

PREFIX = "AGIWO_"
SECRET_PREFIX = "AGIWO_SECRET_"
LOOPBACK = ("127.0.0.1", "::1", "localhost")

#: Variables of ours that others read: the command line, the embedded database, the tests.
_OTHERS = ("AGIWO_CONFIG", "AGIWO_SERVER", "AGIWO_API_KEY", "AGIWO_PG_BIN", "AGIWO_PG_USER", "AGIWO_TEST_DATABASE_URL", "AGIWO_TRACEBACK")
#: What Kubernetes puts into the environment beside a service called `agiwo`; it is nobody's setting.
_SERVICE_LINKS = re.compile(r"AGIWO_(SERVICE_\w+|PORT_\d+_\w+)")
#: And the one of them that has the name of a setting; only its value tells them apart.
_PORT_LINK = re.compile(r"(tcp|udp|sctp)://.*")

#: Settings whose values are told in no message.
_HIDDEN = (
    "database_url", "redis_url", "llm_api_key", "secret_key", "previous_secret_keys", "connections", "channels", "api_keys", "hooks",
    "approval_channels", "callback_secrets",
)  # fmt: skip


class Settings(BaseSettings):
    """All settings with their defaults. Spans are seconds; what is None has no default and is asked for where it is needed."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    database_url: SecretStr | None = None
    redis_url: SecretStr | None = None
    host: str = "127.0.0.1"
    port: int = Field(8700, ge=1, le=65535)
    public_url: str | None = Field(None, pattern=r"^https?://[^\s?#]+$")
    secret_key: SecretStr | None = Field(None, min_length=32)
    workflows_dir: Path | None = None
    data_dir: Path = Path(".agiwo")
    node_name: str | None = Field(None, min_length=1, max_length=200)
    tenant: str = Field("default", min_length=1, max_length=100)
    lease: float = Field(10.0, ge=2, le=300)
    capacity: int = Field(10_000, ge=1)
    threads: int = Field(16, ge=1, le=1000)
    drain: float = Field(10.0, ge=0, le=600)
    body_within: float = Field(30.0, ge=1, le=3600)
    streams: int = Field(200, ge=1)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    tools: Annotated[tuple[str, ...], NoDecode] = ()
    tools_dir: Path | None = None
    commands_allowed: Annotated[tuple[str, ...], NoDecode] = ()
    llm_base_url: str | None = None
    llm_model: str | None = None
    llm_api_key: SecretStr | None = None
    api_keys: Annotated[tuple[ApiKeySetting, ...], NoDecode] = ()
    outbound_allow: Annotated[tuple[str, ...], NoDecode] = ()
    connections: dict[str, ConnectionSetting] = Field(default_factory=dict)
    llm_profiles: dict[str, dict[str, Any]] = Field(default_factory=dict)
    breakers: dict[str, BreakerSetting] = Field(default_factory=dict)
    rates: dict[str, RateSetting] = Field(default_factory=dict)
    channels: dict[str, ChannelSetting] = Field(default_factory=dict)
    roles: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    hooks: dict[str, HookSetting] = Field(default_factory=dict)
    approval_channels: dict[str, ApprovalChannelSetting] = Field(default_factory=dict)
    callback_secrets: dict[str, SecretStr] = Field(default_factory=dict)
    previous_secret_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    deliveries_kept: float = Field(7 * 86_400.0, ge=0)
    dead_letters_kept: float = Field(90 * 86_400.0, ge=0)

    @field_validator("tools", "commands_allowed", "outbound_allow", "previous_secret_keys", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return tuple(word for word in re.split(r"[\s,]+", value) if word) if isinstance(value, str) else value

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and (problem := redis_url_problem(value.get_secret_value())) is not None:
            raise ValueError(problem)
        return value

    @field_validator("outbound_allow")
    @classmethod
    def _reachable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        Guard(value)
        return value

    @field_validator("api_keys", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> Any:
        """In the environment: the keys themselves, separated by commas; each is an operator's."""
        if not isinstance(value, str):
            return value
        texts = [text.strip() for text in value.split(",") if text.strip()]
        if any(len(text) < 16 for text in texts):
            raise ValueError("a key has at least 16 characters")
        return tuple(
            ApiKeySetting(name=f"key-{number}", sha256=hashlib.sha256(text.encode()).hexdigest()) for number, text in enumerate(texts, 1)
        )

    @property
    def url(self) -> str:
        """Where people reach the service; the only source of links."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def node(self) -> str:
        """The node's name: the same after a restart, so that it takes over what its earlier incarnation left at once."""
        return self.node_name or f"{socket.gethostname()}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        return self.host in LOOPBACK or self.host.startswith("127.")

    @property
    def names(self) -> frozenset[str]:
        """The names under which people on this machine, and through the public address, reach the service."""
        public = urlsplit(self.public_url or "").hostname
        return frozenset({*LOOPBACK, self.host, *([public] if public else [])})

    def breaker_policies(self) -> dict[str, dict[str, Any]]:
        """What was set for the circuit breakers, by the name of the tool."""
        return {name: one.model_dump(exclude_none=True) for name, one in self.breakers.items()}

    def profiles(self) -> dict[str, dict[str, Any]]:
        """The model profiles; AGIWO_LLM_BASE_URL and AGIWO_LLM_MODEL make the one called `default`."""
        if self.llm_base_url is None:
            return self.llm_profiles
        if self.llm_model is None:
            raise SettingsRefused("AGIWO_LLM_BASE_URL is set but AGIWO_LLM_MODEL is not: which model shall be asked?")
        default: dict[str, Any] = {"base_url": self.llm_base_url, "model": self.llm_model}
        if self.llm_api_key is not None:
            default["api_key"] = self.llm_api_key.get_secret_value()
        return {**self.llm_profiles, "default": default}


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """What templates and tools find under `secrets`: AGIWO_SECRET_NAME is `NAME`; the signing key is no such secret."""
    return {
        name.removeprefix(SECRET_PREFIX): value
        for name, value in environment.items()
        if name.startswith(SECRET_PREFIX) and name not in (SECRET_PREFIX, f"{PREFIX}SECRET_KEY")
    }


def load_settings(config: Path | None = None, **given: Any) -> Settings:
    """The settings: what is `given` (None counts as not given), else the environment, else the file (AGIWO_CONFIG unless `config`).

    Raises SettingsRefused with one problem for each mistake, with its line and column or the name of its variable.
    """
    path = config or (Path(named) if (named := os.environ.get("AGIWO_CONFIG")) else None)
    document, places = _read(path) if path is not None else ({}, {})
    problems = [*_unknown_variables(), *_unknown_keys(document, places)]

    class Bound(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            if isinstance(env_settings, EnvSettingsSource) and _PORT_LINK.fullmatch(env_settings.env_vars.get("agiwo_port") or ""):
                env_settings.env_vars = {name: value for name, value in env_settings.env_vars.items() if name != "agiwo_port"}
            return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=document)

    known = {name: value for name, value in given.items() if value is not None}
    try:
        settings = Bound(**known)
    except ValidationError as exc:
        problems += [_problem(error, known, document, places) for error in exc.errors(include_url=False)]
    except ValueError as exc:  # a variable that should hold JSON and does not
        problems.append(Problem("wrong_value", str(exc)))
    if problems:
        raise SettingsRefused(_told(problems, path), problems=problems)
    return settings


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Place]]:
    try:
        reading = read_text(path.read_bytes())
    except OSError as exc:
        raise SettingsRefused(f"the configuration {path} cannot be read: {exc.strerror}") from None
    if reading.problems:
        raise SettingsRefused(_told(reading.problems, path), problems=reading.problems)
    if reading.value is None:
        return {}, {}
    if not isinstance(reading.value, dict):
        raise SettingsRefused(f"the configuration {path} is no mapping of settings")
    return reading.value, reading.places


def _unknown_keys(document: dict[str, Any], places: dict[str, Place]) -> list[Problem]:
    found = [key for key in document if key not in Settings.model_fields]
    out = []
    for key in found:
        del document[key]
        near = nearest(key, Settings.model_fields)
        at = pointer(key)
        place = places.get(at)
        hint = f"; did you mean `{near}`?" if near else ""
        out.append(
            Problem(
                "unknown_key", f"there is no setting `{key[:80]}`{hint}", at, place.key_line if place else None,
                place.key_column if place else None, nearest=near,
            )
        )  # fmt: skip
    return out


def _unknown_variables() -> list[Problem]:
    known = {*(PREFIX + name.upper() for name in Settings.model_fields), *_OTHERS}
    out = []
    for name in sorted(os.environ):
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper in known or upper.startswith(SECRET_PREFIX) or _SERVICE_LINKS.fullmatch(upper):
            continue
        near = nearest(upper, known)
        hint = f"; did you mean {near}?" if near else ""
        out.append(Problem("unknown_key", f"there is no setting {name}{hint}", name, nearest=near))
    return out


def _problem(error: Any, given: Mapping[str, Any], document: Mapping[str, Any], places: dict[str, Place]) -> Problem:
    first = str(error["loc"][0]) if error["loc"] else ""
    message = complaint(error, _names_at(error["loc"]))
    if first in given:
        return Problem("wrong_value", message, f"--{first.replace('_', '-')}")
    if os.environ.get(variable := PREFIX + first.upper()):
        return Problem("wrong_value", message, variable)
    at = pointer(*error["loc"])
    place = next(locate(places, at), None) if first in document and places else None
    # The value may be a secret: only its place is told, and plain words.
    plain = isinstance(error.get("input"), str | int | float | bool) and first not in _HIDDEN
    found = shown(error["input"]) if plain else None
    return Problem("wrong_value", message, at, place.line if place else None, place.column if place else None, found=found)


def _names_at(loc: tuple[int | str, ...]) -> Collection[str]:
    """The names that may stand at the end of a place in the file; none where the file's author chooses them."""
    field = Settings.model_fields.get(str(loc[0])) if loc else None
    parts = [] if field is None else [one for one in get_args(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    for part in parts:
        model: type[BaseModel] | None = part
        for name in loc[2:-1]:  # past the setting and the name or number of its part
            inner = None if model is None else model.model_fields.get(str(name))
            found = () if inner is None else (inner.annotation, *get_args(inner.annotation))
            model = next((one for one in found if isinstance(one, type) and issubclass(one, BaseModel)), None)
        return () if model is None else model.model_fields
    return ()


def _told(problems: list[Problem], path: Path | None) -> str:
    lines = []
    for problem in problems:
        at = f"{path}:{problem.line}:{problem.column}: " if problem.line is not None else ""
        where = f"{problem.pointer}: " if problem.pointer and problem.pointer not in problem.message else ""
        lines.append(f"{at}{where}{problem.message}")
    return "\n".join(["the settings cannot be used:", *lines])


def own_secret_key(data_dir: Path) -> str:
    """The signing key of a service on the embedded database: made once and kept in the data folder, for its owner's eyes only.

    Raises SettingsRefused if the folder cannot be used.
    """
    path = data_dir / "secret_key"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"secret_key.{os.getpid()}")
        if not path.exists():
            opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(opened, secrets.token_urlsafe(48).encode())
                os.fsync(opened)
            finally:
                os.close(opened)
            try:
                os.link(part, path)  # fails if another process was quicker; then its key counts
            except FileExistsError:
                pass
            finally:
                part.unlink()
        return path.read_text().strip()
    except OSError as exc:
        raise SettingsRefused(f"the data folder {data_dir} cannot be used: {exc.strerror} ({exc.filename})") from None
