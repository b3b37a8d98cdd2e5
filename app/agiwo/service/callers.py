"""Who calls: the tenant that every query is bound to, the principal that goes into the history, and what the roles allow.

Made at the border from a credential or a signed link; nothing here reads a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agiwo.errors import Denied, Unauthenticated

ADMIN = "admin"
#: Who may publish; who may start, end and steer instances; who may decide what names no approvers.
AUTHOR, OPERATOR, APPROVER = "author", "operator", "approver"
#: Who sees that things are and how they ended; who also sees what went in and came out. Every valid key is a viewer.
VIEWER, PAYLOAD_VIEWER = "viewer", "payload_viewer"

#: The roles that mean something by themselves; any other is one of the operator's.
ROLES = (VIEWER, PAYLOAD_VIEWER, AUTHOR, OPERATOR, APPROVER, ADMIN)

#: What each role brings along.
IMPLIED: Mapping[str, frozenset[str]] = {
    ADMIN: frozenset({AUTHOR, OPERATOR, APPROVER, PAYLOAD_VIEWER}),
    OPERATOR: frozenset({PAYLOAD_VIEWER}),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller: `principal` is `user:MAIL`, `role:NAME` or `key:NAME`, `roles` are names of roles that the credential brings along."""

    tenant: str
    principal: str
    roles: frozenset[str] = frozenset()

    def has(self, role: str) -> bool:
        """Whether the caller has this role, by itself or by another that brings it along."""
        return role == VIEWER or role in self.roles or any(role in IMPLIED.get(mine, ()) for mine in self.roles)

    def need(self, role: str) -> None:
        """Raises Denied unless the caller has this role; an admin has every one."""
        if not self.has(role):
            raise Denied(f"this needs the role {role!r}", code="role_missing", needs=role)

    @property
    def sees_payloads(self) -> bool:
        """Whether inputs, outputs, prompts and whatever else people and programs put in are shown to this caller."""
        return self.has(PAYLOAD_VIEWER)

    def may_decide(self, approvers: Sequence[str]) -> bool:
        """Whether this caller is among the approvers; where nobody is named whoever has the role `approver` is. An admin always is."""
        if ADMIN in self.roles or self.principal in approvers:
            return True
        return any(approver == f"role:{role}" for approver in approvers or (f"role:{APPROVER}",) for role in self.roles)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that may call the API: `digest` is the SHA-256 of its text in hex; the text itself is kept nowhere."""

    name: str
    digest: str
    tenant: str = "default"
    roles: tuple[str, ...] = (ADMIN,)

    @staticmethod
    def of(name: str, text: str, tenant: str = "default", roles: tuple[str, ...] = (ADMIN,)) -> ApiKey:
        """The entry for a key whose text is at hand."""
        return ApiKey(name, digest_of(text), tenant, roles)


class Credentials(Protocol):
    """What finds out who calls."""

    async def open(self) -> bool:
        """Whether there are no keys at all: everybody who can reach the service is its admin then (`serve` stays on loopback)."""
        ...

    async def caller(self, authorization: str | None) -> Caller | None:
        """Who calls with this `Authorization` header; None for nobody where keys are needed.

        Raises Unauthenticated for a credential that is not known, has expired or was revoked.
        """
        ...


class ApiKeys:
    """The configured keys."""

    def __init__(self, keys: Sequence[ApiKey] = (), tenant: str = "default") -> None:
        self._by_digest = {key.digest.lower(): Caller(key.tenant, f"key:{key.name}", frozenset(key.roles)) for key in keys}
        #: Who calls while there are no keys.
        self.nobody = Caller(tenant, "key:local", frozenset({ADMIN}))

    @property
    def configured(self) -> bool:
        return bool(self._by_digest)

    def has_name(self, tenant: str, name: str) -> bool:
        """Whether a key of this tenant has this name."""
        return any((one.tenant, one.principal) == (tenant, f"key:{name}") for one in self._by_digest.values())

    def known(self, text: str) -> Caller | None:
        """Whose key this is. Looked up by digest: the time that it takes says nothing about the text of a key."""
        return self._by_digest.get(digest_of(text))

    async def open(self) -> bool:
        return not self.configured

    async def caller(self, authorization: str | None) -> Caller | None:
        if authorization is None:
            return None if self.configured else self.nobody
        found = self.known(bearer(authorization))
        if found is None:
            raise unknown_credential()
        return found


def digest_of(text: str) -> str:
    """The SHA-256 of a key's text in hex."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def bearer(authorization: str) -> str:
    """The key in an `Authorization` header. Raises Unauthenticated for another scheme."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("the Authorization header is no Bearer credential")
    return text.strip()


def unknown_credential() -> Unauthenticated:
    return Unauthenticated("this credential is not known")
