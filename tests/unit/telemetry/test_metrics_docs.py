"""The table of numbers in docs/operations.md is what the code says; run this file to write it anew."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from agiwo.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/operations.md"


def declared() -> dict[str, str]:
    """Every number by its name, with what it counts: those of Metrics, and those that wiring shows."""
    metrics = Metrics()
    metrics.limits(lambda: ())
    found = {family.name: family.documentation for family in metrics.registry.collect()}
    for path in (ROOT / "app/agiwo").rglob("*.py"):
        found |= dict(re.findall(r'(?:gauge|Gauge|Counter|Histogram)\(\s*"(agiwo_[a-z_]+)",\s*"([^"]+)"', path.read_text("utf-8")))
    return dict(sorted(found.items()))


def table() -> str:
    return "\n".join(["| name | counts |", "| --- | --- |", *(f"| `{name}` | {text} |" for name, text in declared().items())])


def written(page: str) -> str:
    return re.sub(r"(<!-- metrics -->\n).*?(<!-- /metrics -->)", lambda m: f"{m[1]}{table()}\n{m[2]}", page, flags=re.S)


def test_every_number_stands_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    assert len(declared()) > 20
    assert written(page) == page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
    sys.exit(0)
