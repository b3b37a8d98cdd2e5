"""Puts a service together on one database and takes it apart again: stores, engine, services, application, in an order that loses nothing.

It reads settings and decides nothing else; no other module knows which adapter stands behind a port.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Any
from urllib.parse import unquote, urlsplit

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agiwo.clock import Clock, SystemClock
from agiwo.definition.compiled import Kind
from agiwo.definition.report import nearest
from agiwo.engine.events import Observe, to_all
from agiwo.engine.node import Engine
from agiwo.engine.outbox import Keeping
from agiwo.errors import AgiwoError, ServiceError, StepError, Unavailable
from agiwo.executors.breakers import Breakers
from agiwo.executors.guarded import MODELS, GuardedCalls, model_circuit, tool_circuit
from agiwo.executors.llm_task import ModelTasks
from agiwo.executors.rated import Rate, RatedCalls
from agiwo.executors.recalling import RecallingCalls
from agiwo.executors.tool_call import ToolCalls
from agiwo.leases.local_rates import LocalRateLimits
from agiwo.models.contract import ProfileContract
from agiwo.models.limits import LocalModelLimits
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import ModelProvider
from agiwo.models.providers import provider_for
from agiwo.notify.chat import ChatNotifier
from agiwo.notify.mail import MailNotifier
from agiwo.notify.webhook import WebhookNotifier
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.outbound.folder import Folder
from agiwo.outbound.guard import Guard
from agiwo.outbound.http import HttpCalls
from agiwo.outbound.service import HttpService
from agiwo.ports.answered import AnsweredCalls
from agiwo.ports.deliveries import Deliveries
from agiwo.ports.executor import Executor
from agiwo.ports.keys import KeyStore
from agiwo.ports.last_good import LastGood
from agiwo.ports.notifier import Notifier
from agiwo.ports.oversight import Oversight
from agiwo.ports.queries import Queries
from agiwo.ports.records import Records
from agiwo.ports.store import InstanceStore
from agiwo.ports.webhooks import WebhookStore
from agiwo.ports.workflows import WorkflowStore
from agiwo.service.callers import AUTHOR, ApiKey, ApiKeys, Caller
from agiwo.service.definitions import Catalog
from agiwo.service.instances import Instances
from agiwo.service.keyring import KeyRing
from agiwo.service.notices import ApprovalNotices
from agiwo.service.services import Services, build_services
from agiwo.service.tokens import ApprovalLinks, CallbackLinks, Signer
from agiwo.settings import Settings, secrets_of
from agiwo.settings.parts import ChannelSetting, SettingsRefused
from agiwo.store.answered import PostgresAnsweredCalls
from agiwo.store.deliveries import PostgresDeliveries
from agiwo.store.keys import PostgresKeys
from agiwo.store.last_good import PostgresLastGood
from agiwo.store.oversight import PostgresOversight
from agiwo.store.pool import service_engine
from agiwo.store.postgres import PostgresStore
from agiwo.store.queries import PostgresQueries
from agiwo.store.records import PostgresRecords
from agiwo.store.webhooks import PostgresWebhooks
from agiwo.store.workflows import PostgresWorkflows
from agiwo.telemetry.log import Log
from agiwo.telemetry.metrics import Metrics
from agiwo.tools.processes import ToolProcesses
from agiwo.tools.registry import ToolRegistry
from agiwo.tools.threads import ToolThreads
from agiwo.wiring.callbacks import callback_urls
from agiwo.wiring.channels import Channel, Channels, Members
from agiwo.wiring.limits import limits_of
from agiwo.wiring.shared import Shared, progress_of, shared_over_redis
from agiwo.wiring.signals import SignalsFromSteps
from agiwo.wiring.webhooks import secret_keys, webhook_notifiers, webhook_parts, webhook_texts

NOTICE = "notice"
Line = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What stands and runs; `exposition` gives the metrics and their content type."""

    services: Services
    engine: Engine
    keys: KeyRing
    exposition: Callable[[], tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class Storage:
    """The faces of one storage, how many nodes are on it, and what they share over Redis (None: one node, or they do without)."""

    instances: InstanceStore
    records: Records
    workflows: WorkflowStore
    queries: Queries
    oversight: Oversight
    answered: AnsweredCalls
    last_good: LastGood
    keys: KeyStore
    webhooks: WebhookStore
    deliveries: Deliveries
    nodes: Callable[[], int] = lambda: 1
    shared: Shared | None = None


@dataclass(frozen=True, slots=True)
class World:
    """What definitions can reach: tools, connections, models, secrets. `providers` are open ways to the models by profile name."""

    registry: ToolRegistry
    connections: Connections
    profiles: Mapping[str, ModelProfile]
    providers: Mapping[str, ModelProvider]
    secrets: Mapping[str, str]


def build_world(settings: Settings, registry: ToolRegistry, clock: Clock) -> World:
    """What the settings let definitions reach; loads the clients of the models, which takes seconds.

    Raises SettingsRefused for a profile that cannot be used.
    """
    profiles = {}
    try:
        for name, data in settings.profiles().items():
            profiles[name] = ModelProfile.from_mapping(name, data, os.environ)
        providers = {name: provider_for(profile, clock) for name, profile in profiles.items()}
    except (ServiceError, Unavailable) as exc:
        raise SettingsRefused(f"the settings cannot be used:\n{exc.message}") from None
    _are_tools("breakers", settings.breakers, (*registry.contracts(), MODELS))
    _are_tools("rates", settings.rates, registry.contracts())
    connections = Connections(_specs(settings), Guard(settings.outbound_allow, never=_own_parts(settings)))
    return World(registry, connections, profiles, providers, secrets_of(os.environ))


def _are_tools(setting: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean `{near}`?" if near else ""
            raise SettingsRefused(f"the settings cannot be used: `{setting}` names {name[:80]!r}, and there is no such tool{hint}")


def _own_parts(settings: Settings) -> list[tuple[str, int]]:
    """Host and port of this service's own database and Redis: no call of a workflow is for them, whatever network is allowed."""
    out = []
    for url, port in ((settings.database_url, 5432), (settings.redis_url, 6379)):
        # A database may have several hosts, separated by commas.
        for host in urlsplit(url.get_secret_value()).netloc.rpartition("@")[2].split(",") if url is not None else ():
            with suppress(ValueError):
                parts = urlsplit(f"//{host}")
                out += [(parts.hostname, parts.port or port)] if parts.hostname else []
    return out


def _specs(settings: Settings) -> list[ConnectionSpec]:
    specs = [
        ConnectionSpec(
            name,
            one.kind,
            _from_environment(name, one.url.get_secret_value()),
            one.model_extra or {},
            None if one.tenants is None else frozenset(one.tenants),
            None if one.tools is None else frozenset(one.tools),
        )  # fmt: skip
        for name, one in settings.connections.items()
    ]
    try:
        for spec in specs:
            if spec.kind == "http":
                HttpService.of(spec)
            elif spec.kind == "folder":
                Folder.of(spec)
    except StepError as exc:
        raise SettingsRefused(f"the settings cannot be used: {exc.message}") from None
    return specs


def _from_environment(name: str, url: str) -> str:
    if not url.startswith("env:"):
        return url
    variable = url.removeprefix("env:")
    if not os.environ.get(variable):
        raise SettingsRefused(f"the connection {name!r} takes its URL from the variable {variable}, which is not set")
    return os.environ[variable]


def api_keys(settings: Settings) -> ApiKeys:
    """The keys that may call. Raises SettingsRefused if one stands in a variable that is not set."""
    return ApiKeys([ApiKey(key.name, key.digest(os.environ), key.tenant, key.roles) for key in settings.api_keys], tenant=settings.tenant)


def hidden_texts(settings: Settings) -> list[str]:
    """Texts that no log line may show: keys, tokens, secrets, and the passwords in URLs."""
    texts = [secret.get_secret_value() for secret in (settings.secret_key, settings.llm_api_key) if secret is not None]
    texts += secrets_of(os.environ).values()
    texts += [text.strip() for text in os.environ.get("AGIWO_API_KEYS", "").split(",")]
    texts += [os.environ.get(key.env, "") for key in settings.api_keys if key.env is not None]
    texts += webhook_texts(settings)
    given = [str(profile["api_key"]) for profile in settings.llm_profiles.values() if "api_key" in profile]
    urls = [url.get_secret_value() for url in (settings.database_url, settings.redis_url) if url is not None]
    urls += [one.url.get_secret_value() for one in settings.connections.values()]
    given += [one.url.get_secret_value() for one in settings.channels.values() if one.url is not None]
    for text in given:
        texts.append(os.environ.get(text.removeprefix("env:"), "") if text.startswith("env:") else text)
    for url in urls:
        texts += _passwords(os.environ.get(url.removeprefix("env:"), "") if url.startswith("env:") else url)
    return [text for text in dict.fromkeys(texts) if len(text) >= 4]


def _passwords(url: str) -> list[str]:
    """The password in a URL, as it stands there and as it is meant."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return [url]
    return [] if password is None else [password, unquote(password)]


@asynccontextmanager
async def postgres_storage(settings: Settings, url: str, clock: Clock, log: Log) -> AsyncIterator[Storage]:
    """The storage on a migrated Postgres, with what nodes share over Redis if it is configured; closed at the end."""
    async with AsyncExitStack() as stack:
        pool = service_engine(url)
        stack.push_async_callback(pool.dispose)
        store = PostgresStore(url, lease=settings.lease)
        stack.push_async_callback(store.close)
        shared = None
        if settings.redis_url is not None:
            shared = await stack.enter_async_context(
                shared_over_redis(settings.redis_url.get_secret_value(), clock, log, lambda: store.nodes)
            )
        yield Storage(
            instances=store,
            records=PostgresRecords(pool, clock),
            workflows=PostgresWorkflows(pool),
            queries=PostgresQueries(pool),
            oversight=PostgresOversight(pool),
            answered=PostgresAnsweredCalls(pool),
            last_good=PostgresLastGood(pool),
            keys=PostgresKeys(pool),
            nodes=lambda: store.nodes,
            webhooks=PostgresWebhooks(pool),
            deliveries=PostgresDeliveries(pool),
            shared=shared,
        )


@asynccontextmanager
async def running(
    settings: Settings,
    storage: Storage,
    world: World,
    secret_key: str,
    log: Log,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    observe: Observe | None = None,
) -> AsyncIterator[Parts]:
    """A running engine with its services on `storage`; at the end it is drained for up to `settings.drain` seconds.

    `observe` hears of everything beside logs and metrics. Raises StoreUnavailable if the storage cannot be reached.
    """
    clock, random = clock or SystemClock(), random or SystemRandom()
    metrics = Metrics()
    shared = storage.shared
    signer = Signer(secret_keys(settings, secret_key))
    catalog = Catalog(storage.records, world.registry.contracts, clock)
    rates = LocalRateLimits(clock, storage.nodes) if shared is None else shared.rates
    limits = LocalModelLimits(clock, random, rates, news=None if shared is None else shared.pauses)
    models = ModelTasks(world.profiles, lambda profile: world.providers[profile.name], clock, secrets=world.secrets, limits=limits)
    threads = ToolThreads(settings.threads)
    processes = ToolProcesses(settings.threads)
    channels, webhooks = _channels(settings, world, clock)
    signals = SignalsFromSteps()
    hooking = webhook_parts(settings, secret_key, storage.webhooks, storage.deliveries)
    posting = HttpCalls(world.connections.guard)
    tools = ToolCalls(
        world.registry,
        clock,
        connections=world.connections,
        secrets=world.secrets,
        threads=threads,
        processes=processes,
        callbacks=callback_urls(CallbackLinks(signer, settings.url), clock),
        tell=channels.tell,
        signals=signals,
        log=log.tool,
    )
    breakers = Breakers(clock, policies=settings.breaker_policies(), news=None if shared is None else shared.news)
    rated = RatedCalls(tools, rates, {name: Rate(one.limit, one.per) for name, one in settings.rates.items()})
    recalling = RecallingCalls(GuardedCalls(rated, breakers, tool_circuit), storage.last_good, clock)
    executors: Mapping[Kind, Executor] = {Kind.TOOL_CALL: recalling, Kind.LLM_TASK: GuardedCalls(models, breakers, model_circuit)}
    told = None if shared is None else progress_of(shared.progress)
    engine = Engine(
        storage.instances,
        catalog,
        executors.__getitem__,
        clock,
        name=settings.node,
        random=random,
        capacity=settings.capacity,
        lease=settings.lease,
        heartbeat=settings.lease / 3.5,
        notifiers={
            NOTICE: ApprovalNotices(ApprovalLinks(signer, settings.url), channels, Members(settings.roles), channels.reader),
            **webhook_notifiers(hooking, Instances(storage.queries, catalog), posting, clock),
        },
        keeping=Keeping(settings.deliveries_kept, settings.dead_letters_kept),
        feed=storage.webhooks,
        wakeup=None if shared is None else shared.wakeup,
        leases=None if shared is None else shared.leases,
        observe=to_all(*(one for one in (log.observe, metrics.observe, told, observe) if one is not None)),
    )
    metrics.gauge("agiwo_instances_held", "Instances in memory.", lambda: engine.load)
    metrics.gauge("agiwo_circuits_open", "Circuits that let no call through, or only a probe.", breakers.standing)
    if shared is not None:
        shared.show(metrics)
    configured = api_keys(settings)
    services = build_services(
        engine=engine,
        records=storage.records,
        workflows=storage.workflows,
        queries=storage.queries,
        oversight=storage.oversight,
        limits=limits_of(engine, threads, processes, world.profiles),
        answered=storage.answered,
        keys=storage.keys,
        breakers=breakers,
        webhooks=hooking,
        catalog=catalog,
        tools=world.registry.contracts,
        clock=clock,
        random=random,
        signer=signer,
        public_url=settings.url,
        configured_keys=configured,
        # A service without any model still takes definitions that need one: other nodes may have it.
        models={name: ProfileContract(profile) for name, profile in world.profiles.items()} or None,
        secrets=world.secrets.keys(),
        barred=world.connections.barred,
        progress=None if shared is None else shared.progress,
        redis=None if shared is None else lambda: shared.link.up,
    )
    signals.signalling = services.signalling
    async with AsyncExitStack() as stack:
        stack.push_async_callback(world.connections.close)
        stack.push_async_callback(posting.close)
        for webhook in webhooks:
            stack.push_async_callback(webhook.close)
        stack.push_async_callback(processes.close)
        for provider in world.providers.values():
            stack.push_async_callback(provider.close)
        stack.push_async_callback(recalling.settled)
        for hearing in (breakers.listen(), limits.listen()):
            listening = asyncio.create_task(hearing)
            stack.push_async_callback(asyncio.wait, [listening])
            stack.callback(listening.cancel)
        await engine.start()
        stack.push_async_callback(engine.drain, settings.drain)
        ring = KeyRing(configured, storage.keys, clock)
        yield Parts(services, engine, ring, lambda: (generate_latest(metrics.registry), CONTENT_TYPE_LATEST))


def _channels(settings: Settings, world: World, clock: Clock) -> tuple[Channels, list[WebhookNotifier]]:
    """The channels by name, and those that hold connections. Without any in the settings `mail` is one if there is such a connection.

    Raises SettingsRefused for one that cannot be used.
    """
    given = dict(settings.channels)
    if "mail" not in given and "mail" in settings.connections and settings.connections["mail"].kind == "smtp":
        given["mail"] = ChannelSetting()
    made: dict[str, Channel] = {}
    webhooks: list[WebhookNotifier] = []
    for name, one in given.items():
        notifier: Notifier
        try:
            if one.kind == "mail":
                world.connections.get(one.connection, "smtp")
                notifier = MailNotifier(world.connections, clock, one.connection)
            else:
                url = _from_environment(name, one.url.get_secret_value() if one.url is not None else "")
                notifier = ChatNotifier(url) if one.kind == "apprise" else WebhookNotifier(url, world.connections.guard)
        except (ValueError, StepError) as exc:
            raise SettingsRefused(f"the settings cannot be used: the channel {name!r}: {exc}") from None
        if isinstance(notifier, WebhookNotifier):
            webhooks.append(notifier)
        tenants = None if one.tenants is None else frozenset(one.tenants)
        made[name] = Channel(notifier, one.kind == "mail", one.to, one.principal, tenants)
    return Channels(made), webhooks


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


class LogBridge(logging.Handler):
    """Passes what libraries log by Python's own logging into the one log."""

    def __init__(self, log: Log, clock: Clock, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._log = log
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields: dict[str, Any] = {"logger": record.name}
            if record.exc_info and record.exc_info[1] is not None:
                fields["exception"] = logging.Formatter().formatException(record.exc_info)
            self._log.line(record.levelname, record.getMessage(), self._clock.now(), **fields)
        except Exception:
            self.handleError(record)
