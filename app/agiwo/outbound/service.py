"""A connection of kind `http` as it is used: its base URL, and the headers that it sends, whose secrets are looked up at each call.

It must not keep a secret or put one into an error.
"""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from agiwo.errors import PermissionDeniedError, ValidationError
from agiwo.outbound.connections import Close, ConnectionSpec
from agiwo.outbound.guard import Guard
from agiwo.outbound.http import HttpCalls
from agiwo.values import shown

HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?//")
#: Headers that the client writes itself; another value would make two readers of a message see two messages.
OWN_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "expect")
)


@dataclass(frozen=True, slots=True)
class HttpService:
    """What the configuration says of one HTTP service: `headers` from name to a text or `{secret: NAME}`, `auth` to say who calls.

    `auth` is `{bearer: NAME}` or `{basic: {user: USER, password: NAME}}`, where NAME is that of a secret.
    """

    name: str
    base: str
    headers: Mapping[str, str | Mapping[str, str]]
    auth: Mapping[str, Any]
    trusted: ssl.SSLContext | None

    @staticmethod
    def of(spec: ConnectionSpec) -> HttpService:
        """Raises ValidationError that names the connection and what is wrong with it."""

        def wrong(what: str) -> ValidationError:
            return ValidationError(f"the connection {spec.name!r}: {what}", not_done=True)

        if unknown := sorted(set(spec.options) - {"headers", "auth", "ca_file"}):
            raise wrong(f"there is no option {shown(unknown[0])}; there are auth, ca_file, headers")
        try:
            parts = Guard().check_url(spec.url)
        except (ValidationError, PermissionDeniedError) as exc:
            raise wrong(f"its URL cannot be used: {exc.message}") from None
        if parts.query or parts.fragment:
            raise wrong("its URL has a query or a fragment; expected a base address")
        headers, auth = spec.options.get("headers", {}), spec.options.get("auth", {})
        if not isinstance(headers, Mapping) or not all(_is_header(name, value) for name, value in headers.items()):
            raise wrong("`headers` has to be a mapping from names to texts or {secret: NAME}, without those that the client writes itself")
        if not isinstance(auth, Mapping) or (auth and not _is_auth(auth)):
            raise wrong("`auth` has to be {bearer: NAME} or {basic: {user: USER, password: NAME}}, NAME being that of a secret")
        trusted = None
        if "ca_file" in spec.options:
            try:
                trusted = ssl.create_default_context(cafile=spec.options["ca_file"])
            except (OSError, TypeError, ValueError):
                raise wrong("`ca_file` cannot be read as certificates") from None
        return HttpService(spec.name, spec.url.rstrip("/"), headers, auth, trusted)

    def address(self, path: str) -> str:
        """The URL of a path below the base; raises ValidationError if it would lead elsewhere."""
        bare = re.split(r"[?#]", path, maxsplit=1)[0]
        if _ABSOLUTE.match(path):
            raise ValidationError(f"the connection {self.name!r} has its own address: give a path below it", not_done=True)
        if any(unquote(part) in (".", "..") or "\\" in unquote(part) for part in bare.split("/")):
            raise ValidationError(f"the path leads out of the connection {self.name!r}", not_done=True)
        return f"{self.base}/{path.removeprefix('/')}" if path and not path.startswith("?") else f"{self.base}{path}"

    def sent(self, secrets: Mapping[str, str]) -> dict[str, str]:
        """The headers with their secrets, names in small letters; raises PermissionDeniedError if a secret is missing or no header."""
        out = {
            name.lower(): value if isinstance(value, str) else self._secret(secrets, value["secret"])
            for name, value in self.headers.items()
        }
        return {**out, **authorization(self.auth, secrets, f"the connection {self.name!r}")}

    def _secret(self, secrets: Mapping[str, str], name: str) -> str:
        return _secret(secrets, name, f"the connection {self.name!r}")


def authorization(auth: Mapping[str, Any], secrets: Mapping[str, str], whose: str) -> dict[str, str]:
    """The header that says who calls, for `{bearer: NAME}` or `{basic: {user: USER, password: NAME}}`; none for {}.

    Raises PermissionDeniedError, which names `whose` secret it is, if the secret is missing or no header.
    """
    if "bearer" in auth:
        return {"authorization": f"Bearer {_secret(secrets, auth['bearer'], whose)}"}
    if "basic" not in auth:
        return {}
    who = auth["basic"]
    pair = f"{who['user']}:{_secret(secrets, who['password'], whose, any_text=True)}"
    return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _secret(secrets: Mapping[str, str], name: str, whose: str, *, any_text: bool = False) -> str:
    try:
        value = secrets[name]
    except KeyError:
        message = f"{whose} needs the secret {name!r}, which is not in this service's configuration"
        raise PermissionDeniedError(message, not_done=True) from None
    if not any_text and not HEADER_VALUE.fullmatch(value):
        raise PermissionDeniedError(f"the secret {name!r} cannot be sent in a header", not_done=True)
    return value


def open_service(spec: ConnectionSpec, guard: Guard) -> tuple[tuple[HttpService, HttpCalls], Close]:
    """The service of a connection and the calls to it, which may reach its base address besides what the guard lets through."""
    service = HttpService.of(spec)
    calls = HttpCalls(guard.allowing(service.base), service.trusted)
    return (service, calls), calls.close


def _is_header(name: Any, value: Any) -> bool:
    if not isinstance(name, str) or not HEADER.fullmatch(name) or name.lower() in OWN_HEADERS:
        return False
    if isinstance(value, Mapping):
        return set(value) == {"secret"} and isinstance(value["secret"], str)
    return isinstance(value, str) and HEADER_VALUE.fullmatch(value) is not None


def _is_auth(auth: Mapping[str, Any]) -> bool:
    if set(auth) == {"bearer"}:
        return isinstance(auth["bearer"], str)
    who = auth.get("basic")
    return (
        set(auth) == {"basic"}
        and isinstance(who, Mapping)
        and set(who) == {"user", "password"}
        and all(isinstance(v, str) for v in who.values())
    )
