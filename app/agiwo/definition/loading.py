"""Text, or values from the API, to the one canonical model of a definition, with everything that is wrong with its form.

Never raises for a bad document, and judges nothing that needs the graph or the tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agiwo.definition.model import MAX_STEPS, WORKFLOW
from agiwo.definition.report import Path, Report
from agiwo.definition.shape import BAD
from agiwo.definition.yaml_text import MAX_BYTES, MAX_DEPTH, Place, read_text, source_text
from agiwo.errors import Problem, ValueRefused
from agiwo.values import JSON, check, digest, encode, pointer


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document as it was read.

    `document` is the canonical model as plain JSON: without the `workflow` wrapper, defaults not filled in, text as it was written where
    text is wanted; {} if the text could not be read at all. `positions` has the place of every part by JSON Pointer into the text, `prefix`
    is `("workflow",)` where the text has the wrapper. `problems` holds errors and warnings of the form, by place.
    """

    document: JSON
    source: str
    problems: tuple[Problem, ...]
    positions: Mapping[str, Place] = field(default_factory=dict)
    prefix: Path = ()
    sound: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    readable: bool = True

    @property
    def valid(self) -> bool:
        """Whether the form has no error."""
        return not any(p.severity == "error" for p in self.problems)


def load(text: str | bytes) -> Loaded:
    """Read YAML or JSON text; whatever is wrong stands in `problems`."""
    reading = read_text(text)
    return _loaded(reading.value, source_text(text), reading.places, reading.problems, reading.readable)


def load_mapping(data: Mapping[str, Any]) -> Loaded:
    """Read the same model from Python values, as the API gets them in JSON."""
    try:
        check(dict(data))
        source = encode(dict(data))
    except (ValueRefused, TypeError) as exc:
        problem = Problem("value_refused", str(exc), getattr(exc, "pointer", ""))
        return Loaded({}, "", (problem,), readable=False)
    if len(source.encode()) > MAX_BYTES:
        return Loaded({}, "", (Problem("too_large", f"a definition has at most {MAX_BYTES:,} bytes"),), readable=False)
    if _deeper(data, MAX_DEPTH):
        return Loaded({}, source, (Problem("too_deep", f"the document is nested deeper than {MAX_DEPTH}"),), readable=False)
    return _loaded(dict(data), source, {}, [], True)


def content_hash(document: JSON) -> str:
    """SHA-256 of the canonical form, as 64 hex digits: what tells two contents of one version apart."""
    return digest(document)


def _loaded(value: JSON, source: str, places: dict[str, Place], problems: list[Problem], readable: bool) -> Loaded:
    prefix: Path = ("workflow",) if isinstance(value, dict) and "workflow" in value else ()
    report = Report(places, prefix, problems)
    document: JSON = {}
    sound: Any = {}
    if readable or value is not None:
        outer = Report(places, (), report.problems)
        if prefix:
            for key in value:
                if key != "workflow":
                    outer.error(
                        "unknown_key",
                        f"`{key[:80]}` stands beside `workflow`; only `workflow` may stand there",
                        (key,),
                        key=True,
                        found=key[:80],
                    )
            report = Report(places, prefix, outer.problems)
            value = value["workflow"]
        sound = WORKFLOW(report, value, ())
        document = value if isinstance(value, dict) else {}
        steps = document.get("steps")
        if isinstance(steps, list) and len(steps) > MAX_STEPS:
            report.error("too_many_steps", f"a definition has at most {MAX_STEPS:,} steps, this has {len(steps):,}", ("steps",))
        if places:
            document = _as_text(document, sound, places, pointer(*prefix))
    return Loaded(document, source, report.problems, places, prefix, {} if sound is BAD else sound, readable)


def _as_text(value: JSON, sound: Any, places: Mapping[str, Place], at: str) -> JSON:
    """The document with the text as it was written wherever a check took a plain scalar as text."""
    if isinstance(value, dict) and isinstance(sound, dict):
        return {key: _as_text(part, sound.get(key), places, at + pointer(key)) for key, part in value.items()}
    if isinstance(value, list) and isinstance(sound, list) and len(value) == len(sound):
        return [_as_text(part, found, places, f"{at}/{index}") for index, (part, found) in enumerate(zip(value, sound, strict=True))]
    if isinstance(sound, list) and len(sound) == 1 and not isinstance(value, dict | list):
        return _as_text(value, sound[0], places, at)
    place = places.get(at)
    if isinstance(sound, str) and not isinstance(value, str | bool) and place is not None and place.written == sound:
        return sound
    return value


def _deeper(value: Any, levels: int) -> bool:
    layer: list[Any] = [value]
    for _ in range(levels + 1):
        layer = [
            part for item in layer if isinstance(item, Mapping | list) for part in (item.values() if isinstance(item, Mapping) else item)
        ]
        if not layer:
            return False
    return True
