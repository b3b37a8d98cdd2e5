"""Secrets as they are stored: sealed by AES-256-GCM under a key that is derived from the service's own, whose id stands with them.

Further keys open what they sealed, so that the service's key can be changed without losing anything; only the first one seals.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from agiwo.errors import PermissionDeniedError

_FORM = "v1"
_NONCE = 12


class Sealer:
    """Seals and opens texts; `keys` are the service's secret keys, newest first."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("a secret key is needed")
        derived = [HKDF(algorithm=SHA256(), length=32, salt=None, info=b"agiwo sealed secrets").derive(key) for key in keys]
        self._boxes = {hashlib.sha256(b"id:" + key).hexdigest()[:12]: AESGCM(key) for key in derived}
        self._first = next(iter(self._boxes))

    def seal(self, text: str, about: str) -> str:
        """The text, readable only together with `about`: what belongs to one thing cannot be passed off as another's."""
        nonce = os.urandom(_NONCE)
        box = self._boxes[self._first].encrypt(nonce, text.encode(), about.encode())
        return f"{_FORM}.{self._first}.{b64encode(nonce + box).decode()}"

    def open(self, sealed: str, about: str) -> str:
        """The text. Raises PermissionDeniedError if the key that sealed it is not configured, or it was sealed for something else."""
        form, _, rest = sealed.partition(".")
        key, _, box = rest.partition(".")
        opener = self._boxes.get(key)
        if form != _FORM or opener is None:
            raise PermissionDeniedError(
                f"a stored secret was sealed under the key {key[:12]}, which this service does not have", not_done=True
            )
        raw = b64decode(box)
        try:
            return opener.decrypt(raw[:_NONCE], raw[_NONCE:], about.encode()).decode()
        except InvalidTag:
            raise PermissionDeniedError(
                "a stored secret cannot be opened: it was changed, or belongs to something else", not_done=True
            ) from None
