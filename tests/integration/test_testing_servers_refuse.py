"""The servers for trying things out, started by hand."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from kit.process import clean_environment


@pytest.mark.parametrize("module", ["smtp", "model_server"])
def test_a_port_that_is_taken_is_said_in_one_line(module: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = subprocess.run(
            [sys.executable, "-m", f"agiwo.testing.{module}", "--port", str(taken.getsockname()[1])],
            env=clean_environment(), capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"agiwo.testing.{module} cannot start: ") and "in use" in line
