"""The whole judgement on a loaded definition: every error and warning at once, and the compiled workflow if there is no error.

`check` answers, `compile_workflow` insists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agiwo.definition.compile import compile_draft
from agiwo.definition.compiled import Workflow
from agiwo.definition.contract import ToolContract
from agiwo.definition.loading import Loaded, load_mapping
from agiwo.definition.proof import prove
from agiwo.definition.proof.connections import Barred
from agiwo.definition.report import Report
from agiwo.definition.written import as_written
from agiwo.errors import DefinitionRefused, Problem
from agiwo.values import JSON


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer about a definition.

    `problems` are errors and warnings by place, `workflow` is there only without errors, `reads_as` is "in_order" or "graph" ("" if there
    are no steps to read), `order` the ids in the order in which the list is read. `document` is the model to keep and to publish: as it was
    loaded, with text as it was written in parameters whose tool wants text.
    """

    problems: tuple[Problem, ...]
    workflow: Workflow | None
    reads_as: str
    order: list[str]
    document: JSON

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == "warning")


def check(
    loaded: Loaded,
    contracts: Mapping[str, ToolContract],
    *,
    models: Collection[str] | None = None,
    published: Callable[[str, str | None], bool] | None = None,
    secrets: Collection[str] | None = None,
    barred: Barred | None = None,
) -> Checked:
    """Judge a loaded document against the tools by name, the model profiles and the names of secrets (None: not known, not checked).

    `models` are names, or a mapping from each name to its ModelContract.

    `published` says of a workflow id and version whether it is there; no step type of today asks. `barred` says why a tool may not
    use a connection.
    """
    report = Report(loaded.positions, loaded.prefix, loaded.problems, loaded.source)
    if not loaded.readable or not loaded.sound:
        return Checked(report.problems, None, "", [], loaded.document)
    document = as_written(loaded.document, contracts, report)
    sound = {**loaded.sound, "steps": _with_parameters(loaded.sound.get("steps", []), document)}
    draft = compile_draft(document, sound, contracts, report)
    prove(draft, contracts, report, models=models, secrets=secrets, barred=barred)
    order = [draft.outline.ids[index] for index in draft.reading.order]
    return Checked(report.problems, None if report.broken else draft.workflow, draft.reading.reads_as if order else "", order, document)


def _with_parameters(steps: Sequence[Any], document: JSON) -> list[Any]:
    """The sound steps with the parameters of the document, in which text stands as it was written."""
    written = document.get("steps") if isinstance(document, dict) else None
    if not isinstance(written, list):
        return list(steps)
    return [
        _as_in(step, whole) if isinstance(step, dict) else step
        # What could not be used keeps its place among the sound steps, so that they pair with what was written.
        for step, whole in zip(steps, written, strict=True)
    ]


def _as_in(step: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """A sound step, or fallback, with the parameters that stand in the document."""
    out = {**step, "parameters": whole["parameters"]} if "parameters" in step else dict(step)
    if isinstance(step.get("fallback"), dict):
        out["fallback"] = _as_in(step["fallback"], whole["fallback"])
    return out


def compile_workflow(document: JSON, contracts: Mapping[str, ToolContract], *, models: Collection[str] | None = None) -> Workflow:
    """Compile the canonical model of a definition that has no errors.

    Raises DefinitionRefused with all problems otherwise.
    """
    checked = check(load_mapping(document), contracts, models=models)
    if checked.workflow is None:
        errors = checked.errors
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise DefinitionRefused(f"{errors[0].message}{more}", problems=checked.problems)
    return checked.workflow
