"""What is proved about a compiled definition before it may run.

Each part looks at one kind of fault and adds what it finds to the report; none changes the workflow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agiwo.definition.compile import Draft
from agiwo.definition.contract import ToolContract
from agiwo.definition.proof.calls import prove_calls
from agiwo.definition.proof.connections import Barred, prove_connections
from agiwo.definition.proof.fallbacks import prove_fallbacks
from agiwo.definition.proof.liveness import prove_liveness
from agiwo.definition.proof.reads import prove_reads
from agiwo.definition.proof.structure import prove_structure
from agiwo.definition.proof.ways import Ways
from agiwo.definition.report import Report


def prove(
    draft: Draft,
    contracts: Mapping[str, ToolContract],
    report: Report,
    *,
    models: Collection[str] | None = None,
    secrets: Collection[str] | None = None,
    barred: Barred | None = None,
) -> None:
    """Run all proofs; `models` and `secrets` are the names that exist, None where they are not known, `barred` bars connections."""
    ways = Ways(draft)
    prove_structure(ways, report)
    prove_liveness(ways, report)
    prove_calls(ways, contracts, models, report)
    if barred is not None:
        prove_connections(ways, barred, report)
    prove_fallbacks(ways, contracts, report)
    prove_reads(ways, report, secrets)
