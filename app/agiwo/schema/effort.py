"""How much work a value makes for a schema, counted before it is done.

Alternatives that refer to each other multiply at every level of a value: a schema of a few lines and a value of a few hundred bytes can
keep a validator busy for ever. A schema without references cannot, and is not counted. It must not take longer than it allows.
"""

from __future__ import annotations

from typing import Any

from agiwo.schema.coercion import resolve

MAX_EFFORT = 1_000_000
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLES = ("not", "if", "then", "else")
_TOO_MUCH = MAX_EFFORT + 1


class Effort:
    """Counts for one schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._needed = _refers(root)

    def too_much(self, value: Any, part: Any = None) -> bool:
        """Whether `value` would take more than a million steps against the schema, or against a `part` of it."""
        if not self._needed:
            return False
        try:
            return _Count(self._root).of(value, self._root if part is None else part) > MAX_EFFORT
        except RecursionError:
            return True


class _Count:
    """One count. What was counted for a value and a part is remembered, so that counting itself does not multiply."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[tuple[int, int], int] = {}

    def of(self, value: Any, part: Any) -> int:
        if not isinstance(part, dict):
            return 1
        # Values without parts of their own are all alike here.
        key = (id(value) if isinstance(value, dict | list) and value else 0, id(part))
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._known) > MAX_EFFORT:
            return _TOO_MUCH
        self._known[key] = 0  # a reference that leads back here without going into the value adds nothing
        total = 1 + self._beside(value, part)
        if isinstance(value, dict):
            total += self._names(value, part)
        elif isinstance(value, list):
            total += self._items(value, part)
        self._known[key] = total = min(total, _TOO_MUCH)
        return total

    def _beside(self, value: Any, part: dict[str, Any]) -> int:
        branches = [branch for word in _LISTS for branch in part.get(word, ())]
        branches += [part[word] for word in _SINGLES if word in part]
        branches += part.get("dependentSchemas", {}).values()
        for word in ("$ref", "$dynamicRef"):
            if word in part and (found := resolve(self._root, part[word])) is not None:
                branches.append(found[0])
        return sum(self.of(value, branch) for branch in branches)

    def _names(self, value: dict[str, Any], part: dict[str, Any]) -> int:
        properties = part.get("properties", {})
        general = [*part.get("patternProperties", {}).values()]
        general += [part[word] for word in ("additionalProperties", "unevaluatedProperties") if word in part]
        total = len(value)
        for name, item in value.items():
            if name in properties:
                total += self.of(item, properties[name])
            total += sum(self.of(item, other) for other in general)
        return total

    def _items(self, value: list[Any], part: dict[str, Any]) -> int:
        first = part.get("prefixItems", ())
        general = [part[word] for word in ("items", "contains", "unevaluatedItems") if word in part]
        total = len(value)
        for index, item in enumerate(value):
            if index < len(first):
                total += self.of(item, first[index])
            total += sum(self.of(item, other) for other in general)
        return total


def _refers(part: Any) -> bool:
    if isinstance(part, dict):
        return "$ref" in part or "$dynamicRef" in part or any(_refers(inner) for inner in part.values())
    return isinstance(part, list) and any(_refers(inner) for inner in part)
