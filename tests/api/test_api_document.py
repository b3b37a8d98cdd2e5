"""The OpenAPI document: complete, and true to the words of the language."""

from __future__ import annotations

from agiwo.machine.state import StepStatus
from kit.api import World

ROUTES = {
    "/v1/workflows": {"get", "post"},
    "/v1/workflows/validate": {"post"},
    "/v1/workflows/{workflow_id}": {"get", "delete"},
    "/v1/schema": {"get"},
    "/v1/workflows/preview": {"post"},
    "/v1/workflows/{workflow_id}/preview": {"post"},
    "/v1/workflows/{workflow_id}/diff": {"get"},
    "/v1/workflows/{workflow_id}/default": {"post"},
    "/v1/workflows/{workflow_id}/deprecate": {"post"},
    "/v1/workflows/{workflow_id}/pause": {"post"},
    "/v1/workflows/{workflow_id}/resume": {"post"},
    "/v1/workflows/{workflow_id}/drafts": {"get"},
    "/v1/workflows/{workflow_id}/drafts/{version}": {"get", "delete"},
    "/v1/workflows/{workflow_id}/versions": {"get"},
    "/v1/workflows/{workflow_id}/versions/{version}": {"get", "delete"},
    "/v1/workflows/{workflow_id}/graph": {"get"},
    "/v1/workflows/{workflow_id}/trigger": {"post"},
    "/v1/instances": {"get"},
    "/v1/instances/{instance_id}": {"get"},
    "/v1/instances/{instance_id}/steps": {"get"},
    "/v1/instances/{instance_id}/steps/{path}": {"get"},
    "/v1/instances/{instance_id}/steps/{path}/reconcile": {"post"},
    "/v1/instances/{instance_id}/trace": {"get"},
    "/v1/instances/{instance_id}/history": {"get"},
    "/v1/instances/{instance_id}/graph": {"get"},
    "/v1/instances/{instance_id}/events": {"get"},
    "/v1/instances/{instance_id}/cancel": {"post"},
    "/v1/instances/{instance_id}/signals": {"post"},
    "/v1/instances/{instance_id}/resume": {"post"},
    "/v1/signals": {"post"},
    "/v1/callbacks/{token}": {"post"},
    "/v1/callbacks/{token}/fail": {"post"},
    "/v1/callbacks/{token}/heartbeat": {"post"},
    "/v1/approvals": {"get"},
    "/v1/approvals/{approval_id}": {"get"},
    "/v1/approvals/{approval_id}/approve": {"post"},
    "/v1/approvals/{approval_id}/reject": {"post"},
    "/v1/approvals/{approval_id}/decide": {"post"},
    "/v1/tools": {"get"},
    "/v1/tools/{name}": {"get"},
    "/v1/instances/{instance_id}/usage": {"get"},
    "/v1/admin/usage": {"get"},
    "/v1/admin/traces": {"get"},
    "/v1/admin/traces/summary": {"get"},
    "/v1/admin/nodes": {"get"},
    "/v1/admin/queues": {"get"},
    "/v1/admin/audit": {"get"},
    "/v1/admin/invariants": {"get"},
    "/v1/admin/limits": {"get"},
    "/v1/admin/breakers": {"get"},
    "/v1/admin/breakers/{name}/reset": {"post"},
    "/v1/admin/breakers/{name}/open": {"post"},
    "/v1/admin/triggers": {"get"},
    "/v1/admin/instances": {"get"},
    "/v1/admin/instances/{instance_id}": {"get"},
    "/v1/admin/instances/{instance_id}/steps": {"get"},
    "/v1/admin/instances/{instance_id}/steps/{path}": {"get"},
    "/v1/admin/instances/{instance_id}/trace": {"get"},
    "/v1/admin/instances/{instance_id}/history": {"get"},
    "/v1/admin/keys": {"get", "post"},
    "/v1/admin/keys/{key_id}": {"get"},
    "/v1/admin/keys/{key_id}/revoke": {"post"},
    "/v1/admin/keys/{key_id}/rotate": {"post"},
    "/v1/admin/callback-secret": {"post"},
    "/v1/admin/outbox": {"get"},
    "/v1/webhooks": {"get", "post"},
    "/v1/webhooks/{webhook_id}": {"get", "patch", "delete"},
    "/v1/webhooks/{webhook_id}/rotate": {"post"},
    "/v1/webhooks/{webhook_id}/test": {"post"},
    "/v1/webhooks/{webhook_id}/deliveries": {"get"},
    "/v1/webhooks/deliveries/{delivery_id}/redeliver": {"post"},
    "/v1/webhooks/approvals/{channel}": {"post"},
    "/v1/hooks/{name}": {"post"},
    "/healthz": {"get"},
    "/readyz": {"get"},
}


async def test_every_route_stands_in_the_document_with_its_refusals(world: World) -> None:
    document = (await world.anonymous.get("/openapi.json")).json()
    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"]
            if path.startswith("/v1/"):
                for status in ("400", "401", "403", "422", "503"):
                    assert "application/problem+json" in operation["responses"][status]["content"]
    schemas = document["components"]["schemas"]
    assert schemas["StepStatus"]["enum"] == [str(status) for status in StepStatus]
    assert {"PENDING", "RUNNING", "SUCCESS", "FAILED", "WAITING_FOR_APPROVAL"} <= set(schemas["StepStatus"]["enum"])
