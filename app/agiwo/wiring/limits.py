"""Gathers the limits of the parts of one process, so that operators see them in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agiwo.engine.node import Engine
from agiwo.models.profile import ModelProfile
from agiwo.ports.limits import LimitSource, LimitState
from agiwo.tools.processes import ToolProcesses
from agiwo.tools.threads import ToolThreads


def limits_of(engine: Engine, threads: ToolThreads, processes: ToolProcesses, profiles: Mapping[str, ModelProfile]) -> LimitSource:
    """What this node may have at once, and what every model profile allows."""

    def found() -> Iterator[LimitState]:
        yield LimitState("instances", "node", engine.capacity, engine.load)
        attempts = engine.attempts
        yield LimitState("uncommitted_steps", "node", attempts.most, attempts.uncommitted, attempts.queued)
        yield LimitState("tool_threads", "node", threads.size, threads.in_use)
        yield LimitState("tool_processes", "node", processes.size, processes.in_use)
        for name, profile in sorted(profiles.items()):
            for what, limit in (("rpm", profile.rpm), ("tpm", profile.tpm), ("concurrency", profile.max_concurrency)):
                if limit is not None:
                    yield LimitState(f"{name}/{what}", "model", limit)

    return found
