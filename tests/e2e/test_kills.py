"""The short form of tests/chaos: a few kills of the service under reports, at random moments and at named points."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.chaos import points_of, site
from kit.storm import Storm


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_few_kills_lose_no_report_and_send_none_twice(database: str, tmp_path: Path) -> None:
    async with site(tmp_path, database) as made:
        await Storm(made, seed=4, kills=3, per_life=2, points=points_of("send_email")).run()
