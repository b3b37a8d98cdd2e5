"""What the benchmarks measure with: CPU of process trees, commits and WAL of a database, quantiles. Prints JSON lines, asserts no time."""

from __future__ import annotations

import json
import os
import resource
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

TICK = os.sysconf("SC_CLK_TCK")

WORKFLOW = """\
id: three_noops
version: "1"
input_schema: {type: object}
steps:
  - {id: a, type: tool_call, tool: bench.noop, parameters: {payload: "{{ input }}"}}
  - {id: b, type: tool_call, tool: bench.noop, parameters: {payload: "{{ steps.a.output }}"}}
  - {id: c, type: tool_call, tool: bench.noop, parameters: {payload: "{{ steps.b.output }}"}}
output: "{{ steps.c.output }}"
"""


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of the children that it has reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return 0.0
    parts = text[text.rindex(")") + 2 :].split()
    return sum(map(int, parts[11:15])) / TICK


def children_of(pid: int) -> list[int]:
    """A process and everything below it."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            below.setdefault(int(text[text.rindex(")") + 2 :].split()[1]), []).append(int(entry.name))
    out, todo = [], [pid]
    while todo:
        out.append(todo.pop())
        todo += below.get(out[-1], [])
    return out


@dataclass
class Meter:
    """Wall time, CPU of the given processes, commits and WAL between `begin` and `end`."""

    connection: asyncpg.Connection[Any]
    pids: list[int] = field(default_factory=list)
    postgres: list[int] = field(default_factory=list)
    result: dict[str, float] = field(default_factory=dict)
    _start: tuple[float, ...] = ()

    async def _read(self) -> tuple[float, ...]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        commits = await self.connection.fetchval("select xact_commit from pg_stat_database where datname = current_database()")
        wal = await self.connection.fetchval("select pg_current_wal_lsn() - '0/0'::pg_lsn")
        return (
            time.perf_counter(),
            usage.ru_utime + usage.ru_stime,
            sum(map(cpu_of, self.pids)),
            sum(cpu_of(p) for top in self.postgres for p in children_of(top)),
            float(commits),
            float(wal),
        )

    async def begin(self) -> None:
        await self.connection.execute("select pg_stat_clear_snapshot()")
        self._start = await self._read()

    async def end(self) -> None:
        await self.connection.execute("select pg_stat_force_next_flush()")
        await self.connection.execute("select pg_stat_clear_snapshot()")
        now = await self._read()
        names = ("wall_s", "client_cpu_s", "engine_cpu_s", "pg_cpu_s", "commits", "wal_bytes")
        self.result = {name: b - a for name, a, b in zip(names, self._start, now, strict=True)}


def quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_ms": round(statistics.median(ordered) * 1000, 2),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000, 2),
    }


def emit(workload: str, variant: str, **values: Any) -> None:
    print(json.dumps({"peer": "agiwo", "workload": workload, "variant": variant, **values}), flush=True)
