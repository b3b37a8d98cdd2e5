"""The webhooks on Postgres; each method is one statement.

It holds sealed secrets alone and sends nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Float, Row, Select, Text, cast, extract, select
from sqlalchemy.ext.asyncio import AsyncEngine

from agiwo.ports.webhooks import SealedSecret, Subscription, Webhook
from agiwo.store import schema
from agiwo.store.pool import connected
from agiwo.store.statements import STATEMENTS
from agiwo.values import decode, encode

_w = schema.webhook.c
_COLUMNS = (
    _w.id, _w.tenant, _w.url, _w.events, cast(_w.secrets, Text).label("secrets"),
    cast(extract("epoch", _w.created_at), Float).label("created_at"), cast(extract("epoch", _w.updated_at), Float).label("updated_at"),
    _w.created_by, _w.workflow, _w.description, _w.header_names, _w.headers, _w.include_output, _w.active, _w.disabled_reason, _w.revision,
)  # fmt: skip


class PostgresWebhooks:
    """WebhookStore on a pool made by `service_engine`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def news(self) -> int:
        rows = await self._ask("read_webhook_news")
        return int(rows[0].number) if rows else 0

    async def subscriptions(self) -> list[Subscription]:
        return [
            Subscription(row.id, row.tenant, tuple(row.events), row.workflow, row.include_output)
            for row in await self._ask("list_subscriptions")
        ]

    async def add(self, webhook: Webhook) -> Webhook:
        rows = await self._ask("insert_webhook", *_head(webhook), webhook.created_at, webhook.created_by, webhook.updated_at)
        return _revised(webhook, rows[0].revision)

    async def get(self, tenant: str, id: UUID) -> Webhook | None:
        return next(iter(await self._webhooks(select(*_COLUMNS).where(_w.tenant == tenant, _w.id == id))), None)

    async def listed(self, tenant: str, before: UUID | None, limit: int) -> list[Webhook]:
        statement = select(*_COLUMNS).where(_w.tenant == tenant).order_by(_w.id.desc()).limit(limit)
        return await self._webhooks(statement if before is None else statement.where(_w.id < before))

    async def change(self, webhook: Webhook) -> Webhook | None:
        rows = await self._ask("change_webhook_if_unchanged", *_head(webhook), webhook.updated_at, webhook.revision)
        return _revised(webhook, rows[0].revision) if rows else None

    async def disable(self, tenant: str, id: UUID, reason: str) -> None:
        async with connected(self._engine) as connection:
            await connection.exec_driver_sql(STATEMENTS["disable_webhook"].text, (tenant, id, reason))

    async def remove(self, tenant: str, id: UUID) -> bool:
        return bool(await self._ask("delete_webhook", tenant, id))

    async def _webhooks(self, statement: Select[Any]) -> list[Webhook]:
        async with connected(self._engine) as connection:
            rows = (await connection.execute(statement)).mappings().all()
        return [
            Webhook(
                **{
                    **row,
                    "events": tuple(row["events"]),
                    "header_names": tuple(row["header_names"]),
                    "secrets": tuple(SealedSecret(*secret) for secret in decode(row["secrets"])),
                }
            )
            for row in rows
        ]

    async def _ask(self, name: str, *values: Any) -> list[Row[Any]]:
        async with connected(self._engine) as connection:
            return list((await connection.exec_driver_sql(STATEMENTS[name].text, values)).all())


def _head(webhook: Webhook) -> tuple[Any, ...]:
    return (
        webhook.tenant, webhook.id, webhook.url, list(webhook.events), webhook.workflow, webhook.description, list(webhook.header_names),
        webhook.headers, encode([[s.sealed, s.since, s.until] for s in webhook.secrets]), webhook.include_output, webhook.active,
        webhook.disabled_reason,
    )  # fmt: skip


def _revised(webhook: Webhook, revision: int) -> Webhook:
    return Webhook(**{**{name: getattr(webhook, name) for name in Webhook.__slots__}, "revision": revision})
