"""`agiwo serve`: one process that does all, from the database to the socket, and that leaves in order when it is told to.

It checks what must not be got wrong before anything is opened; what it serves is put together by wiring.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import asyncpg
import uvicorn
import uvloop
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agiwo.api import problems
from agiwo.api.app import create_app
from agiwo.cli.screen import FAILED, NOT_REACHED, WRONG_USE, CommandEnds, tell
from agiwo.clock import Clock, SystemClock
from agiwo.console.page import approval_page
from agiwo.engine.events import Observe
from agiwo.ports.store import StoreUnavailable
from agiwo.service.services import Services
from agiwo.settings import Settings, load_settings, own_secret_key
from agiwo.settings.parts import SettingsRefused
from agiwo.store.embedded import EmbeddedPostgres
from agiwo.store.migrate import upgrade
from agiwo.store.pgbinaries import EmbeddedPostgresError
from agiwo.telemetry.bridge import LogBridge
from agiwo.telemetry.log import Log
from agiwo.tools.registry import ToolRegistry
from agiwo.values import encode
from agiwo.wiring.assembly import running
from agiwo.wiring.credentials import hidden_texts
from agiwo.wiring.folder import definitions_in, publish_files
from agiwo.wiring.storage import postgres_storage
from agiwo.wiring.toolbox import ToolsRefused, toolbox
from agiwo.wiring.world import World, build_world

#: What publishes definitions, and may go on doing so while the service runs.
Definitions = Callable[[Settings, Services], AbstractAsyncContextManager[None]]
#: Gets a line for people.
Say = Callable[[str], None]
#: Seconds that requests under way have once no new ones are taken.
LAST_REQUESTS = 5
#: What the head of a request may have in bytes, and take in seconds until it is whole.
HEAD_LIMIT, HEAD_WITHIN = 131_072, 15.0


def serve(
    config: Path | None,
    embedded: bool,
    insecure_no_auth: bool,
    *,
    observe: Observe | None = None,
    loaded: Callable[[Settings], None] | None = None,
    definitions: Definitions | None = None,
    say: Say | None = None,
    **given: Any,
) -> None:
    """Serve until SIGINT or SIGTERM; `observe` hears of all that the engine does, `loaded` is called once when the tools are there and
    nothing is opened yet, `definitions` publishes before the first request is taken (those of the folder unless given), `say` gets what a
    person is told (a terminal shows it as it is; anything else that reads the log gets lines of the log).

    Raises CommandEnds if it cannot begin, or cannot go on.
    """
    try:
        settings = load_settings(config, **given)
        _check(settings, embedded, insecure_no_auth)
        clock = SystemClock()
        log = Log(level=settings.log_level, secrets=hidden_texts(settings), node=settings.node)
        say = say or _saying(log, clock)
        registry = toolbox(
            settings.tools,
            lambda problem: log.line("warning", problem.message, clock.now()),
            declared=settings.tools_dir,
            commands=settings.commands_allowed,
        )
    except (SettingsRefused, ToolsRefused) as exc:
        raise CommandEnds(WRONG_USE, exc.message) from None
    if loaded is not None:
        loaded(settings)
    with _listening(settings) as listener, contextlib.ExitStack() as stack:
        logging.getLogger().addHandler(LogBridge(log, clock))
        database = _embedded(settings, stack, say) if embedded else None
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                world, url, key = runner.run(_prepared(settings, database, registry, clock))
                published = definitions or _published(say)
                runner.run(_serve(settings, url, key, world, log, clock, listener, observe, published, insecure_no_auth, say))
            except SettingsRefused as exc:
                raise CommandEnds(WRONG_USE, exc.message) from None
            except EmbeddedPostgresError as exc:
                raise CommandEnds(FAILED, f"the embedded Postgres cannot run: {exc}") from None
            except (StoreUnavailable, OSError, asyncpg.PostgresError) as exc:
                raise CommandEnds(NOT_REACHED, f"the database cannot be used: {exc}") from None


def _check(settings: Settings, embedded: bool, insecure_no_auth: bool) -> None:
    """What must be said in words, so that a lost variable never opens a service to everybody or starts it on an empty database."""
    if embedded and not (settings.data_dir / "postgres").exists() and _would_be_open(settings, insecure_no_auth):
        raise _open_to_all(settings)
    settings.profiles()
    if embedded and settings.database_url is not None:
        raise SettingsRefused("AGIWO_DATABASE_URL is set and --embedded is given: which database shall it be? Take one of them away.")
    if not embedded and settings.database_url is None:
        raise SettingsRefused("no database: set AGIWO_DATABASE_URL, or say --embedded for a Postgres of its own in the data folder.")
    if not embedded and settings.secret_key is None:
        raise SettingsRefused(
            "AGIWO_SECRET_KEY is not set: it signs the links in approval mails, so all processes on one database need the same. "
            "Take at least 32 characters by chance, for example from: openssl rand -hex 32"
        )


def _would_be_open(settings: Settings, insecure_no_auth: bool) -> bool:
    """Whether anybody could do anything, unless there are keys in the database."""
    return not settings.on_loopback and not settings.api_keys and not insecure_no_auth


def _open_to_all(settings: Settings) -> SettingsRefused:
    return SettingsRefused(
        f"will not listen on {settings.host} without API keys: anybody there could do anything. Make one with `agiwo keys create "
        "--offline`, set AGIWO_API_KEYS or `api_keys` in the configuration, listen on 127.0.0.1, or say --insecure-no-auth."
    )


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """The socket, taken before anything else is begun; it refuses connections until the service stands."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise CommandEnds(WRONG_USE, f"{settings.host} is no address of this machine: {exc.strerror or exc}") from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as exc:
            raise CommandEnds(FAILED, f"cannot listen on {settings.host}:{settings.port}: {exc.strerror}") from None
        yield listener


def _saying(log: Log, clock: Clock) -> Say:
    return tell if sys.stderr.isatty() else lambda text: log.said(text, clock.now())


def _embedded(settings: Settings, stack: contextlib.ExitStack, say: Say) -> EmbeddedPostgres:
    database = EmbeddedPostgres(settings.data_dir / "postgres", report=say)
    stack.callback(database.stop)
    return database


async def _prepared(settings: Settings, database: EmbeddedPostgres | None, registry: ToolRegistry, clock: Clock) -> tuple[World, str, str]:
    """The migrated database and, meanwhile, the clients of the models: both take seconds."""

    def migrated() -> tuple[str, str]:
        given = settings.secret_key.get_secret_value() if settings.secret_key is not None else None
        if database is not None:
            key = given or own_secret_key(settings.data_dir)
            url = database.start()
        else:
            assert settings.database_url is not None and given is not None, "checked at the start"
            key, url = given, settings.database_url.get_secret_value()
        try:
            upgrade(url)
        except ValueError as exc:
            raise SettingsRefused(f"AGIWO_DATABASE_URL: {exc}") from None
        return url, key

    preparing = asyncio.to_thread(migrated)
    (url, key), world = await asyncio.gather(preparing, asyncio.to_thread(build_world, settings, registry, clock))
    return world, url, key


async def _serve(
    settings: Settings,
    url: str,
    key: str,
    world: World,
    log: Log,
    clock: Clock,
    listener: socket.socket,
    observe: Observe | None,
    definitions: Definitions,
    insecure_no_auth: bool,
    say: Say,
) -> None:
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(postgres_storage(settings, url, clock, log))
        if _would_be_open(settings, insecure_no_auth) and not await storage.keys.any():
            raise _open_to_all(settings)
        parts = await stack.enter_async_context(running(settings, storage, world, key, log, clock=clock, observe=observe))
        await stack.enter_async_context(definitions(settings, parts.services))
        app = create_app(
            parts.services,
            keys=parts.keys,
            pages=[approval_page(parts.services)],
            metrics=parts.exposition,
            body_within=settings.body_within,
            streams=settings.streams,
            hosts=settings.names if settings.on_loopback else None,
            version=_version(),
        )
        if settings.host in ("0.0.0.0", "::") and settings.public_url is None:
            log.line("warning", f"AGIWO_PUBLIC_URL is not set: links in mails begin with {settings.url}", clock.now())
        server = _Server(app, listener, settings.url, say)
        log.line("info", "serving", clock.now(), url=settings.url, node=settings.node)
        await server.run_until_told()
        log.line("info", "leaving", clock.now(), node=settings.node)


def _published(say: Say) -> Definitions:
    """The definitions of the folder, published once."""

    @asynccontextmanager
    async def published(settings: Settings, services: Services) -> AsyncIterator[None]:
        folder = settings.workflows_dir or Path("workflows")
        if folder.is_dir():
            await publish_files(services, definitions_in(folder), settings.tenant, say)
        elif settings.workflows_dir is not None:
            raise SettingsRefused(f"the folder of workflows {folder} does not exist")
        yield

    return published


class _Protocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, but what is no HTTP gets the same form of answer as every other mistake."""

    _timer: asyncio.TimerHandle | None = None
    _head = 0  # bytes of a head that is not whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_done()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_done()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer is not None:
            self._head += len(data)
            if self._head > HEAD_LIMIT:
                self._refuse(431, "headers_too_large", f"the head of a request may have at most {HEAD_LIMIT} bytes")

    def _expect_head(self) -> None:
        self._head = 0
        self._timer = self.loop.call_later(HEAD_WITHIN, self._head_is_late)

    def _head_done(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._refuse(408, "head_timeout", f"the head of the request did not arrive within {HEAD_WITHIN:g} seconds")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "malformed", "this is not a request as HTTP/1.1 has it")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer what is no whole request, and hang up."""
        self._head_done()
        if self.transport.is_closing():
            return
        body = encode(problems.document(status, code, detail)).encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"content-type: {problems.MEDIA_TYPE}",
            f"content-length: {len(body)}",
            "connection: close",
            "",
            "",
        ]
        self.transport.write("\r\n".join(lines).encode() + body)
        self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn in our own loop; signals end it and nothing more, so that the engine can be drained after the last request."""

    def __init__(self, app: FastAPI, listener: socket.socket, url: str, say: Say) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=LAST_REQUESTS,
            )
        )
        self._listener = listener
        self._url = url
        self._say = say

    async def run_until_told(self) -> None:
        """Serve until SIGINT or SIGTERM; they stay ours until the process ends, so that a second one does not cut the drain short."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        await self._serve([self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What stands now stays: without this every full collection walks all modules and routes again, a fifth of a busy node's time.
        gc.collect()
        gc.freeze()
        self._say(f"Agiwo is ready at {self._url}")


def _version() -> str:
    try:
        return version("agiwo-orchestrator")
    except PackageNotFoundError:
        return "0"
