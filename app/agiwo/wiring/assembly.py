"""Puts a service together on one storage and takes it apart again, in an order that loses nothing: executors, engine, services.

It reads settings and decides nothing else; each part has a module of its own beside this one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random, SystemRandom

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agiwo.clock import Clock, SystemClock
from agiwo.engine.events import Observe, to_all
from agiwo.engine.node import Engine
from agiwo.engine.outbox import Keeping
from agiwo.models.contract import ProfileContract
from agiwo.outbound.http import HttpCalls
from agiwo.service.definitions import Catalog
from agiwo.service.instances import Instances
from agiwo.service.keyring import KeyRing
from agiwo.service.notices import ApprovalNotices
from agiwo.service.services import Services, build_services
from agiwo.service.tokens import ApprovalLinks, CallbackLinks, Signer
from agiwo.settings import Settings
from agiwo.telemetry.log import Log
from agiwo.telemetry.metrics import Metrics
from agiwo.wiring.callbacks import callback_urls
from agiwo.wiring.channels import Members, open_channels
from agiwo.wiring.credentials import api_keys
from agiwo.wiring.execution import execution
from agiwo.wiring.limits import limits_of
from agiwo.wiring.shared import progress_of
from agiwo.wiring.signals import SignalsFromSteps
from agiwo.wiring.storage import Storage
from agiwo.wiring.webhooks import secret_keys, webhook_notifiers, webhook_parts
from agiwo.wiring.world import World

NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Parts:
    """What stands and runs; `exposition` gives the metrics and their content type."""

    services: Services
    engine: Engine
    keys: KeyRing
    exposition: Callable[[], tuple[bytes, str]]


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
    metrics, shared = Metrics(), storage.shared
    configured = api_keys(settings)
    signer = Signer(secret_keys(settings, secret_key))
    catalog = Catalog(storage.records, world.registry.contracts, clock)
    hooking = webhook_parts(settings, secret_key, storage.webhooks, storage.deliveries)
    signals = SignalsFromSteps()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(world.connections.close)
        posting = HttpCalls(world.connections.guard)
        stack.push_async_callback(posting.close)
        channels, webhooks = open_channels(settings, world.connections, clock)
        for webhook in webhooks:
            stack.push_async_callback(webhook.close)
        calls = await stack.enter_async_context(
            execution(
                settings,
                storage,
                world,
                log,
                clock,
                random,
                callbacks=callback_urls(CallbackLinks(signer, settings.url), clock),
                channels=channels,
                signals=signals,
            )
        )
        told = None if shared is None else progress_of(shared.progress)
        engine = Engine(
            storage.instances,
            catalog,
            calls.executors.__getitem__,
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
        limits = limits_of(engine, calls.threads, calls.processes, world.profiles)
        services = build_services(
            engine=engine,
            records=storage.records,
            workflows=storage.workflows,
            queries=storage.queries,
            oversight=storage.oversight,
            refused=log.refused,
            limits=limits,
            answered=storage.answered,
            keys=storage.keys,
            breakers=calls.breakers,
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
        metrics.gauge("agiwo_instances_held", "Instances in memory.", lambda: engine.load)
        metrics.gauge("agiwo_circuits_open", "Circuits that let no call through, or only a probe.", calls.breakers.standing)
        metrics.limits(limits)
        if shared is not None:
            shared.show(metrics)
        await engine.start()
        stack.push_async_callback(engine.drain, settings.drain)
        ring = KeyRing(configured, storage.keys, clock)
        yield Parts(services, engine, ring, lambda: (generate_latest(metrics.registry), CONTENT_TYPE_LATEST))
