"""What stands behind webhooks in both directions: the keys that seal and derive secrets, who delivers, and which messages are taken.

It reads settings and refuses at start what cannot work; it sends and takes nothing itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from agiwo.clock import Clock
from agiwo.engine.telling import CALLBACK, WEBHOOK
from agiwo.errors import TemplateError
from agiwo.outbound.http import HttpCalls
from agiwo.outbound.sealing import Sealer
from agiwo.outbound.signatures import check_secret, derived_secret
from agiwo.ports.deliveries import Deliveries
from agiwo.ports.notifier import Notifier
from agiwo.ports.webhooks import WebhookStore
from agiwo.service.hooks import PAYLOAD, ApprovalChannel, Hook, SendsSignal, StartsWorkflow
from agiwo.service.instances import Instances
from agiwo.service.services import WebhookParts
from agiwo.service.webhook_notices import CallbackNotices, WebhookNotices
from agiwo.settings import Settings
from agiwo.settings.parts import HookSetting, SettingsRefused
from agiwo.template import TemplateErrors, ValueTemplate, compile_value


def secret_keys(settings: Settings, first: str) -> list[bytes]:
    """The service's secret keys, newest first: what older ones signed or sealed is still taken."""
    return [first.encode(), *(key.get_secret_value().encode() for key in settings.previous_secret_keys)]


def callback_secrets(settings: Settings, first: str) -> Callable[[str], str]:
    """The secret of a tenant that signs what goes to a `callback_url`: as configured, else derived from the service's secret key.

    Raises SettingsRefused for one that cannot be used.
    """
    given = {tenant: _secret(text.get_secret_value(), f"callback_secrets.{tenant}") for tenant, text in settings.callback_secrets.items()}
    return lambda tenant: given.get(tenant) or derived_secret(first.encode(), "callback", tenant)


def webhook_notifiers(parts: WebhookParts, instances: Instances, calls: HttpCalls, clock: Clock) -> dict[str, Notifier]:
    """Who delivers events and callbacks, by the kind of the outbox row."""
    return {
        WEBHOOK: WebhookNotices(parts.store, parts.sealer, calls, clock),
        CALLBACK: CallbackNotices(instances, parts.callback_secret, calls, clock),
    }


def webhook_parts(settings: Settings, first: str, store: WebhookStore, deliveries: Deliveries) -> WebhookParts:
    """All that the services need of webhooks. Raises SettingsRefused."""
    return WebhookParts(
        store,
        deliveries,
        Sealer(secret_keys(settings, first)),
        callback_secrets(settings, first),
        inbound_hooks(settings),
        approval_channels(settings),
    )


def inbound_hooks(settings: Settings) -> dict[str, Hook]:
    """The hooks as configured. Raises SettingsRefused for a secret or a template that cannot be used."""
    return {
        name: Hook(one.tenant, tuple(_secret(text, f"hooks.{name}.secret") for text in one.secrets), _purpose(one, f"hooks.{name}"))
        for name, one in settings.hooks.items()
    }


def _purpose(one: HookSetting, place: str) -> StartsWorkflow | SendsSignal:
    def template(source: object, name: str) -> ValueTemplate:
        return _template(source, f"{place}.{name}")

    if one.signal is not None:
        key, instance = one.signal.correlation_key, one.signal.instance
        return SendsSignal(
            template(one.signal.event, "signal.event"),
            template(one.signal.payload, "signal.payload"),
            None if key is None else template(key, "signal.correlation_key"),
            None if instance is None else template(instance, "signal.instance"),
        )
    key = one.correlation_key
    return StartsWorkflow(
        one.workflow or "", one.version, template(one.input, "input"), None if key is None else template(key, "correlation_key")
    )


def approval_channels(settings: Settings) -> dict[str, ApprovalChannel]:
    """The channels over which decisions come in. Raises SettingsRefused for a secret that cannot be used."""
    return {
        name: ApprovalChannel(
            one.tenant, tuple(_secret(text, f"approval_channels.{name}.secret") for text in one.secrets), one.deciders, one.roles
        )
        for name, one in settings.approval_channels.items()
    }


def webhook_texts(settings: Settings) -> list[str]:
    """Texts of these settings that no log line may show."""
    texts = [key.get_secret_value() for key in settings.previous_secret_keys]
    for given in (
        (text.get_secret_value() for text in settings.callback_secrets.values()),
        (text for hook in settings.hooks.values() for text in hook.secrets),
        (text for channel in settings.approval_channels.values() for text in channel.secrets),
    ):
        texts += [os.environ.get(text.removeprefix("env:"), "") if text.startswith("env:") else text for text in given]
    return texts


def _secret(text: str, place: str) -> str:
    found = text
    if text.startswith("env:"):
        variable = text.removeprefix("env:")
        found = os.environ.get(variable, "")
        if not found:
            raise SettingsRefused(f"the settings cannot be used: {place} is to stand in the variable {variable}, which is not set")
    try:
        return check_secret(found)
    except ValueError as exc:
        raise SettingsRefused(f"the settings cannot be used: {place} is no secret of a webhook: {exc}") from None


def _template(source: object, place: str) -> ValueTemplate:
    try:
        made = compile_value(source, place=place)
    except TemplateErrors as exc:
        raise SettingsRefused("the settings cannot be used:\n" + "\n".join(error.message for error in exc.errors)) from None
    except TemplateError as exc:
        raise SettingsRefused(f"the settings cannot be used:\n{exc.message}") from None
    others = sorted({read.root for read in made.reads} - {PAYLOAD})
    if others:
        raise SettingsRefused(f"the settings cannot be used: {place} reads `{others[0]}`; only `{PAYLOAD}` is there")
    return made
