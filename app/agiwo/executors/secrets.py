"""Lends secrets to one call and takes them out of whatever comes back.

It keeps none beyond the call, and never shows one in an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from agiwo.errors import Failure, StepError
from agiwo.template import SecretSlot, fill_secrets, mask

Lookup = Callable[[str], str]


class SecretMissing(StepError):
    """The configuration has no such secret."""

    type = "PermissionDenied"


def lookup_in(secrets: Mapping[str, str]) -> Lookup:
    """A look-up by name that says which secret is missing."""

    def lookup(name: str) -> str:
        try:
            return secrets[name]
        except KeyError:
            raise SecretMissing(f"there is no secret {name!r} in this service's configuration", not_done=True) from None

    return lookup


class Lent(Mapping[str, str]):
    """The secrets as a tool sees them; remembers which were looked at, so that they can be taken out of what it gives back."""

    __slots__ = ("_secrets", "used")

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets
        self.used: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> str:
        value = self._secrets[name]
        self.used = (*self.used, value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._secrets)

    def __len__(self) -> int:
        return len(self._secrets)

    def fill(self, arguments: Any, slots: Any) -> Any:
        """The arguments with their secrets. Raises StepError if one is missing."""
        if not slots:
            return arguments
        filled, used = fill_secrets(arguments, map(SecretSlot.from_json, slots), lookup_in(self._secrets))
        self.used = (*self.used, *used)
        return filled

    def along(self, texts: Iterable[str]) -> None:
        """Take these out of what comes back as well; they go with the call although nothing looked them up."""
        self.used = (*self.used, *texts)

    def hide(self, value: Any) -> Any:
        """The value without the secrets that were lent."""
        return mask(value, self.used) if self.used else value

    def hidden(self, failure: Failure) -> Failure:
        """The failure without the secrets that were lent."""
        if not self.used:
            return failure
        return replace(failure, message=self.hide(failure.message), details=self.hide(failure.details), cause=self.hide(failure.cause))
