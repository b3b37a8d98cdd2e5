"""The engine inside a program of one's own, without HTTP: `async with Agiwo(…) as agiwo: await agiwo.run("greet", {"name": "Ada"})`.

It calls the same services as the API does; what it can do beyond them is only to take tools and profiles as Python values.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from agiwo.clock import SystemClock
from agiwo.errors import NotFound, Unavailable
from agiwo.service.approvals import Verdict
from agiwo.service.callers import ADMIN, Caller
from agiwo.service.services import Services
from agiwo.service.trigger import TriggerCall
from agiwo.settings import Settings, load_settings
from agiwo.store.migrate import upgrade
from agiwo.telemetry.log import Log
from agiwo.tools.tool import Tool, tool
from agiwo.wiring.assembly import Parts, running
from agiwo.wiring.credentials import hidden_texts
from agiwo.wiring.storage import postgres_storage
from agiwo.wiring.toolbox import toolbox
from agiwo.wiring.world import build_world


class Agiwo:
    """A service of one process on the database at `database_url`; migrates it, and owns what it triggers.

    Without AGIWO_SECRET_KEY the links in approval mails work only while this object does. `tools` are further tools, `tool_modules` modules
    with tools; `settings` are names and values as in agiwo.settings, over the environment. Register tools before entering.
    """

    def __init__(
        self,
        database_url: str,
        *,
        tools: Iterable[Tool] = (),
        tool_modules: Sequence[str] = (),
        config: Path | None = None,
        **settings: Any,
    ) -> None:
        self._tools = list(tools)
        self._modules = tuple(tool_modules)
        found: Settings = load_settings(config, database_url=database_url, **settings)
        if found.node_name is None:
            # A name of its own: under that of a service on the same machine it would take over what the service owns.
            found = found.model_copy(update={"node_name": f"{socket.gethostname()}:program:{secrets.token_hex(4)}"})
        self._settings = found
        self._url = database_url
        self._caller = Caller(self._settings.tenant, "key:program", frozenset({ADMIN}))
        self._stack = AsyncExitStack()
        self._parts: Parts | None = None

    def tool(self, **options: Any) -> Callable[[Callable[..., Any]], Tool]:
        """Decorate a function as a tool of this service; the options are those of agiwo.toolkit.tool."""

        def register(function: Callable[..., Any]) -> Tool:
            made = tool(**options)(function)
            self._tools.append(made)
            return made

        return register

    async def __aenter__(self) -> Self:
        settings, clock = self._settings, SystemClock()
        log = Log(level=settings.log_level, secrets=hidden_texts(settings), node=settings.node)
        registry = toolbox(
            self._modules,
            lambda problem: log.line("warning", problem.message, clock.now()),
            self._tools,
            declared=settings.tools_dir,
            commands=settings.commands_allowed,
        )
        await asyncio.to_thread(upgrade, self._url)
        world = await asyncio.to_thread(build_world, settings, registry, clock)
        key = settings.secret_key.get_secret_value() if settings.secret_key is not None else secrets.token_urlsafe(48)
        async with AsyncExitStack() as stack:
            storage = await stack.enter_async_context(postgres_storage(settings, self._url, clock, log))
            self._parts = await stack.enter_async_context(running(settings, storage, world, key, log, clock=clock))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._parts = None
        await self._stack.aclose()

    @property
    def services(self) -> Services:
        """All verbs, as the API calls them. Raises Unavailable outside of `async with`."""
        if self._parts is None:
            raise Unavailable("enter it first: async with Agiwo(…) as agiwo")
        return self._parts.services

    async def publish(self, definition: str | bytes | Path) -> tuple[str, str]:
        """Publish YAML or JSON text, or a file; gives id and version. Raises DefinitionRefused, Conflict."""
        text = await asyncio.to_thread(definition.read_bytes) if isinstance(definition, Path) else definition
        done = await self.services.publishing.publish(self._caller, text.encode() if isinstance(text, str) else text)
        return done.workflow, done.version

    async def trigger(self, workflow: str, input: Any = None, *, version: str | None = None, key: str | None = None) -> UUID:
        """Start an instance; it is durable when this returns. `key` makes a repetition harmless.

        Raises NotFound, InvalidInput, Conflict.
        """
        call = TriggerCall(workflow, secrets.token_hex(16), {} if input is None else input, version=version, key=key)
        return (await self.services.triggering.trigger(self._caller, call)).id

    async def run(self, workflow: str, input: Any = None, *, version: str | None = None, within: float | None = None) -> Mapping[str, Any]:
        """Start an instance and wait for its end; gives its view (`status`, `output`, `error`, `steps`).

        Raises what `trigger` raises, and TimeoutError after `within` seconds (the instance goes on).
        """
        call = TriggerCall(workflow, secrets.token_hex(16), {} if input is None else input, version=version)
        return await self.services.running.to_end(self._caller, call, within)

    async def show(self, id: UUID) -> Mapping[str, Any]:
        """Everything about an instance. Raises NotFound."""
        return await self.services.instances.view(self._caller, id)

    async def approve(self, instance: UUID, *, comment: str | None = None) -> None:
        """Approve what an instance waits for. Raises NotFound if it waits for nothing."""
        await self._decide(instance, Verdict("approve", comment))

    async def reject(self, instance: UUID, *, comment: str | None = None) -> None:
        """Reject what an instance waits for. Raises NotFound if it waits for nothing."""
        await self._decide(instance, Verdict("reject", comment))

    async def _decide(self, instance: UUID, verdict: Verdict) -> None:
        approvals = self.services.approvals
        found = await approvals.listed(self._caller.tenant, state="pending", assignee=None, instance=instance, before=None, limit=1)
        if not found:
            raise NotFound(f"the instance {instance} waits for no decision", code="approval_not_found")
        await approvals.decide(self._caller, found[0].id, verdict, "program")
