"""Standard Webhooks: signing what goes out, checking what comes in, and the secrets for both.

It keeps no message; that one is not taken twice is seen to by whoever acts on it.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook, WebhookVerificationError

from agiwo.errors import NetworkError, PermissionDeniedError, StepError, ValidationError
from agiwo.outbound.http import HttpCalls, for_status
from agiwo.outbound.retry_after import retry_after
from agiwo.ports.notifier import Undeliverable

PREFIX = "whsec_"
#: Bytes of a secret, and what may come from elsewhere.
_BYTES, _LEAST, _MOST = 32, 24, 64
#: Seconds for a whole delivery, and bytes of an answer that are read.
WITHIN, MOST_READ = 20.0, 64_000
LONGEST_ID = 255
#: What the library says of a time, in our words.
_TIMES = {
    "Invalid Signature Headers": "webhook-timestamp is no number of seconds since 1970",
    "Message timestamp too old": "webhook-timestamp is more than five minutes ago: sign each try anew, and look at the clocks",
    "Message timestamp too new": "webhook-timestamp is more than five minutes ahead: look at the clocks",
}


def new_secret() -> str:
    """A signing secret as it is shown."""
    return PREFIX + b64encode(secrets.token_bytes(_BYTES)).decode()


def derived_secret(key: bytes, *purpose: str) -> str:
    """The secret for one purpose, always the same under the same key."""
    return PREFIX + b64encode(hmac.new(key, "\x00".join(("webhook secret", *purpose)).encode(), hashlib.sha256).digest()).decode()


def check_secret(text: str) -> str:
    """The secret, if it is one: `whsec_` and the Base64 of 24 to 64 bytes. Raises ValueError, which does not repeat it."""
    try:
        raw = b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith(PREFIX) or not _LEAST <= len(raw) <= _MOST:
        raise ValueError(f"expected {PREFIX} and the Base64 of {_LEAST} to {_MOST} bytes")
    return text


def signed(id: str, at: float, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """The headers of a message; `at` in seconds since 1970, `keys` are all secrets that count at present."""
    when = datetime.fromtimestamp(int(at), UTC)
    signatures = [Webhook(key).sign(id, when, body.decode()) for key in keys]
    return {"webhook-id": id, "webhook-timestamp": str(int(at)), "webhook-signature": " ".join(signatures)}


class NotSigned(Exception):
    """Nobody whom we know has signed this message; it says what to look at."""


def signer_of(headers: Mapping[str, str], body: bytes, keys: Sequence[str]) -> str:
    """The message's id, if one of the keys signed it within the last five minutes. Raises NotSigned."""
    given = {name: headers.get(name, "") for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    if missing := [name for name, value in given.items() if not value]:
        raise NotSigned(f"the message is not signed: {', '.join(missing)} not there")
    if len(given["webhook-id"]) > LONGEST_ID or len(given["webhook-signature"]) > 4096:
        raise NotSigned(f"webhook-id has at most {LONGEST_ID} characters, webhook-signature 4096")
    why = "no secret of this address made the signature; it is made over webhook-id, webhook-timestamp and the body, byte by byte"
    for key in keys:
        try:
            Webhook(key).verify(body, given, json_parse=False)
        except (WebhookVerificationError, ValueError) as exc:  # a signature or a body that is no text at all
            why = _TIMES.get(str(exc), why)
            continue
        return given["webhook-id"]
    raise NotSigned(why)


async def post_signed(
    calls: HttpCalls, url: str, id: str, at: float, body: bytes, keys: Sequence[str], headers: Mapping[str, str] | None = None
) -> int:
    """Send one message; gives the status, which is one of success. Redirects are not followed.

    Raises StepError if it may succeed later, Undeliverable if it never will: 410, or an address that the guard refuses.
    """
    sent = {"user-agent": "agiwo-webhooks/1", **(headers or {}), "content-type": "application/json", **signed(id, at, body, keys)}
    try:
        answer = await calls.call("POST", url, within=WITHIN, headers=sent, body=body, max_body=MOST_READ, cut=True)
    except (PermissionDeniedError, ValidationError) as exc:
        raise Undeliverable(exc.message, type=exc.type) from None
    if 200 <= answer.status < 300:
        return answer.status
    if answer.status == 410:
        raise Undeliverable("the endpoint says that it is gone (410)", status=410)
    if answer.status < 400:
        raise NetworkError(f"the endpoint answered {answer.status}; redirects are not followed", status=answer.status)
    failed = for_status(answer.status)
    raise StepError(failed.message, type=failed.type, status=answer.status, retry_after=retry_after(answer.headers, at))
