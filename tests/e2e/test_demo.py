"""The demo as `make demo ARGS=--yes` runs it: on an embedded Postgres, a real mail server and a model behind the real protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.process import agiwo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_report_runs_end_to_end_and_its_table_equals_plain_sql(folder: Path) -> None:
    done = agiwo("demo", "--yes", "--seed", "7", "--data-dir", str(folder))
    assert done.status == 0, done.out + done.err
    assert "from seed 7" in done.out
    assert "a scripted server answers in its place" in done.out
    assert "/approve/" in done.out
    assert "its table equals plain SQL over the same rows, cell by cell" in done.out
    assert "✗" not in done.out


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_second_run_on_the_same_folder_works_and_says_so_in_json(folder: Path) -> None:
    done = agiwo("demo", "--yes", "--json", "--data-dir", str(folder))
    assert done.status == 0, done.out + done.err
    assert done.json["status"] == "SUCCESS"
    assert all(finding["holds"] for finding in done.json["findings"])


def test_demo_without_its_workflow_says_where_it_looked(tmp_path: Path) -> None:
    done = agiwo("demo", cwd=tmp_path)
    assert done.status == 2
    assert "has no weekly_report_workflow.yaml" in done.err
