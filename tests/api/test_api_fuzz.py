"""The OpenAPI document against a real service under generated requests: no 5xx, no answer that it does not describe.

FUZZ_EXAMPLES and FUZZ_SEED make a longer, other run; `make fuzz` does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.api import ECHO, GATE, REPORT
from kit.process import SECRET, Service, agiwo, free_port

#: What bad data may be answered with.
REFUSALS = ["400", "401", "403", "404", "405", "408", "409", "410", "412", "413", "414", "415", "422", "429", "431"]
KEY = "a-key-for-fuzzing-0123456789"


@pytest.fixture
def service(database: str, tmp_path: Path) -> Iterator[Service]:
    """`agiwo serve` on an empty database, with a few definitions."""
    folder = tmp_path / "workflows"
    folder.mkdir()
    for name, text in (("echo", ECHO), ("report", REPORT), ("gate", GATE)):
        (folder / f"{name}.yaml").write_text(text)
    environment = {"AGIWO_DATABASE_URL": database, "AGIWO_SECRET_KEY": SECRET, "AGIWO_API_KEYS": KEY}
    made = Service(["--port", str(free_port()), "--workflows", str(folder)], environment, cwd=tmp_path)
    yield made
    assert made.end(signal.SIGTERM) == 0


async def test_generated_requests_find_no_answer_that_is_not_documented(service: Service, tmp_path: Path) -> None:
    examples, seed = os.environ.get("FUZZ_EXAMPLES", "5"), os.environ.get("FUZZ_SEED", "1")
    for workflow in ("gate", "report", "echo"):
        started = await asyncio.to_thread(
            agiwo,
            "trigger",
            workflow,
            "-i",
            '{"week": "1", "to": "Ann", "amount": 1}' if workflow == "gate" else '{"week": "1"}',
            AGIWO_SERVER=service.url,
            AGIWO_API_KEY=KEY,
        )
        assert started.status == 0, started.err
    # What data depends on (a definition's meaning, a cursor that was handed out) no schema can say: those may be refused.
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(f"[checks.negative_data_rejection]\nexpected-statuses = {REFUSALS}\n")
    command = [
        str(Path(sys.executable).parent / "st"), "--config-file", str(settings), "run",
        f"{service.url}/openapi.json", "--header", f"Authorization: Bearer {KEY}",
        "--phases", "examples,coverage,fuzzing", "--max-examples", examples, "--seed", seed, "--exclude-path-regex", "/events$",
        "--exclude-checks", "positive_data_acceptance", "--no-color",
    ]  # fmt: skip
    fuzzing = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    said, _ = await fuzzing.communicate()
    text = said.decode()
    print(text[-1500:])
    assert fuzzing.returncode == 0, f"seed {seed}\n{text[-6000:]}"
