"""Signed texts that go out and come back: the links of approvals, and the cursors of lists.

A token proves that we made it and for whom; it holds no secret and decides nothing by itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agiwo.errors import Gone, InvalidInput, NotFound, ValueRefused
from agiwo.values import canonical, decode_strict

_MAC_BYTES = 32
_LONGEST = 4096


class Signer:
    """Signs and opens small JSON values with HMAC-SHA256; the first key signs, all of them open, so that keys rotate without downtime."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("a signing key of at least 16 bytes is needed")
        self._keys = tuple(keys)

    def sign(self, purpose: str, value: Any) -> str:
        """A token, safe in a URL; `purpose` keeps the token of one use from being taken for another."""
        body = canonical(value)
        return _text(_mac(self._keys[0], purpose, body) + body)

    def open(self, purpose: str, token: str) -> Any | None:
        """The value that was signed for this purpose; None if this is no token of ours."""
        raw = _bytes(token)
        if raw is None or len(raw) <= _MAC_BYTES:
            return None
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not any(hmac.compare_digest(mac, _mac(key, purpose, body)) for key in self._keys):
            return None
        try:
            return decode_strict(body)
        except ValueRefused:
            return None


def _mac(key: bytes, purpose: str, body: bytes) -> bytes:
    return hmac.new(key, purpose.encode() + b"\x00" + body, hashlib.sha256).digest()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(token: str) -> bytes | None:
    if len(token) > _LONGEST or not token.isascii():
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        return None
    # Only the one spelling that we hand out counts: base64 has others for the same bytes.
    return raw if _text(raw) == token else None


@dataclass(frozen=True, slots=True)
class Link:
    """What an approval link says: this matter, for this person (as a member of `role`, if any), until then (seconds since 1970)."""

    tenant: str
    approval: UUID
    principal: str
    expires_at: float
    role: str | None = None


class ApprovalLinks:
    """Makes and reads approval links; `public_url` is the configured address of the service, never that of a request."""

    def __init__(self, signer: Signer, public_url: str) -> None:
        self._signer = signer
        self._public_url = public_url.rstrip("/")

    def mint(self, link: Link) -> str:
        """The token for one recipient."""
        return self._signer.sign("approval", [link.tenant, str(link.approval), link.principal, int(link.expires_at), link.role])

    def url(self, link: Link) -> str:
        """The address of the approval page for one recipient."""
        return f"{self._public_url}/approve/{self.mint(link)}"

    def read(self, token: str, now: float) -> Link:
        """What a token says. Raises NotFound if it is not ours, Gone if its time is over."""
        value = self._signer.open("approval", token)
        if value is None:
            raise NotFound("this link is not valid", code="unknown_link")
        tenant, approval, principal, expires_at, role = value
        if now >= expires_at:
            raise Gone("this link has expired", code="link_expired")
        return Link(tenant, UUID(approval), principal, float(expires_at), role)


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a callback's address says: the answer of this run is awaited until then (seconds since 1970); `attempt` handed it out."""

    tenant: str
    instance: UUID
    path: str
    attempt: int
    expires_at: float


class CallbackLinks:
    """Makes and reads the addresses at which calls are answered later; `public_url` is the configured address of the service."""

    def __init__(self, signer: Signer, public_url: str) -> None:
        self._signer = signer
        self._public_url = public_url.rstrip("/")

    def url(self, awaited: Awaited) -> str:
        """The address for the result; `/fail` and `/heartbeat` below it are for a failure and for a sign of life."""
        said = [awaited.tenant, str(awaited.instance), awaited.path, awaited.attempt, int(awaited.expires_at)]
        token = self._signer.sign("callback", said)
        return f"{self._public_url}/v1/callbacks/{token}"

    def read(self, token: str, now: float) -> Awaited:
        """What a token says. Raises NotFound if it is not ours, Gone if its time is over."""
        value = self._signer.open("callback", token)
        if value is None:
            raise NotFound("this callback address is not valid", code="unknown_callback")
        tenant, instance, path, attempt, expires_at = value
        if now >= expires_at:
            raise Gone("the time for this answer is over", code="callback_expired")
        return Awaited(tenant, UUID(instance), path, attempt, float(expires_at))


class Cursors:
    """Places in lists, bound to the tenant and the list that they were handed out for."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def at(self, tenant: str, listed: str, place: Any) -> str:
        return self._signer.sign("cursor", [tenant, listed, place])

    def place(self, tenant: str, listed: str, cursor: str | None) -> Any | None:
        """The place that a cursor stands for, None for the beginning.

        Raises InvalidInput for a cursor that was not handed out for this list and tenant.
        """
        if cursor is None:
            return None
        value = self._signer.open("cursor", cursor)
        if value is None or value[:2] != [tenant, listed]:
            raise InvalidInput("`cursor` was not handed out for this list", code="bad_cursor")
        return value[2]
