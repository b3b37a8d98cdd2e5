"""Secrets as marks: a rendered value holds `***` where one belongs, and a slot beside it says how to fill it in.

Nothing here keeps a secret; only the executor calls `fill_secrets`, after everything was recorded.
"""

from __future__ import annotations

import html
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

from agiwo.errors import TemplateError
from agiwo.values import JSON, encode

HIDDEN = "***"
CUT = "…"  #: stands in a message where the rest of a text was left out
_LEAST_BASE64 = 8  # characters; fewer stand in any Base64 by chance
_LEAST_CUT = 4  # characters of a secret that say something
FORMS: Mapping[str, Callable[[str], str]] = {
    "": lambda text: text,
    "html": html.escape,
    "url": lambda text: quote(text, safe=""),
}


@dataclass(frozen=True, slots=True)
class SecretName:
    """A secret by its name, and the form in which its place wants it: "" as it is, "html" escaped, "url" percent-encoded."""

    name: str
    form: str = ""


@dataclass(frozen=True, slots=True)
class Marked:
    """A text under way that contains secrets: texts and names in order."""

    parts: tuple[str | SecretName, ...]

    def hidden(self) -> str:
        """The text as it may be seen."""
        return "".join(part if isinstance(part, str) else HIDDEN for part in self.parts)


@dataclass(frozen=True, slots=True)
class SecretSlot:
    """One text of a rendered value that holds secrets: where it stands, and its parts in order."""

    pointer: str
    parts: tuple[str | SecretName, ...]

    def to_json(self) -> dict[str, Any]:
        parts: list[Any] = []
        for part in self.parts:
            if isinstance(part, str):
                parts.append(part)
            else:
                parts.append({"secret": part.name, "form": part.form} if part.form else {"secret": part.name})
        return {"pointer": self.pointer, "parts": parts}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SecretSlot:
        parts = tuple(p if isinstance(p, str) else SecretName(p["secret"], p.get("form", "")) for p in data["parts"])
        return SecretSlot(data["pointer"], parts)


def fill_secrets(rendered_value: JSON, slots: Iterable[SecretSlot], lookup: Callable[[str], str]) -> tuple[JSON, tuple[str, ...]]:
    """The value with its secrets, and the secret strings for `mask`.

    `lookup` gives a secret by name and raises what it likes if there is none. The value handed in is not changed.
    Raises TemplateError if a slot's place no longer holds what was rendered there.
    """
    secrets: dict[str, None] = {}
    for slot in slots:
        pieces: list[str] = []
        for part in slot.parts:
            if isinstance(part, str):
                pieces.append(part)
            else:
                secret = lookup(part.name)
                secrets[secret] = None
                pieces.append(FORMS[part.form](secret))
        steps = [p.replace("~1", "/").replace("~0", "~") for p in slot.pointer.split("/")[1:]]
        rendered_value = _put(rendered_value, steps, "".join(pieces), Marked(slot.parts).hidden(), slot.pointer)
    return rendered_value, tuple(secrets)


def _put(value: JSON, steps: Sequence[str], text: str, expected: str, where: str) -> JSON:
    if not steps:
        if value != expected:
            raise TemplateError(f"the secret's place {where or '(whole value)'} no longer holds the text that was rendered there")
        return text
    head, rest = steps[0], steps[1:]
    if isinstance(value, dict) and head in value:
        return {**value, head: _put(value[head], rest, text, expected, where)}
    if isinstance(value, list | tuple) and head.isdecimal() and int(head) < len(value):
        index = int(head)
        return [*value[:index], _put(value[index], rest, text, expected, where), *value[index + 1 :]]
    raise TemplateError(f"the secret's place {where} is not there any more")


def mask(value: JSON, secrets: Sequence[str]) -> JSON:
    """The value with every secret replaced by `***`, inside longer texts and keys too.

    That is also where it stands escaped (JSON, JSON in JSON, HTML, URL) or within Base64, and where only its beginning is left of it in a
    text that was cut there, as `…` tells.

    A number that is written like a secret is replaced as well. What holds no secret is handed on, not copied.
    """
    needles: set[str] = set()
    for secret in secrets:
        if secret:
            needles |= _forms(secret)
    if not needles:
        return value
    # Longest first, so that a secret that contains another one goes as a whole.
    return _mask(value, sorted(needles, key=lambda n: (-len(n), n)))


def _forms(secret: str) -> set[str]:
    """A secret as others write it."""
    out = {secret, html.escape(secret), quote(secret, safe=""), quote(secret), quote_plus(secret)}
    for escaped in (True, False):
        once = json.dumps(secret, ensure_ascii=escaped)[1:-1]
        out |= {once, json.dumps(once, ensure_ascii=escaped)[1:-1]}
    raw = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        # Wherever it begins in a longer text, all its characters but those at the edges are the same.
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        if last - first >= _LEAST_BASE64:
            padded = bytes(before) + raw
            out |= {b64encode(padded).decode()[first:last], urlsafe_b64encode(padded).decode()[first:last]}
    return out


def _mask(value: JSON, needles: Sequence[str]) -> JSON:
    if isinstance(value, str):
        for needle in needles:
            if needle in value:
                value = value.replace(needle, HIDDEN)
        return _mask_cut(value, needles) if CUT in value else value
    if isinstance(value, dict):
        pairs = [(_mask(k, needles), _mask(v, needles)) for k, v in value.items()]
        return dict(pairs) if any(k is not k0 or v is not value[k0] for (k, v), k0 in zip(pairs, value, strict=True)) else value
    if isinstance(value, list | tuple):
        items = [_mask(item, needles) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if value is None or isinstance(value, bool):
        return value
    return HIDDEN if encode(value) in needles else value


def _mask_cut(text: str, needles: Sequence[str]) -> str:
    """The text without beginnings of secrets at places where something was cut off."""
    head, *rest = text.split(CUT)
    out = [head]
    for part in rest:
        before = out[-1]
        for needle in needles:
            longest = min(len(needle) - 1, len(before))
            found = next((n for n in range(longest, _LEAST_CUT - 1, -1) if before.endswith(needle[:n])), 0)
            if found:
                out[-1] = before = before[:-found] + HIDDEN
        out.append(part)
    return CUT.join(out)
