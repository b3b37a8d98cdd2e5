"""What the settings keep secret: the keys that may call, and every text that no log line may show.

It reads; what is done with them is done elsewhere.
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from agiwo.service.callers import ApiKey, ApiKeys
from agiwo.settings import Settings, secrets_of
from agiwo.wiring.webhooks import webhook_texts


def api_keys(settings: Settings) -> ApiKeys:
    """The keys that may call. Raises SettingsRefused if one stands in a variable that is not set."""
    return ApiKeys([ApiKey(key.name, key.digest(os.environ), key.tenant, key.roles) for key in settings.api_keys], tenant=settings.tenant)


def hidden_texts(settings: Settings) -> list[str]:
    """Texts that no log line may show: keys, tokens, secrets, and the passwords in URLs."""
    texts = [secret.get_secret_value() for secret in (settings.secret_key, settings.llm_api_key) if secret is not None]
    texts += secrets_of(os.environ).values()
    texts += [text.strip() for text in os.environ.get("AGIWO_API_KEYS", "").split(",")]
    texts += [os.environ.get(key.env, "") for key in settings.api_keys if key.env is not None]
    texts += webhook_texts(settings)
    given = [str(profile["api_key"]) for profile in settings.llm_profiles.values() if "api_key" in profile]
    urls = [url.get_secret_value() for url in (settings.database_url, settings.redis_url) if url is not None]
    urls += [one.url.get_secret_value() for one in settings.connections.values()]
    given += [one.url.get_secret_value() for one in settings.channels.values() if one.url is not None]
    for text in given:
        texts.append(os.environ.get(text.removeprefix("env:"), "") if text.startswith("env:") else text)
    for url in urls:
        texts += _passwords(os.environ.get(url.removeprefix("env:"), "") if url.startswith("env:") else url)
    return [text for text in dict.fromkeys(texts) if len(text) >= 4]


def _passwords(url: str) -> list[str]:
    """The password in a URL, as it stands there and as it is meant."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return [url]
    return [] if password is None else [password, unquote(password)]
