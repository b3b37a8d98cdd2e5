"""The OpenAPI document: complete, true to the words of the language, and kept by the application under fuzzing."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvicorn

from agiwo.machine.state import StepStatus
from kit.api import World

ROUTES = {
    "/v1/workflows": {"get", "post"},
    "/v1/workflows/validate": {"post"},
    "/v1/workflows/{workflow_id}": {"get"},
    "/v1/workflows/{workflow_id}/versions": {"get"},
    "/v1/workflows/{workflow_id}/versions/{version}": {"get"},
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
    "/v1/admin/triggers": {"get"},
    "/v1/admin/instances/{instance_id}/trace": {"get"},
    "/v1/admin/keys": {"get", "post"},
    "/v1/admin/keys/{key_id}": {"get"},
    "/v1/admin/keys/{key_id}/revoke": {"post"},
    "/v1/admin/keys/{key_id}/rotate": {"post"},
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


@pytest.fixture(scope="module")
async def address(world: World) -> AsyncIterator[str]:
    """Where the application listens."""
    server = uvicorn.Server(uvicorn.Config(world.app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        running = asyncio.create_task(server.serve(sockets=[listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await running


async def test_generated_requests_find_no_answer_that_is_not_documented(address: str, tmp_path: Path) -> None:
    # What data depends on (a definition's meaning, a cursor that was handed out) no schema can say: those may be refused.
    command = [
        str(Path(sys.executable).parent / "st"), "run", f"{address}/openapi.json", "--header", "Authorization: Bearer secret-a",
        "--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--seed", "1", "--exclude-path-regex", "/events$",
        "--exclude-checks", "positive_data_acceptance", "--no-color",
    ]  # fmt: skip
    fuzzing = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    said, _ = await fuzzing.communicate()
    assert fuzzing.returncode == 0, said.decode()[-6000:]
