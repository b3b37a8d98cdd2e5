"""Names for the states of a definition between two of its versions, and the text that carries such a name.

A version never changes once it stands, so a saved file that says the same version anew gets a name beside it: 1.0 becomes 1.0-dev.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agiwo.definition import content_hash, load
from agiwo.values import encode


def dev_name(version: str, number: int) -> str:
    """The name of the so manieth state of a version."""
    return f"{version}{'.' if '-' in version else '-'}dev.{number}"


def dev_number(version: str, name: str) -> int | None:
    """The number in a name that `dev_name` made for this version, None for any other."""
    digits = name.removeprefix(dev_name(version, 0)[:-1])
    made = digits != name and digits.isascii() and digits.isdigit() and name == dev_name(version, int(digits))
    return int(digits) if made else None


def standing(document: Mapping[str, Any], there: Mapping[str, str]) -> str | None:
    """The version under which this content stands already: its own, or the latest of its names; `there` are content hashes by version."""
    version = document["version"]
    if there.get(version) == content_hash(document):
        return str(version)
    for number in sorted(_numbers(version, there), reverse=True):
        name = dev_name(version, number)
        if there[name] == content_hash({**document, "version": name}):
            return name
    return None


def next_name(version: str, there: Iterable[str]) -> str:
    """The first name that nothing stands under and that is higher than all that do."""
    return dev_name(version, max(_numbers(version, there), default=0) + 1)


def _numbers(version: str, there: Iterable[str]) -> list[int]:
    return [number for name in there if (number := dev_number(version, name)) is not None]


def renamed(text: bytes, version: str) -> bytes:
    """The text of a sound definition with another version, all else as it was written; as plain JSON where that cannot be done."""
    loaded = load(text)
    assert isinstance(loaded.document, dict), "a sound definition is a mapping"
    wanted = {**loaded.document, "version": version}
    place = loaded.positions.get("".join(f"/{part}" for part in (*loaded.prefix, "version")))
    if place is not None:
        lines = loaded.source.splitlines(keepends=True)
        line = lines[place.line - 1]
        old = _scalar(line[place.column - 1 :])
        lines[place.line - 1] = f'{line[: place.column - 1]}"{version}"{line[place.column - 1 + len(old) :]}'
        made = "".join(lines).encode()
        if load(made).document == wanted:
            return made
    return encode(wanted).encode()


def _scalar(rest: str) -> str:
    """The scalar that a text begins with, in its quotes if it has any."""
    if rest[:1] in ("'", '"'):
        return rest[: rest.find(rest[0], 1) + 1]
    return rest.split(",")[0].split("}")[0].split(" #")[0].rstrip()
