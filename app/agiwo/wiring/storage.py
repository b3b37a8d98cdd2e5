"""One database from all its sides: what the engine, the services and the lists ask of it, and what nodes share over Redis beside it.

It opens and closes; what is kept where is the matter of `store`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from agiwo.clock import Clock
from agiwo.ports.answered import AnsweredCalls
from agiwo.ports.deliveries import Deliveries
from agiwo.ports.keys import KeyStore
from agiwo.ports.last_good import LastGood
from agiwo.ports.oversight import Oversight
from agiwo.ports.queries import Queries
from agiwo.ports.records import Records
from agiwo.ports.store import InstanceStore
from agiwo.ports.webhooks import WebhookStore
from agiwo.ports.workflows import WorkflowStore
from agiwo.settings import Settings
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
from agiwo.wiring.shared import Shared, shared_over_redis


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
