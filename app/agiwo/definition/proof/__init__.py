"""What is proved about a compiled definition before it may run.

Each part looks at one kind of fault and adds what it finds to the report; none changes the workflow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agiwo.definition.compile import Draft
from agiwo.definition.contract import ToolContract
from agiwo.definition.report import Report


def prove(
    draft: Draft,
    contracts: Mapping[str, ToolContract],
    report: Report,
    *,
    models: Collection[str] | None = None,
    secrets: Collection[str] | None = None,
) -> None:
    """Run all proofs; `models` and `secrets` are the names that exist, None where they are not known."""
