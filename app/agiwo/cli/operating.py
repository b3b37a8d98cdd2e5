"""The commands that look at what is there and steer it: their options, and nothing of what they do."""

from __future__ import annotations

from typing import Annotated

import typer

from agiwo.cli.options import (
    DEFAULT_SERVER,
    DEFINITIONS,
    INSTANCES,
    OPERATION,
    PEOPLE,
    Instance,
    Json,
    Key,
    Reason,
    Server,
    Workflow,
    call,
    offered,
)

app = typer.Typer()

Limit = Annotated[int, typer.Option("--limit", min=1, help="How many at most.")]
All = Annotated[bool, typer.Option("--all", help="All of them, page by page.")]


@app.command("list", rich_help_panel=INSTANCES, epilog="Example: agiwo list --status failed --since 2h")
def list_instances(
    status: Annotated[str | None, typer.Option(help="running, waiting, success, failed, cancelled …")] = None,
    workflow: Annotated[str | None, typer.Option(help="Id of the workflow.")] = None,
    version: Annotated[str | None, typer.Option(help="Version of the workflow.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="NAME:VALUE; may be repeated, all must fit.")] = None,
    error: Annotated[str | None, typer.Option(help="Type of the error that it ended with.")] = None,
    since: Annotated[str | None, typer.Option(help="Started since: a span as 2h or 7d, or a time as 2026-11-30T08:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Started until, in the same forms.")] = None,
    trace_id: Annotated[str | None, typer.Option("--trace-id", help="The trace that it belongs to, 32 hex digits.")] = None,
    correlation_key: Annotated[str | None, typer.Option("--correlation-key", help="The key that it was started with.")] = None,
    started_by: Annotated[str | None, typer.Option("--started-by", help="The principal who started it.")] = None,
    limit: Limit = 50,
    all: All = False,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List instances, the newest first; with --json a line for each."""
    wanted = {
        "status": status, "workflow": workflow, "version": version, "label": label, "error": error, "since": since, "until": until,
        "trace_id": trace_id, "correlation_key": correlation_key, "started_by": started_by,
    }  # fmt: skip
    call("lists", "instances", server, key, wanted, None if all else limit, as_json)


@app.command(rich_help_panel=DEFINITIONS, epilog="Example: agiwo workflows --containing report")
def workflows(
    containing: Annotated[str | None, typer.Option(help="Part of the id.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the workflows with the version that a trigger takes; with --json a line for each."""
    call("lists", "workflows", server, key, containing, as_json)


@app.command(rich_help_panel=PEOPLE, epilog="Example: agiwo approvals --assignee role:finance")
def approvals(
    status: Annotated[str, typer.Option(help="pending, approved, rejected, expired, cancelled, void or all.")] = "pending",
    assignee: Annotated[str | None, typer.Option(help="A principal among the approvers.")] = None,
    limit: Limit = 50,
    all: All = False,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List what waits for a decision, the newest first; with --json a line for each."""
    call("lists", "approvals", server, key, status, assignee, None if all else limit, as_json)


@app.command(rich_help_panel=INSTANCES, epilog="Example: agiwo trace 0191d3b0-0000-7000-8000-000000000000")
def trace(
    instance: Instance,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show what an instance did when: each run of a step with its time, attempts, error and calls of models."""
    call("traces", "trace", server, key, instance, as_json)


@app.command(rich_help_panel=INSTANCES, epilog="Example: agiwo cancel 0191d3b0-0000-7000-8000-000000000000 --reason 'not needed'")
def cancel(
    instance: Instance,
    reason: Reason = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Ask an instance to end; its handlers for that still run."""
    call("online", "cancel", server, key, instance, reason, as_json)


@app.command(rich_help_panel=INSTANCES, epilog="Example: agiwo resume 0191d3b0-0000-7000-8000-000000000000")
def resume(
    id: Annotated[str, typer.Argument(help="Id of the instance, or of a workflow that is paused.", autocompletion=offered("instance_ids"))],
    reason: Reason = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Let an instance go on from a step at which it was told to stop, or a paused workflow start again."""
    call("steering", "resume", server, key, id, reason, as_json)


@app.command(
    rich_help_panel=INSTANCES, epilog="Example: agiwo reconcile 0191d3b0-0000-7000-8000-000000000000 send --done --result '{\"id\": 7}'"
)
def reconcile(
    instance: Instance,
    step: Annotated[str, typer.Argument(help="Path of the step whose status is UNKNOWN.")],
    done: Annotated[bool, typer.Option("--done/--not-done", help="Whether the call has had its effect; if not it is made again.")],
    result: Annotated[str | None, typer.Option("--result", help="What the call gave: JSON, @FILE or @-.")] = None,
    reason: Reason = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Say what became of a call of which nobody knows whether it was done."""
    call("steering", "reconcile", server, key, instance, step, done, result, reason, as_json)


@app.command(rich_help_panel=DEFINITIONS, epilog="Example: agiwo pause greet --reason 'the bank is closed'")
def pause(workflow: Workflow, reason: Reason = None, server: Server = DEFAULT_SERVER, key: Key = None, as_json: Json = False) -> None:
    """Start nothing new of a workflow; what runs goes on. `agiwo resume` takes it back."""
    call("steering", "pause", server, key, workflow, reason, as_json)


@app.command(rich_help_panel=DEFINITIONS, epilog="Example: agiwo default greet 1.1")
def default(
    workflow: Workflow,
    version: Annotated[str | None, typer.Argument(help="The version that triggers take which name none.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Take the mark away: the highest version is taken.")] = False,
    reason: Reason = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Choose the version that triggers take which name none."""
    call("steering", "default", server, key, workflow, version, none, reason, as_json)


@app.command(rich_help_panel=OPERATION, epilog="Example: agiwo nodes")
def nodes(server: Server = DEFAULT_SERVER, key: Key = None, as_json: Json = False) -> None:
    """List the nodes with what they hold; with --json a line for each."""
    call("lists", "nodes", server, key, as_json)


@app.command(rich_help_panel=OPERATION, epilog="Example: agiwo doctor --json")
def doctor(server: Server = DEFAULT_SERVER, key: Key = None, as_json: Json = False) -> None:
    """Look whether all is well: parts, promises, nodes, queues, circuits, dead letters. Fails if anything is not."""
    call("doctor", "doctor", server, key, as_json)
