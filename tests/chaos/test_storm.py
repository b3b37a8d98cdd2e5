"""Fifty kills of the service under reports, half at random moments, half at named points. `make chaos` prints the figures.

CHAOS_SEED repeats a run, CHAOS_KILLS changes its length.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom

import pytest

from kit.chaos import site
from kit.storm import Storm

KILLS = int(os.environ.get("CHAOS_KILLS", "50"))


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
async def test_no_kill_loses_a_report_or_sends_one_twice(database: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or SystemRandom().randrange(1_000_000))
    print(f"\nCHAOS_SEED={seed}", flush=True)
    async with site(tmp_path, database) as made:
        await Storm(made, seed, KILLS, per_life=2).run()
