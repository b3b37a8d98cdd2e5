"""Commands that need no service: judging definitions, and bringing a database to the present schema.

What `validate` accepts the service accepts too, as far as its tools and profiles are those named here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncpg

from agiwo.cli.screen import FAILED, NOT_REACHED, WRONG_USE, CommandEnds, give, problem_lines, read_file, say
from agiwo.definition.checking import check
from agiwo.definition.contract import ToolContract
from agiwo.definition.loading import load
from agiwo.settings import load_settings
from agiwo.settings.parts import SettingsRefused
from agiwo.store.migrate import current, head
from agiwo.store.migrate import upgrade as migrate
from agiwo.wiring.toolbox import ToolsRefused, toolbox


def validate(files: Sequence[Path], tools: Sequence[str], tools_dir: Path | None, as_json: bool) -> None:
    """Print all that is wrong with the files; raises CommandEnds if anything is."""
    try:
        contracts = toolbox(tools, declared=tools_dir, commands=None).contracts()
    except ToolsRefused as exc:
        raise CommandEnds(WRONG_USE, exc.message) from None
    reports = [_judged(file, read_file(file), contracts) for file in files]
    if as_json:
        give(reports if len(reports) > 1 else reports[0])
    else:
        for report in reports:
            for line in problem_lines(report["problems"], report["file"]):
                say(line)
            if report["valid"]:
                say(
                    f"{report['file']}: {report['workflow_id']} {report['version']} is valid "
                    f"({report['steps']} steps, read {'as a graph' if report['reading'] == 'graph' else report['reading']})"
                )
    if not all(report["valid"] for report in reports):
        raise CommandEnds(FAILED)


def _judged(file: Path, text: bytes, contracts: Mapping[str, ToolContract]) -> dict[str, Any]:
    checked = check(load(text), contracts)
    workflow = checked.workflow
    return {
        "file": "standard input" if str(file) == "-" else str(file),
        "valid": workflow is not None,
        "workflow_id": None if workflow is None else workflow.id,
        "version": None if workflow is None else workflow.version,
        "steps": len(checked.order),
        "reading": checked.reads_as.replace("_", " "),
        "problems": [problem.to_json() for problem in checked.problems],
    }


async def upgrade(config: Path | None, as_json: bool) -> None:
    """Migrate the configured database. Raises CommandEnds."""
    try:
        settings = load_settings(config)
    except SettingsRefused as exc:
        raise CommandEnds(WRONG_USE, exc.message) from None
    if settings.database_url is None:
        raise CommandEnds(WRONG_USE, "AGIWO_DATABASE_URL is not set: which database shall be upgraded?")
    url = settings.database_url.get_secret_value()
    try:
        before = await current(url)
        await asyncio.to_thread(migrate, url)
        now = await current(url)
    except ValueError as exc:
        raise CommandEnds(WRONG_USE, str(exc)) from None
    except (OSError, asyncpg.PostgresError) as exc:
        raise CommandEnds(NOT_REACHED, f"the database cannot be used: {exc}") from None
    newer = now not in (head(), None)
    if as_json:
        give({"before": before, "now": now, "this_release": head()})
    elif before == now:
        say(f"the database is at {now} already" + (", which a newer release made" if newer else ""))
    else:
        say(f"the database was at {before or 'nothing'} and is now at {now}")
