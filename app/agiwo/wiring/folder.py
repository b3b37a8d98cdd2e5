"""A folder of definitions, and publishing what is in it.

It judges nothing; what is refused is said and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from agiwo.errors import AgiwoError, ServiceError
from agiwo.service.callers import AUTHOR, Caller
from agiwo.service.services import Services

Line = Callable[[str], None]


def definitions_in(folder: Path) -> list[Path]:
    """The files of a folder that hold definitions; what is hidden belongs to others, as to an editor."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml", ".json") and not path.name.startswith("."))


async def publish_files(services: Services, files: Iterable[Path], tenant: str, say: Line) -> int:
    """Publish definitions; what stands there already stays as it is. Gives the number of refused ones.

    `say` gets a line for each problem, as `file:line:column: severity: message`. Raises StoreUnavailable.
    """
    caller = Caller(tenant, "key:workflows-folder", frozenset({AUTHOR}))
    refused = 0
    for path in files:
        try:
            done = await services.publishing.publish(caller, await asyncio.to_thread(path.read_bytes))
            problems = done.examined.checked.problems
        except ServiceError as exc:
            refused += 1
            problems = exc.problems
            say(f"{path}: error: {exc.message}")
        except (AgiwoError, OSError) as exc:
            refused += 1
            problems = ()
            say(f"{path}: error: {exc}")
        for problem in problems:
            place = f"{path}:{problem.line}:{problem.column}" if problem.line is not None else f"{path}: {problem.pointer}"
            say(f"{place}: {problem.severity}: {problem.message}")
    return refused
