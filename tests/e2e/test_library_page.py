"""The program of docs/library.md, run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kit.process import clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_the_program_of_the_library_page_prints_what_it_says(database: str, tmp_path: Path) -> None:
    text = PAGE.read_text()
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    promised = re.search(r"It prints `([^`]*)`", text)
    assert program is not None
    assert promised is not None
    done = subprocess.run(
        [sys.executable, "-c", program.group(1)],
        env=clean_environment() | {"AGIWO_DATABASE_URL": database, "AGIWO_LOG_LEVEL": "warning"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == promised.group(1)
