"""Who calls: the tenant that every query is bound to, and the principal that goes into the history.

Made at the border from a credential or a signed link; nothing here reads a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from agiwo.errors import Denied, Unauthenticated

ADMIN = "admin"
#: Who may publish; who may start, end and steer instances; who may decide what names no approvers.
AUTHOR, OPERATOR, APPROVER = "author", "operator", "approver"


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller: `principal` is `user:MAIL`, `role:NAME` or `key:NAME`, `roles` are names of roles that the credential brings along."""

    tenant: str
    principal: str
    roles: frozenset[str] = frozenset()

    def need(self, role: str) -> None:
        """Raises Denied unless the caller has this role; an admin has every one."""
        if role not in self.roles and ADMIN not in self.roles:
            raise Denied(f"this needs the role {role!r}", code="role_missing", needs=role)

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
        return ApiKey(name, hashlib.sha256(text.encode()).hexdigest(), tenant, roles)


class ApiKeys:
    """The configured keys; without any, everybody who can reach the service is its operator (`serve` then stays on loopback)."""

    def __init__(self, keys: Sequence[ApiKey] = (), tenant: str = "default") -> None:
        self._by_digest = {key.digest.lower(): Caller(key.tenant, f"key:{key.name}", frozenset(key.roles)) for key in keys}
        self._nobody = Caller(tenant, "key:local", frozenset({ADMIN}))

    @property
    def configured(self) -> bool:
        return bool(self._by_digest)

    def caller(self, authorization: str | None) -> Caller | None:
        """Who calls with this `Authorization` header; None for nobody, which only matters while keys are configured.

        Raises Unauthenticated for a credential that is not known.
        """
        if authorization is None:
            return None if self._by_digest else self._nobody
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated("the Authorization header is no Bearer credential")
        # Looked up by digest: the time that a look-up takes says nothing about the text of a key.
        found = self._by_digest.get(hashlib.sha256(text.strip().encode("utf-8", "replace")).hexdigest())
        if found is None:
            raise Unauthenticated("this credential is not known")
        return found
