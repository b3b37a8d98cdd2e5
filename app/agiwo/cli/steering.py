"""Commands that steer a workflow or an instance that stands: hold new starts, mark a version, say what became of a call.

They ask the service, which decides whether it may be done; nothing here knows the rules.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from uuid import UUID

from agiwo.cli.client import Client
from agiwo.cli.online import given_json, hinting, id_text
from agiwo.cli.screen import WRONG_USE, CommandEnds, give, say


async def pause(server: str, key: str | None, workflow: str, reason: str | None, as_json: bool) -> None:
    """Start nothing new of a workflow."""
    async with Client(server, key) as client, hinting(client, workflow):
        answer = await client.post(f"{_path(workflow)}/pause", _body(reason))
    _show(answer, f"{workflow} starts nothing new; let it go on with: agiwo resume {workflow}", as_json)


async def resume(server: str, key: str | None, id: str, reason: str | None, as_json: bool) -> None:
    """Let an interrupted instance go on, or a workflow start again."""
    try:
        instance = str(UUID(id))
    except ValueError:
        async with Client(server, key) as client, hinting(client, id):
            answer = await client.post(f"{_path(id)}/resume", _body(reason))
        _show(answer, f"{id} starts again when it is triggered", as_json)
        return
    async with Client(server, key) as client:
        answer = await client.post(f"/v1/instances/{instance}/resume", _body(reason))
    _show(answer, f"instance {answer['instance_id']} goes on", as_json)


async def default(server: str, key: str | None, workflow: str, version: str | None, none: bool, reason: str | None, as_json: bool) -> None:
    """Mark the version that triggers take, or take the mark away."""
    if (version is None) is not none:
        raise CommandEnds(WRONG_USE, "name one version, or say --none to take the mark away")
    async with Client(server, key) as client, hinting(client, workflow):
        answer = await client.post(f"{_path(workflow)}/default", {"version": version, **_body(reason)})
    _show(answer, f"{workflow}: triggers that name no version take {answer['version'] or 'none'}", as_json)


async def reconcile(
    server: str, key: str | None, instance: str, step: str, done: bool, result: str | None, reason: str | None, as_json: bool
) -> None:
    """Say whether the call of an UNKNOWN step was done, and with which result."""
    if result is not None and not done:
        raise CommandEnds(WRONG_USE, "--result goes with --done: a call that was not done is made again")
    body: dict[str, Any] = {"done": done, **_body(reason)}
    if result is not None:
        body["result"] = given_json(result, "--result")
    async with Client(server, key) as client:
        answer = await client.post(f"/v1/instances/{id_text(instance, 'instance')}/steps/{quote(step, safe='~')}/reconcile", body)
    _show(answer, f"{step}: {'goes on as done' if done else 'is called again'}", as_json)


def _path(workflow: str) -> str:
    return f"/v1/workflows/{quote(workflow, safe='')}"


def _body(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"reason": reason}


def _show(answer: Any, said: str, as_json: bool) -> None:
    if as_json:
        give(answer)
    else:
        say(said)
