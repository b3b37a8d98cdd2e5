"""What a model step asks of the profiles that it names: that they are there, allow what it wants, and can ask for its `output_schema`.

Knows no profile's inside: a profile that is known in full says by its contract what is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from agiwo.definition.compiled import Step
from agiwo.definition.contract import ModelContract
from agiwo.definition.report import Path, Report


def prove_models(step: Step, source: Mapping[str, Any], at: Path, models: Collection[str], report: Report) -> None:
    """Look at the profiles of one model step; `models` are their names, or a mapping from the names to what is known of each."""
    own = (*at, "llm") if isinstance(source.get("llm"), str) else (*at, "llm", "profile") if "llm" in source else at
    spare = [(str(name), (*at, "llm", "fallback", place)) for place, name in enumerate(step.llm.get("fallback", ()))]
    for number, (name, where) in enumerate([(str(step.llm["profile"]), own), *spare]):
        if name not in models:
            report.error(
                "unknown_model",
                f"there is no model profile `{name[:80]}`",
                where,
                found=name[:80],
                expected="one of " + ", ".join(sorted(models)),
                nearest=report.nearest(name, models),
            )
        elif isinstance(models, Mapping):
            _contract(models[name], step, at, where, report, fallback=number > 0)


def _contract(contract: ModelContract, step: Step, at: Path, where: Path, report: Report, *, fallback: bool) -> None:
    schema = None if step.output_schema is None else step.output_schema.source
    for remark in contract.remarks(step.llm, schema, fallback=fallback):
        place = where if remark.key is None or fallback else (*at, "llm", remark.key)
        say = report.error if remark.error else report.warning
        say("model_profile", remark.message, place, found=remark.found, expected=remark.expected)
