"""Signing as Standard Webhooks has it, and secrets as they are stored."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from agiwo.clock import SystemClock
from agiwo.errors import PermissionDeniedError
from agiwo.outbound.sealing import Sealer
from agiwo.outbound.signatures import NotSigned, check_secret, derived_secret, new_secret, signed, signer_of

SHORT = "whsec_" + base64.b64encode(b"short").decode()
OLD, NEW = b"o" * 32, b"n" * 32


def refused(headers: Mapping[str, str], body: bytes, keys: Sequence[str]) -> str:
    with pytest.raises(NotSigned) as told:
        signer_of(headers, body, keys)
    return str(told.value)


def test_every_live_secret_signs_and_any_of_them_checks() -> None:
    at, body = SystemClock().now(), '{"type":"ping","ü":1}'.encode()
    first, second, other = new_secret(), new_secret(), new_secret()
    headers = signed("msg_1", at, body, [first, second])
    assert len(headers["webhook-signature"].split()) == 2
    for secret in (first, second):
        assert Webhook(secret).verify(body, headers) == {"type": "ping", "ü": 1}
        assert signer_of(headers, body, [other, secret]) == "msg_1"
    assert "no secret" in refused(headers, body, [other]) and "no secret" in refused(headers, body, [])
    assert "no secret" in refused(headers, body + b" ", [first])
    assert "no secret" in refused({**headers, "webhook-id": "msg_2"}, body, [first])
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(body, headers)


def test_a_message_of_six_minutes_ago_is_nobodys() -> None:
    secret, now = new_secret(), SystemClock().now()
    assert "five minutes ago" in refused(signed("m", now - 360, b"{}", [secret]), b"{}", [secret])
    assert "five minutes ahead" in refused(signed("m", now + 360, b"{}", [secret]), b"{}", [secret])
    assert signer_of(signed("m", now - 240, b"{}", [secret]), b"{}", [secret]) == "m"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"webhook-id": ""}, "webhook-id not there"),
        ({"webhook-timestamp": "", "webhook-signature": ""}, "webhook-timestamp, webhook-signature not there"),
        ({"webhook-id": "x" * 300}, "at most 255 characters"),
        ({"webhook-timestamp": "soon"}, "no number of seconds"),
        ({"webhook-signature": "v1,AAAA"}, "made over webhook-id, webhook-timestamp and the body"),
    ],
)
def test_a_refusal_says_what_to_look_at(wrong: dict[str, str], said: str) -> None:
    secret = new_secret()
    assert said in refused({**signed("m", SystemClock().now(), b"{}", [secret]), **wrong}, b"{}", [secret])


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_!!!", SHORT, "secret", "whsec_" + "A" * 200])
def test_what_is_no_secret_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="whsec_") as refused:
        check_secret(text)
    assert len(text) < 10 or text not in str(refused.value)


def test_a_derived_secret_is_its_tenants_own() -> None:
    a = derived_secret(OLD, "callback", "a")
    assert check_secret(a) == derived_secret(OLD, "callback", "a")
    assert len({a, derived_secret(OLD, "callback", "b"), derived_secret(NEW, "callback", "a")}) == 3


def test_a_sealed_text_opens_under_its_key_for_its_own_thing_alone() -> None:
    sealed = Sealer([OLD]).seal("whsec_x", "webhook/a/1")
    assert "whsec_x" not in sealed and sealed != Sealer([OLD]).seal("whsec_x", "webhook/a/1")
    assert Sealer([OLD]).open(sealed, "webhook/a/1") == "whsec_x"
    assert Sealer([NEW, OLD]).open(sealed, "webhook/a/1") == "whsec_x", "an older key still opens"
    with pytest.raises(PermissionDeniedError, match="belongs to something else"):
        Sealer([OLD]).open(sealed, "webhook/b/1")
    with pytest.raises(PermissionDeniedError, match="does not have"):
        Sealer([NEW]).open(sealed, "webhook/a/1")
    with pytest.raises(PermissionDeniedError):
        Sealer([OLD]).open(sealed[:-8] + "AAAAAAA=", "webhook/a/1")
    with pytest.raises(PermissionDeniedError):
        Sealer([OLD]).open("plain", "webhook/a/1")
