"""Answers of the scripted model: made from the prompt that it got, the same prompt giving the same answer.

No intelligence and no chance: it counts what the prompt holds, so that a person sees at once whether the right data arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agiwo.models.structured import balanced
from agiwo.values import JSON, encode

_MAX_DEPTH = 12


def summary(prompt: str) -> str:
    """Some sentences about the first table (list of objects) in a prompt: its size, the totals, the best row."""
    rows = table_in(prompt)
    if not rows:
        return f"I was given {len(prompt.split())} words and no table of data. They begin: {' '.join(prompt.split()[:12])}"
    measures = [name for name in rows[0] if all(_is_number(row.get(name)) for row in rows)]
    label = next((name for name in rows[0] if isinstance(rows[0][name], str)), None)
    totals = ", ".join(f"{_words(name)} {_shown(name, total(rows, name))}" for name in measures)
    sentences = [f"The data has {len(rows)} rows{'' if label is None else ', one for each ' + _words(label)}."]
    if totals:
        sentences.append(f"In total: {totals}.")
    if measures and label is not None:
        key = measures[-1]
        best = max(rows, key=lambda row: row[key])
        sentences.append(f"The best {_words(label)} is {best.get(label)!s} with {_words(key)} {_shown(key, best[key])}.")
    return " ".join(sentences)


def table_in(prompt: str) -> list[dict[str, JSON]]:
    """The rows of the first list of objects in a prompt, on its own or one level inside an object; empty where there is none."""
    for value in balanced(prompt):
        for found in (value, *(value.values() if isinstance(value, dict) else ())):
            if isinstance(found, list) and found and all(isinstance(row, dict) for row in found):
                return found
    return []


def schema_in(prompt: str) -> Mapping[str, JSON] | None:
    """The JSON Schema that a prompt ends with, None if it ends with none."""
    _, marked, rest = prompt.rpartition("JSON Schema")
    found = [value for value in balanced(rest)] if marked else []
    return found[0] if found and isinstance(found[0], dict) else None


def total(rows: Iterable[Mapping[str, JSON]], name: str) -> int | float:
    added: int | float = sum(row[name] for row in rows)
    return added


def fitting(schema: Any, prompt: str, root: Mapping[str, JSON] | None = None, name: str = "", depth: int = 0) -> JSON:
    """A value that fits a JSON Schema, filled from the prompt's table where names allow: `total_amount` finds the sum of `amount`.

    Of an enum the option that the prompt names last is taken, else its first.
    """
    whole: Mapping[str, JSON] = root if root is not None else schema if isinstance(schema, Mapping) else {}
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    if "$ref" in schema:
        return fitting(_resolved(str(schema["$ref"]), whole), prompt, whole, name, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _choice(schema["enum"], prompt)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return fitting(schema[key][0], prompt, whole, name, depth + 1)
    kinds = schema.get("type", "object")
    kind = kinds if isinstance(kinds, str) else next(iter(kinds), "null")
    if kind == "object":
        properties = schema.get("properties", {})
        return {key: fitting(inner, prompt, whole, key, depth + 1) for key, inner in properties.items()}
    if kind == "array":
        count = max(int(schema.get("minItems", 0)), 1 if schema.get("maxItems", 1) else 0)
        return [fitting(schema.get("items", {"type": "string"}), prompt, whole, name, depth + 1) for _ in range(count)]
    return _plain(kind, schema, prompt, name)


def _plain(kind: str, schema: Mapping[str, JSON], prompt: str, name: str) -> JSON:
    if kind == "string":
        text = summary(prompt)[: schema.get("maxLength", 1000)]
        return text.ljust(int(schema.get("minLength", 0)), ".")
    if kind in ("integer", "number"):
        return _number(kind, schema, prompt, name)
    return True if kind == "boolean" else None


def _number(kind: str, schema: Mapping[str, JSON], prompt: str, name: str) -> int | float:
    rows = table_in(prompt)
    wanted = name.lower().removeprefix("total_").removeprefix("sum_")
    column = next((key for row in rows[:1] for key in row if _is_number(row[key]) and wanted and wanted in key.lower()), None)
    value: int | float = len(rows) if column is None else total(rows, column)
    if "exclusiveMinimum" in schema:
        value = max(value, schema["exclusiveMinimum"] + 1)
    if "exclusiveMaximum" in schema:
        value = min(value, schema["exclusiveMaximum"] - 1)
    value = min(max(value, schema.get("minimum", value)), schema.get("maximum", value))
    return int(value) if kind == "integer" else value


def _choice(options: list[JSON], prompt: str) -> JSON:
    named = [(prompt.rfind(option), option) for option in options if isinstance(option, str) and option in prompt]
    return max(named, key=lambda pair: pair[0])[1] if named else options[0]


def _resolved(reference: str, root: Mapping[str, JSON]) -> Any:
    here: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        here = here.get(part) if isinstance(here, Mapping) else None
    return here


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(name: str) -> str:
    return name.removesuffix("_cents").replace("_", " ")


def _shown(name: str, value: int | float) -> str:
    if name.endswith("_cents") and isinstance(value, int):
        sign = "-" if value < 0 else ""
        return f"{sign}{abs(value) // 100}.{abs(value) % 100:02d}"
    return encode(value)
