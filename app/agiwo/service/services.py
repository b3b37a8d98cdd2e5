"""All verbs in one place, as routes, pages, the command line and the library are given them.

Wiring builds it; nothing here knows how anything is stored or sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random

from agiwo.clock import Clock
from agiwo.definition.contract import ToolContract
from agiwo.engine.node import Engine
from agiwo.outbound.sealing import Sealer
from agiwo.ports.answered import AnsweredCalls
from agiwo.ports.breakers import BreakerSwitch
from agiwo.ports.deliveries import Deliveries
from agiwo.ports.keys import KeyStore
from agiwo.ports.limits import LimitSource
from agiwo.ports.oversight import Oversight
from agiwo.ports.progress import Progress
from agiwo.ports.queries import Queries
from agiwo.ports.records import Records
from agiwo.ports.webhooks import WebhookStore
from agiwo.ports.workflows import WorkflowStore
from agiwo.service.approvals import Approvals
from agiwo.service.callbacks import Callbacks
from agiwo.service.callers import ApiKeys
from agiwo.service.circuits import Circuits
from agiwo.service.comparing import Comparing
from agiwo.service.definitions import Catalog
from agiwo.service.drafts import Drafts
from agiwo.service.following import Following
from agiwo.service.hooks import ApprovalChannel, Hook, Hooks
from agiwo.service.instances import Instances
from agiwo.service.keys import Keys
from agiwo.service.oversight import Overseeing
from agiwo.service.previewing import Previewing
from agiwo.service.publish import Barring, Publishing
from agiwo.service.readiness import Readiness
from agiwo.service.repeats import Repeats
from agiwo.service.running import Running
from agiwo.service.signalling import Signalling
from agiwo.service.steering import Steering
from agiwo.service.tokens import ApprovalLinks, CallbackLinks, Cursors, Signer
from agiwo.service.trigger import Refused, Triggering
from agiwo.service.usage import UsageReading
from agiwo.service.webhooks import Webhooks
from agiwo.service.workflows import Workflows


@dataclass(frozen=True, slots=True)
class Services:
    """What the product can do. `links` make and read approval links, `cursors` the places in lists."""

    clock: Clock
    queries: Queries
    catalog: Catalog
    publishing: Publishing
    workflows: Workflows
    drafts: Drafts
    previewing: Previewing
    comparing: Comparing
    triggering: Triggering
    running: Running
    instances: Instances
    following: Following
    steering: Steering
    usage: UsageReading
    overseeing: Overseeing
    node: str
    approvals: Approvals
    callbacks: Callbacks
    links: ApprovalLinks
    cursors: Cursors
    tools: Callable[[], Mapping[str, ToolContract]]
    serving: Callable[[], bool]
    database: Readiness
    repeats: Repeats
    keys: Keys
    circuits: Circuits
    signalling: Signalling
    webhooks: Webhooks
    hooks: Hooks
    redis: Callable[[], bool] | None = None

    async def ready(self) -> tuple[bool, Mapping[str, bool]]:
        """Whether work may be sent here, and what works, part by part; Redis is one of them, but nothing depends on it."""
        needed = {"database": await self.database.now(), "engine": self.serving()}
        return all(needed.values()), needed if self.redis is None else {**needed, "redis": self.redis()}


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """What webhooks stand on: `callback_secret` gives a tenant's secret, `hooks` and `channels` are the configured ones by name."""

    store: WebhookStore
    deliveries: Deliveries
    sealer: Sealer
    callback_secret: Callable[[str], str]
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    channels: Mapping[str, ApprovalChannel] = field(default_factory=dict)


def build_services(
    *,
    engine: Engine,
    records: Records,
    workflows: WorkflowStore,
    queries: Queries,
    oversight: Oversight,
    refused: Refused | None = None,
    limits: LimitSource,
    answered: AnsweredCalls,
    keys: KeyStore,
    breakers: BreakerSwitch,
    webhooks: WebhookParts,
    catalog: Catalog,
    tools: Callable[[], Mapping[str, ToolContract]],
    clock: Clock,
    random: Random,
    signer: Signer,
    public_url: str,
    configured_keys: ApiKeys | None = None,
    models: Collection[str] | None = None,
    secrets: Collection[str] | None = None,
    barred: Barring | None = None,
    progress: Progress | None = None,
    redis: Callable[[], bool] | None = None,
) -> Services:
    """All verbs over one engine and one storage.

    `catalog` is also what the engine got as its definitions; `tools` gives the contracts by name; `signer` holds the secret keys of links
    and cursors; `public_url` is the address that links begin with; `configured_keys` are the API keys of the settings; `models` and
    `secrets` are the names of model profiles and of secrets (None: not checked); `barred` says why a
    tenant's tool may not use a connection; `progress` tells of commits on other nodes, and `redis` whether Redis answers (None: without).
    """
    instances = Instances(queries, catalog)
    triggering = Triggering(catalog, engine, records, workflows, clock, random, refused=refused)
    publishing = Publishing(records, catalog, tools, models, secrets, barred)
    following = Following(queries, instances, engine, progress)
    approvals = Approvals(queries, records, catalog, clock, engine.poke)
    links = ApprovalLinks(signer, public_url)
    signalling = Signalling(queries, records, instances, clock, engine.poke)
    return Services(
        clock=clock,
        queries=queries,
        catalog=catalog,
        publishing=publishing,
        workflows=Workflows(workflows, records, catalog),
        drafts=Drafts(workflows, records, catalog, publishing),
        previewing=Previewing(catalog, publishing, clock),
        comparing=Comparing(catalog),
        triggering=triggering,
        running=Running(triggering, instances, following, clock),
        instances=instances,
        following=following,
        steering=Steering(instances, records, engine.poke),
        usage=UsageReading(queries, clock),
        node=engine.name,
        overseeing=Overseeing(oversight, limits),
        approvals=approvals,
        callbacks=Callbacks(CallbackLinks(signer, public_url), instances, records, clock, engine.poke),
        links=links,
        cursors=Cursors(signer),
        tools=tools,
        serving=lambda: engine.running,
        database=Readiness(queries.ready),
        repeats=Repeats(answered, clock),
        keys=Keys(keys, records, clock, random, configured_keys or ApiKeys()),
        circuits=Circuits(breakers, records, tools),
        signalling=signalling,
        redis=redis,
        webhooks=Webhooks(
            webhooks.store,
            webhooks.deliveries,
            records,
            webhooks.sealer,
            clock,
            random,
            changed=engine.subscriptions.hurry,
            posted=engine.deliver,
            callback_secret=webhooks.callback_secret,
        ),
        hooks=Hooks(webhooks.hooks, webhooks.channels, triggering, signalling, approvals, links, clock),
    )
