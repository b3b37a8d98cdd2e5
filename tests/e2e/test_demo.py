"""The demo as `make demo ARGS=--yes` runs it: on an embedded Postgres, a real mail server and a model behind the real protocol."""

from __future__ import annotations

import fcntl
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.process import ROOT, agiwo, clean_environment


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


def begun(folder: Path) -> tuple[subprocess.Popen[str], str, str]:
    """A demo that waits for a person: the process, the id of the approval, the service's address."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "agiwo", "demo", "--data-dir", str(folder)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env=clean_environment(),
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"agiwo approve (\S+) --server (\S+)", line):
            return process, found[1], found[2]
    raise AssertionError("the demo ended before it asked")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_without_yes_a_person_decides_and_the_service_stays_up_until_ctrl_c(folder: Path) -> None:
    process, approval, server = begun(folder)
    with process:
        assert agiwo("approve", approval, "--server", server).status == 0
        assert process.stdout is not None
        said = "".join(iter(process.stdout.readline, f"The service stays up at {server}; Ctrl-C ends it and all that belongs to it.\n"))
        assert "its table equals plain SQL" in said
        assert agiwo("trigger", "hello", "--input", '{"name": "x"}', "--server", server).status == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_outlives_a_demo_that_was_killed(folder: Path) -> None:
    process, approval, server = begun(folder)
    process.kill()
    process.communicate()
    with (folder / "demo" / "postgres" / "owner.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # the service holds it as long as it lives
    assert agiwo("approve", approval, "--server", server).status == 3
