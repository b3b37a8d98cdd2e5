"""Commands that talk to a running service: publish, trigger, show, watch, approve, reject.

They show what the API says; nothing here knows how the service works.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

from agiwo.cli.client import WITHIN, Client
from agiwo.cli.screen import FAILED, WRONG_USE, CommandEnds, give, problem_lines, read_file, say, tell
from agiwo.cli.shown import instance_lines, record_line
from agiwo.errors import ValueRefused
from agiwo.names import nearest
from agiwo.values import decode_strict

LONGEST_WAIT = 60.0
ENDED = ("SUCCESS", "FAILED", "CANCELLED", "TIMED_OUT")
LOOKED_THROUGH = 1000  # workflows among which the nearest name is looked for
YAML, JSON_TYPE = "application/yaml", "application/json"


async def publish(server: str, key: str | None, files: Sequence[Path], draft: bool, as_json: bool) -> None:
    """Publish each file, or keep it as a draft; all are tried, and the command fails if one was refused."""
    refused: list[CommandEnds] = []
    documents = []
    path = "/v1/workflows?draft=true" if draft else "/v1/workflows"
    async with Client(server, key) as client:
        for file in files:
            text = read_file(file)
            try:
                answer = await client.post_text(path, text, JSON_TYPE if file.suffix == ".json" else YAML)
            except CommandEnds as exc:
                if exc.status != FAILED:
                    raise
                refused.append(exc)
                documents.append({"file": str(file), "refused": exc.document})
                if not as_json:
                    _show_refusal(str(file), exc)
                continue
            documents.append({"file": str(file), **answer})
            if not as_json:
                for line in problem_lines(answer.get("problems", ()), str(file)):
                    say(line)
                word = {"created": "published", "draft": "kept as a draft"}.get(answer["published"], "there already")
                say(f"{file}: {answer['workflow_id']} {answer['version']} is {word}")
    if as_json:
        give(documents if len(files) > 1 else documents[0])
    if refused:
        raise CommandEnds(FAILED)


def _show_refusal(file: str, exc: CommandEnds) -> None:
    errors = exc.document.get("errors") if isinstance(exc.document, Mapping) else None
    if not errors or exc.document.get("code") == "version_exists":
        tell(f"{file}: error: {exc.message.splitlines()[0]}")
    for line in problem_lines(errors or (), file):
        tell(line)


async def trigger(
    server: str,
    key: str | None,
    workflow: str,
    input: str | None,
    version: str | None,
    idempotency: str | None,
    correlation_key: str | None,
    wait: float | None,
    as_json: bool,
) -> None:
    """Start an instance; with `wait` the command's status is that of the instance."""
    body: dict[str, Any] = {"input": given_json(input, "--input") if input is not None else {}}
    if version is not None:
        body["version"] = version
    if correlation_key is not None:
        body["correlation_key"] = correlation_key
    if wait is not None and not 0 <= wait <= LONGEST_WAIT:
        raise CommandEnds(WRONG_USE, f"--wait takes 0 to {LONGEST_WAIT:g} seconds; `agiwo watch` follows for longer")
    # Two tries of one command are one trigger, even if the first answer was lost.
    once = idempotency or f"cli-{uuid4()}"
    query = f"?wait={wait:g}s" if wait else ""
    async with Client(server, key) as client:
        async with hinting(client, workflow):
            path = f"/v1/workflows/{quote(workflow, safe='')}/trigger{query}"
            answer = await client.post(path, body, key=once, within=WITHIN + (wait or 0))
        if wait and "steps" not in answer:
            answer = await client.get(f"/v1/instances/{answer['instance_id']}")
    if as_json:
        give(answer)
    elif wait:
        for line in instance_lines(answer):
            say(line)
    else:
        say(f"{answer['workflow_id']} {answer['version']}: instance {answer['instance_id']} is {answer['status']}")
        tell(f"follow it with: agiwo watch {answer['instance_id']}")
    if wait:
        _end_as(answer["status"])


@asynccontextmanager
async def hinting(client: Client, workflow: str) -> AsyncIterator[None]:
    """Where the service knows no such workflow, say which one may be meant."""
    try:
        yield
    except CommandEnds as exc:
        if not isinstance(exc.document, Mapping) or exc.document.get("code") not in ("workflow_not_found", "version_not_found"):
            raise
        near = nearest(workflow, [row["workflow_id"] async for row in client.pages("/v1/workflows", LOOKED_THROUGH)])
        if near is None or near == workflow:
            raise
        raise CommandEnds(exc.status, f"{exc.message}; did you mean `{near}`?", {**exc.document, "nearest": near}) from None


async def tools(server: str, key: str | None, name: str | None, as_json: bool) -> None:
    """List the tools of the service, or show the contract of one."""
    async with Client(server, key) as client:
        found = await client.get("/v1/tools" if name is None else f"/v1/tools/{quote(name, safe='')}")
    if as_json:
        give(found)
        return
    for contract in [found] if name is not None else found["items"]:
        say(f"{contract['name']} ({contract['effect']}): {contract['description']}")
    if name is None:
        return
    for parameter, schema in found["parameters"].get("properties", {}).items():
        needed = "needed" if parameter in found["parameters"].get("required", ()) else "optional"
        kind = schema.get("type", "any value") if isinstance(schema, Mapping) else "any value"
        told = schema.get("description", "") if isinstance(schema, Mapping) else ""
        say(f"  {parameter}: {kind if isinstance(kind, str) else ' or '.join(kind)}, {needed}. {told}".rstrip())


async def show(server: str, key: str | None, instance: str, as_json: bool) -> None:
    """Show one instance."""
    async with Client(server, key) as client:
        view = await client.get(f"/v1/instances/{id_text(instance, 'instance')}")
    if as_json:
        give(view)
        return
    for line in instance_lines(view):
        say(line)


async def watch(server: str, key: str | None, instance: str, as_json: bool) -> None:
    """Follow one instance; the command's status is that of the instance."""
    path = f"/v1/instances/{id_text(instance, 'instance')}"
    async with Client(server, key) as client:
        async for event in client.events(f"{path}/events"):
            if as_json:
                give(event.data)
            elif isinstance(event.data, Mapping) and (line := record_line(event.data)):
                say(line)
        view = await client.get(path)
    if not as_json:
        for line in instance_lines(view, steps=False):
            say(line)
    _end_as(view["status"])


async def decide(
    server: str,
    key: str | None,
    action: str,
    id: str,
    comment: str | None,
    digest: str | None,
    output: str | None,
    values: str | None,
    as_json: bool,
) -> None:
    """Approve or reject, by the approval's id or by that of the instance that waits for exactly one."""
    body: dict[str, Any] = {name: value for name, value in (("comment", comment), ("digest", digest)) if value is not None}
    if output is not None:
        body["output"] = given_json(output, "--output", text=True)
    if values is not None:
        body["values"] = given_json(values, "--values")
    async with Client(server, key) as client:
        approval = await _approval(client, id_text(id, "approval or instance"))
        answer = await client.post(f"/v1/approvals/{approval}/{action}", body)
    if as_json:
        give(answer)
    else:
        said = answer.get("decision") or {}
        say(f"{answer['title']}: {answer['status']}" + (f" by {said['by']}" if said.get("by") else ""))


async def signal(
    server: str, key: str | None, instance: str, event: str, payload: str | None, id: str | None, reason: str | None, as_json: bool
) -> None:
    """Send a signal to one instance."""
    # Two tries of one command are one signal, even if the first answer was lost.
    body: dict[str, Any] = {"event": event, "id": id or f"cli-{uuid4()}"}
    if payload is not None:
        body["payload"] = given_json(payload, "--payload")
    if reason is not None:
        body["reason"] = reason
    async with Client(server, key) as client:
        answer = await client.post(f"/v1/instances/{id_text(instance, 'instance')}/signals", body)
    if as_json:
        give(answer)
    else:
        say(f"{answer['event']}: {answer['receivers'][0]['result']} as {answer['signal_id']}")


async def cancel(server: str, key: str | None, instance: str, reason: str | None, as_json: bool) -> None:
    """Ask one instance to end."""
    body = {} if reason is None else {"reason": reason}
    async with Client(server, key) as client:
        answer = await client.post(f"/v1/instances/{id_text(instance, 'instance')}/cancel", body)
    if as_json:
        give(answer)
    else:
        say(f"instance {answer['instance_id']} was told to end; it is {answer['status']}")


async def _approval(client: Client, id: str) -> str:
    """The approval that is meant: by its own id, or the only pending one of an instance, else the one that was decided last."""
    found = await client.get("/v1/approvals", instance_id=id)
    pending = [item["approval_id"] for item in found["items"] if item["status"] == "pending"]
    if len(pending) > 1:
        raise CommandEnds(WRONG_USE, "\n".join([f"the instance {id} waits for several approvals; name one:", *pending]))
    # Of one that is decided the service says who did it, and takes the same decision again for what it is.
    return str(pending[0] if pending else found["items"][0]["approval_id"] if found["items"] else id)


def id_text(text: str, what: str) -> str:
    """An id as the API takes it. Raises CommandEnds for what is none."""
    try:
        return str(UUID(text))
    except ValueError:
        raise CommandEnds(WRONG_USE, f"{text[:80]!r} is no id of an {what}: expected something like {UUID(int=0)}") from None


def given_json(given: str, option: str, *, text: bool = False) -> Any:
    """The JSON that an option gives: in place, from @FILE, or from @- (standard input). Raises CommandEnds.

    With `text` whatever is no JSON is taken as the text that it is.
    """
    raw = read_file(Path(given[1:])) if given.startswith("@") else given.encode("utf-8", "surrogateescape")
    try:
        return decode_strict(raw)
    except ValueRefused as exc:
        if text:
            return raw.decode("utf-8", "replace")
        raise CommandEnds(WRONG_USE, f"{option}: {exc.message}; expected JSON such as {json.dumps({'week': '2026-W48'})}") from None


def _end_as(status: str) -> None:
    if status in ENDED and status != "SUCCESS":
        raise CommandEnds(FAILED)
