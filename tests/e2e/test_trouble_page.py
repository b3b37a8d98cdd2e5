"""The commands of docs/trouble.md, run as they stand there against instances that are in that trouble, and answered as the page says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agiwo.testing.model_server import ModelServer, Say
from kit import trouble
from kit.process import ROOT, Service, clean_environment, end_all, starter

PAGE = (ROOT / "docs" / "trouble.md").read_text("utf-8")
ANY = "…"
_PIECE = re.compile(r"<!-- scene: (\w+) -->|^### |^## |```(sh|json|text)\n(.*?)```", re.DOTALL | re.MULTILINE)


@dataclass
class Asked:
    """Commands of the page, and what it says that the last of them answers."""

    scene: str
    commands: list[str]
    kind: str = ""
    promised: str = ""


def read_page() -> list[Asked]:
    """All commands, in the order of the page; a section without a scene of its own has that of the one before."""
    out: list[Asked] = []
    scene = ""
    for found in _PIECE.finditer(PAGE):
        scene = found[1] or scene
        if found[2] == "sh":
            out.append(Asked(scene, found[3].splitlines()))
        elif found[2] is not None:
            out[-1].kind, out[-1].promised = found[2], found[3]
    return out


ASKED = read_page()


def fits(promised: Any, found: Any, at: str = "") -> None:
    """What was promised must be there; `…` stands for anything, at the end of a list for any rest, and there may be more members."""
    if promised == ANY:
        return
    if isinstance(promised, dict):
        assert isinstance(found, dict), f"{at}: {found!r}"
        for key, value in promised.items():
            assert key in found, f"{at}: no {key!r} in {sorted(found)}"
            fits(value, found[key], f"{at}/{key}")
    elif isinstance(promised, list):
        assert isinstance(found, list), f"{at}: {found!r}"
        rest = promised[-1:] == [ANY]
        assert rest or len(promised) == len(found), f"{at}: {len(found)} instead of {len(promised)}: {found!r}"
        for place, value in enumerate(promised[:-1] if rest else promised):
            fits(value, found[place], f"{at}/{place}")
    elif isinstance(promised, str) and isinstance(found, str):
        assert like(promised).fullmatch(found), f"{at}: {found!r} is not {promised!r}"
    else:
        assert (type(promised), promised) == (type(found), found), at


def like(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split(ANY))), re.DOTALL)


def lines_fit(promised: str, found: str) -> None:
    """Every line that was promised is there, in this order."""
    lines = iter(found.splitlines())
    for wanted in promised.splitlines():
        assert any(like(wanted).fullmatch(line) for line in lines), f"no line {wanted!r} (in this place) in:\n{found}"


@dataclass(frozen=True, slots=True)
class Troubled:
    service: Service
    database: str


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """A model that never gives the form that it is asked for."""
    loop, server = asyncio.new_event_loop(), ModelServer([Say('{"code": "Oslo"}')] * 8)
    loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield server.base_url
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(server.stop())
    loop.close()


@pytest.fixture(scope="module")
def troubled(module_database: str, model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubled]:
    started: list[Service] = []
    folder = tmp_path_factory.mktemp("troubled")
    yield Troubled(trouble.start_service(starter(module_database, folder, started), folder, model), module_database)
    end_all(started)


def ran(troubled: Troubled, instance: str, commands: list[str], cwd: Path) -> str:
    """What the last of these commands prints; each has to go well."""
    bin = str(Path(sys.executable).parent)
    environment = clean_environment(
        AGIWO=troubled.service.url, AGIWO_SERVER=troubled.service.url, ID=instance, PATH=f"{bin}{os.pathsep}{os.environ['PATH']}"
    )
    out = ""
    for command in commands:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], env=environment, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
        )
        out = done.stdout
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert '"status":4' not in out and '"status":5' not in out, f"{command}\n{out}"
    return out


@pytest.mark.parametrize("scene", list(dict.fromkeys(asked.scene for asked in ASKED)))
@pytest.mark.timeout(180)
def test_what_the_page_says_of_a_trouble_is_what_is_seen(troubled: Troubled, scene: str, tmp_path: Path) -> None:
    programs = {name for asked in ASKED if asked.scene == scene for name in ("curl", "jq") if any(name in line for line in asked.commands)}
    if missing := [name for name in sorted(programs) if shutil.which(name) is None]:
        pytest.skip(f"the commands of this section need {' and '.join(missing)}, which are not installed here")
    instance = trouble.in_trouble(troubled.service, troubled.database, scene)
    for asked in (asked for asked in ASKED if asked.scene == scene):
        if asked.commands[0].startswith('curl -s "$AGIWO/v1/admin/outbox?state=pending"') and "redeliver" in asked.promised:
            instance = trouble.in_trouble(troubled.service, troubled.database, scene)  # the one before was decided
        out = ran(troubled, instance, asked.commands, tmp_path)
        if asked.kind == "json":
            fits(json.loads(asked.promised), json.loads(out))
        elif asked.kind == "text":
            lines_fit(asked.promised, out)


def test_every_kind_of_wait_has_a_section() -> None:
    from_code = {*trouble.WAITS, "set_aside"}
    named = set(re.findall(r"`(\w+)`", "".join(line for line in PAGE.splitlines() if line.startswith("| "))))
    assert from_code <= named


def test_links_within_the_page_lead_somewhere() -> None:
    heads = {re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= heads
