"""What the README tells a newcomer to do is done here, word by word."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kit.process import ROOT, Start

README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)[0]


def test_the_first_workflow_of_the_readme_runs(start: Start, tmp_path: Path) -> None:
    service = start()
    (tmp_path / "greet.yaml").write_text(block("yaml"))
    out = ""
    for line in block("sh").splitlines():
        program, *arguments = shlex.split(line)
        assert program == ".venv/bin/agiwo"
        done = service.call(*arguments, cwd=tmp_path)
        assert done.status == 0, f"{line}\n{done.out}{done.err}"
        out = done.out
    promised = re.search(r"The last line that it prints is `(.*?)`", README)
    assert promised is not None
    assert out.splitlines()[-1] == promised[1]


def test_the_first_workflow_has_about_ten_lines() -> None:
    assert len(block("yaml").splitlines()) + len(block("sh").splitlines()) <= 14


def test_readme_fits_on_one_screen_and_never_names_the_other_project() -> None:
    assert len(README.splitlines()) <= 60
    assert "pip install agiwo" not in README


def test_readme_names_only_what_is_there() -> None:
    named = set(re.findall(r"`((?:docs|workflows|deploy)/[\w./-]*)`", README))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
