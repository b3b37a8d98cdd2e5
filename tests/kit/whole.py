"""The service as it is wired for production, inside the test's own process: real storage, tools, guard, pages, metrics, log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from agiwo.api import create_app
from agiwo.clock import SystemClock
from agiwo.console import approval_page
from agiwo.engine.node import Engine
from agiwo.service.services import Services
from agiwo.settings import load_settings
from agiwo.telemetry.bridge import LogBridge
from agiwo.telemetry.log import Log
from agiwo.tools.tool import Tool
from agiwo.wiring.assembly import running
from agiwo.wiring.credentials import hidden_texts
from agiwo.wiring.storage import postgres_storage
from agiwo.wiring.toolbox import toolbox
from agiwo.wiring.world import build_world

ADMIN_KEY = "the-key-of-an-admin-in-tests"
SIGNING_KEY = "a signing key that only tests use, long enough"


@dataclass(frozen=True, slots=True)
class Whole:
    """What stands: the application, a client that is an admin, one without a key, and what was logged so far."""

    services: Services
    engine: Engine
    app: FastAPI
    client: httpx.AsyncClient
    anonymous: httpx.AsyncClient
    log: io.StringIO

    async def publish(self, text: str) -> None:
        answer = await self.client.post("/v1/workflows", content=text, headers={"content-type": "application/yaml"})
        assert answer.status_code in (200, 201), answer.text

    async def run(self, workflow: str, **body: Any) -> dict[str, Any]:
        """Trigger and wait until it has ended or waits for somebody."""
        answer = await self.client.post(f"/v1/workflows/{workflow}/trigger?wait=30s", json=body)
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view


@asynccontextmanager
async def whole_service(
    database: str,
    folder: Path,
    *,
    tools: Iterable[Tool] = (),
    declared: str | None = None,
    config: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Whole]:
    """The service on `database`, logging all that it can; `declared` are tools as YAML, `config` is what stands in its file."""
    own = {"AGIWO_DATABASE_URL": database, "AGIWO_SECRET_KEY": SIGNING_KEY, "AGIWO_API_KEYS": ADMIN_KEY, **(environment or {})}
    given: dict[str, Any] = {"public_url": "http://agiwo.test", "log_level": "debug", "drain": 1, **(config or {})}
    if declared is not None:
        (folder / "tools").mkdir()
        (folder / "tools" / "tools.yaml").write_text(declared)
        given["tools_dir"] = str(folder / "tools")
    (folder / "config.yaml").write_text(json.dumps(given))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        settings, clock = load_settings(folder / "config.yaml"), SystemClock()
        lines = io.StringIO()
        log = Log(lines, settings.log_level, hidden_texts(settings))
        registry = toolbox((), None, tools, declared=settings.tools_dir, commands=settings.commands_allowed)
        world = build_world(settings, registry, clock)
        bridge = LogBridge(log, clock)
        logging.getLogger().addHandler(bridge)
        try:
            async with (
                postgres_storage(settings, database, clock, log) as storage,
                running(settings, storage, world, SIGNING_KEY, log, clock=clock) as parts,
            ):
                app = create_app(parts.services, keys=parts.keys, pages=[approval_page(parts.services)], metrics=parts.exposition)
                transport = httpx.ASGITransport(app)
                async with (
                    httpx.AsyncClient(transport=transport, base_url="http://agiwo.test", timeout=60) as anonymous,
                    httpx.AsyncClient(
                        transport=transport, base_url="http://agiwo.test", timeout=60, headers={"authorization": f"Bearer {ADMIN_KEY}"}
                    ) as client,
                ):
                    yield Whole(parts.services, parts.engine, app, client, anonymous, lines)
        finally:
            logging.getLogger().removeHandler(bridge)
