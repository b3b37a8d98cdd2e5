"""What docs/examples.md tells to do with the example workflows is done here, block by block."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from kit.process import ROOT, Start, clean_environment, free_port

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "docs" / "examples.md").read_text(), re.DOTALL)


def test_the_examples_run_as_their_page_says(start: Start, tmp_path: Path) -> None:
    ports = {number: str(free_port()) for number in ("8791", "8792", "8793")}
    texts = [re.sub("|".join(ports), lambda found: ports[found[0]], text) for _, text in BLOCKS]
    tables, other_side, servers, service_text, commands = texts
    (tmp_path / "workflows").symlink_to(ROOT / "workflows")
    environment = clean_environment() | {"PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", tables], cwd=tmp_path, check=True)
    (tmp_path / "try" / "other_side.py").write_text(other_side)
    running = [
        subprocess.Popen(
            [sys.executable, *shlex.split(line.removesuffix(" &"))[1:]], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        for line in servers.splitlines()
    ]
    try:
        for process in running:
            assert process.stdout is not None and process.stdout.readline(), "each says in a line that it is ready"
        config, _, serve = service_text.rpartition("END\n")
        subprocess.run(["/bin/sh", "-c", config + "END\n"], cwd=tmp_path, check=True)
        options = shlex.split(serve)
        assert options[:3] == [".venv/bin/agiwo", "serve", "--embedded"]
        service = start("--workflows", "workflows", *options[3:])
        said = []
        for line in commands.splitlines():
            done = service.call(*shlex.split(line)[1:], cwd=tmp_path)
            said.append(done.out.splitlines()[0].rpartition("  ")[2])
        assert said == ["SUCCESS"] * 3 + ["WAITING"] * 2
    finally:
        for process in running:
            process.send_signal(signal.SIGKILL)
            process.communicate()
