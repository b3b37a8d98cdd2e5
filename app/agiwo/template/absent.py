"""Names that are not there, and the one way in which a template walks into a value.

Only JSON values and declared namespaces can be entered; no attribute of a Python object is ever looked at.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from agiwo.errors import TemplateError
from agiwo.values import kind_of

Path = tuple[str | int, ...]
Scope = Mapping[str, object]

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Absent:
    """A name that is not there: `what` it is called, `why` it has no value, and the names `known` at that place."""

    what: str
    why: str = ""
    known: tuple[str, ...] = ()

    def message(self) -> str:
        """Say which name is missing, why, and what exists there."""
        text = f"`{self.what}` is not there"
        if self.why:
            text += f": {self.why}"
        known = [name[:80] for name in self.known[:_SHOWN]]
        if known:
            holder = self.what.rpartition(".")[0]
            text += f"; {'`' + holder + '` has' if holder else 'there is'}: {', '.join(known)}"
            if len(self.known) > _SHOWN:
                text += ", …"
            near = nearest(self.what.rpartition(".")[2], self.known)
            if near:
                text += f" (did you mean `{near}`?)"
        return text


class Namespace(Protocol):
    """An object of the scope that is resolved only as far as a template reads it."""

    def member(self, name: str) -> object:
        """The JSON value, Namespace or Absent of that name."""

    def members(self) -> tuple[str, ...]:
        """The names that exist, for error messages."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a wrong one, if any is; looks at the first 200 names of at most 64 characters."""
    candidates = [k for _, k in zip(range(200), known, strict=False) if len(k) <= 64]
    found = difflib.get_close_matches(name[:64], candidates, n=1, cutoff=0.6)
    return found[0] if found else None


def path_text(root: str, path: Iterable[str | int]) -> str:
    """A path as an author writes it: steps.fetch.output, input.rows[0], input['a-b']."""
    text = root
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if part.isidentifier() else f"['{part}']"
    return text


def is_namespace(value: object) -> bool:
    """Whether a value of the scope is a namespace (neither JSON nor absent)."""
    return value is not None and not isinstance(value, str | int | float | list | tuple | dict | Absent) and hasattr(value, "members")


def step_into(value: object, part: object, where: str) -> object:
    """The member of `value` that `part` names, or an Absent; `where` is how the author calls `value`."""
    if isinstance(value, dict):
        if isinstance(part, str) and part in value:
            return value[part]
        known = tuple(str(k) for _, k in zip(range(_SHOWN + 1), value, strict=False))
        return Absent(path_text(where, (_part(part),)), "" if known else f"`{where}` is an empty object", known)
    if isinstance(value, list | tuple | str):
        if isinstance(part, int) and not isinstance(part, bool):
            if -len(value) <= part < len(value):
                return value[part]
            return Absent(path_text(where, (part,)), f"`{where}` has {len(value)} element{'' if len(value) == 1 else 's'}")
        return Absent(path_text(where, (_part(part),)), f"`{where}` is {_a(value)}")
    if isinstance(value, Absent):
        return value
    if value is None or isinstance(value, bool | int | float):
        return Absent(path_text(where, (_part(part),)), f"`{where}` is {_a(value)}")
    if isinstance(part, str) and is_namespace(value):
        space: Namespace = value  # type: ignore[assignment]
        return space.member(part)
    return Absent(path_text(where, (_part(part),)), f"`{where}` cannot be entered")


def _part(part: object) -> str | int:
    if isinstance(part, str):
        return part[:80]
    if isinstance(part, int) and not isinstance(part, bool):
        return part
    raise TemplateError(f"an index must be text or a whole number, found {_a(part)}")


def _a(value: object) -> str:
    kind = kind_of(value)
    if kind == "null":
        return kind
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"


def described(value: object) -> str:
    """What kind of value stands somewhere, with its article, for messages."""
    if isinstance(value, Absent):
        return "a name that is not there"
    return _a(value) if value is None or isinstance(value, str | int | float | list | tuple | dict) else "a group of names"
