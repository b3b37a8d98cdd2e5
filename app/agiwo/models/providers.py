"""Finds the adapter of a profile's kind and loads it only then; a vendor's client takes a second to load.

Keeps no provider: who asks for one closes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from agiwo.clock import Clock
from agiwo.errors import Unavailable
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import ModelProvider

_ADAPTERS: Mapping[str, tuple[str, str]] = {
    "openai": ("agiwo.models.openai", "OpenAIProvider"),
    "anthropic": ("agiwo.models.anthropic", "AnthropicProvider"),
}


def provider_for(profile: ModelProfile, clock: Clock | None = None) -> ModelProvider:
    """A provider for `profile`; call it at start, since it may load a vendor's client.

    Raises Unavailable if that client is not installed.
    """
    module, name = _ADAPTERS[profile.kind]
    try:
        adapter = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as exc:
        raise Unavailable(f"model profile {profile.name!r} needs the extra `{profile.kind}` (no module {exc.name})") from None
    provider: ModelProvider = adapter(profile, clock)
    return provider
