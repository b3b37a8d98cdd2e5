"""Messages that come in signed: decisions of approvals over a channel, and hooks that start workflows or send signals.

Who signed is found out before anything is read. A message counts once: its id is the key of what it does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from agiwo.clock import Clock
from agiwo.errors import Denied, InvalidInput, NotFound, Problem, TemplateError, Unauthenticated
from agiwo.outbound.signatures import NotSigned, signer_of
from agiwo.ports.answered import CallKey
from agiwo.ports.queries import Approval
from agiwo.service.approvals import Approvals, Verdict
from agiwo.service.callers import APPROVER, OPERATOR, Caller
from agiwo.service.signalling import Sent, Signalling
from agiwo.service.tokens import ApprovalLinks
from agiwo.service.trigger import Started, TriggerCall, Triggering
from agiwo.template import ValueTemplate
from agiwo.values import shown

#: The one name that a hook's templates may begin with.
PAYLOAD = "payload"
#: Bytes of a message.
LARGEST = 1_000_000


class Source(Protocol):
    """Where signed messages come from; any of the secrets may have signed."""

    @property
    def tenant(self) -> str: ...

    @property
    def secrets(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class StartsWorkflow:
    """A message starts a workflow; its templates are rendered over `payload`."""

    workflow: str
    version: str | None
    input: ValueTemplate
    correlation_key: ValueTemplate | None = None


@dataclass(frozen=True, slots=True)
class SendsSignal:
    """A message is a signal to one instance, or to all live ones of a correlation key; its templates are rendered over `payload`."""

    event: ValueTemplate
    payload: ValueTemplate
    correlation_key: ValueTemplate | None = None
    instance: ValueTemplate | None = None


@dataclass(frozen=True, slots=True)
class Hook:
    """An inbound hook, and what its messages do."""

    tenant: str
    secrets: tuple[str, ...]
    does: StartsWorkflow | SendsSignal


@dataclass(frozen=True, slots=True)
class ApprovalChannel:
    """A channel over which people decide: for whom it may speak (`user:MAIL`, `user:*@DOMAIN`), and with which roles these decide."""

    tenant: str
    secrets: tuple[str, ...]
    deciders: tuple[str, ...]
    roles: tuple[str, ...] = ()

    def speaks_for(self, principal: str) -> bool:
        return any(principal == one or (one.startswith("user:*@") and _is_of(principal, one[len("user:*@") :])) for one in self.deciders)


def _is_of(principal: str, domain: str) -> bool:
    name, at, found = principal.removeprefix("user:").rpartition("@")
    return principal.startswith("user:") and bool(at) and found == domain and bool(name) and "@" not in name


@dataclass(frozen=True, slots=True)
class Said:
    """A decision as a channel brings it: about the approval of that id or link, by whom."""

    verdict: Verdict
    approval: UUID | None = None
    token: str | None = None
    by: str | None = None


S = TypeVar("S", bound=Source)


class Hooks:
    """The verbs of inbound messages, over the configured hooks and channels by name."""

    def __init__(
        self,
        hooks: Mapping[str, Hook],
        channels: Mapping[str, ApprovalChannel],
        triggering: Triggering,
        signalling: Signalling,
        approvals: Approvals,
        links: ApprovalLinks,
        clock: Clock,
    ) -> None:
        self._hooks = hooks
        self._channels = channels
        self._triggering = triggering
        self._signalling = signalling
        self._approvals = approvals
        self._links = links
        self._clock = clock

    def hook_message(self, name: str, headers: Mapping[str, str], body: bytes) -> CallKey:
        """Under which key a message to a hook counts. Raises NotFound for an unknown hook, Unauthenticated for a bad signature."""
        return _signed(self._hooks, name, "hook", headers, body)

    def channel_message(self, name: str, headers: Mapping[str, str], body: bytes) -> CallKey:
        """The same for a message over a channel of approvals."""
        return _signed(self._channels, name, "channel", headers, body)

    async def take(self, name: str, message: str, payload: Any, trace_id: str) -> Started | Sent:
        """Do what the hook's messages do; the same message again does nothing more.

        Raises InvalidInput for a payload that the mapping does not take, and what `Triggering.trigger` and `Signalling.send` raise.
        """
        hook = self._hooks[name]
        caller = Caller(hook.tenant, f"key:hook.{name}", frozenset({OPERATOR}))
        if isinstance(hook.does, SendsSignal):
            return await self._signal(caller, hook.does, name, message, payload)
        return await self._start(caller, hook.does, name, message, payload, trace_id)

    async def _start(self, caller: Caller, does: StartsWorkflow, name: str, message: str, payload: Any, trace_id: str) -> Started:
        try:
            input = _rendered(does.input, payload)
            correlation = _key(does.correlation_key, payload)
        except InvalidInput as exc:
            await self._triggering.reject(caller, does.workflow, exc, version=does.version, trace_id=trace_id)
            raise
        # No caller of the API can give a key with a space in it.
        key = f"hook {name} {message}"
        call = TriggerCall(does.workflow, trace_id, input, version=does.version, correlation_key=correlation, key=key)
        return await self._triggering.trigger(caller, call)

    async def _signal(self, caller: Caller, does: SendsSignal, name: str, message: str, payload: Any) -> Sent:
        event, sent = _rendered(does.event, payload), _rendered(does.payload, payload)
        if not isinstance(event, str):
            raise _unfit(f"the event has to be a text, found {shown(event)[:100]}")
        key, instance = _key(does.correlation_key, payload), None
        if does.instance is not None:
            try:
                instance = UUID(str(_rendered(does.instance, payload)))
            except ValueError:
                raise _unfit("the instance has to be an id") from None
        elif key is None:
            raise _unfit("the correlation key is null")
        # The message's own id may be longer than that of a signal.
        id = hashlib.sha256(f"hook {name} {message}".encode()).hexdigest()
        return await self._signalling.send(
            caller,
            event=event,
            payload=sent,
            instance=instance,
            correlation_key=key if instance is None else None,
            id=id,
            channel=f"hook:{name}",
        )

    async def decide(self, name: str, said: Said) -> Approval:
        """Take a decision as whoever the channel names, if it may speak for them.

        Raises Denied for somebody else, NotFound and Gone for a link that is not ours or over, and what `Approvals.decide` raises.
        """
        channel = self._channels[name]
        by, approval, roles = said.by, said.approval, set(channel.roles)
        if said.token is not None:
            link = self._links.read(said.token, self._clock.now())
            if link.tenant != channel.tenant:
                raise NotFound("this link is not valid", code="unknown_link")
            if by is not None and by != link.principal:
                raise Denied(f"this link was made for somebody else than {shown(by[:320])}", code="not_an_approver")
            # The link proves that its own reader answers: that is as good as the page.
            by, approval, roles = link.principal, link.approval, {link.role or APPROVER}
        elif by is None or not channel.speaks_for(by):
            raise Denied(f"this channel does not speak for {shown((by or 'nobody')[:320])}", code="not_an_approver")
        if approval is None or by is None:
            raise NotFound("there is no such approval", code="approval_not_found")
        return await self._approvals.decide(Caller(channel.tenant, by, frozenset(roles)), approval, said.verdict, f"webhook:{name}")


def _signed(sources: Mapping[str, S], name: str, kind: str, headers: Mapping[str, str], body: bytes) -> CallKey:
    source = sources.get(name)
    if source is None:
        raise NotFound(f"there is no such {kind}", code=f"{kind}_not_found")
    try:
        message = signer_of(headers, body, source.secrets)
    except NotSigned as exc:
        raise Unauthenticated(str(exc), code="bad_signature") from None
    return CallKey(source.tenant, f"{kind} {name}", message)


def _rendered(template: ValueTemplate, payload: Any) -> Any:
    try:
        return template.render({PAYLOAD: payload}).value
    except TemplateError as exc:
        raise _unfit(exc.message) from None


def _key(template: ValueTemplate | None, payload: Any) -> str | None:
    value = None if template is None else _rendered(template, payload)
    if value is not None and (not isinstance(value, str) or not 1 <= len(value) <= 256):
        raise _unfit(f"the correlation key has to be a text of 1 to 256 characters, found {shown(value)[:100]}")
    return value


def _unfit(why: str) -> InvalidInput:
    problem = Problem("mapping", why[:500], "/payload")
    return InvalidInput("the payload does not fit the mapping of this hook", code="payload_invalid", problems=(problem,))
