"""The commands with their options, and nothing else: what a command does is loaded when it is called.

So `agiwo --help` and the short commands start at once; a command's own file may import what it likes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from agiwo.cli import operating
from agiwo.cli.options import (
    DEFAULT_SERVER,
    DEFINITIONS,
    INSTANCES,
    OPERATION,
    PEOPLE,
    SERVICE,
    Comment,
    Config,
    DataDir,
    Digest,
    ExpiresIn,
    Instance,
    Json,
    Key,
    KeyId,
    Matter,
    Offline,
    Port,
    Reason,
    Server,
    Tenant,
    ToolModules,
    ToolsDir,
    Workflow,
    call,
)
from agiwo.cli.screen import FAILED, CommandEnds, give, tell

app = typer.Typer(
    name="agiwo",
    help="Durable workflows whose steps call tools, models and people.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
db = typer.Typer(help="The database of the service.", no_args_is_help=True)
app.add_typer(db, name="db", rich_help_panel=OPERATION)
keys = typer.Typer(help="API keys: who may call the service.", no_args_is_help=True)
app.add_typer(keys, name="keys", rich_help_panel=OPERATION)
app.add_typer(operating.app)


def main() -> None:
    """Run the command line and exit with its status; no stack trace ever reaches the terminal unless AGIWO_TRACEBACK is set."""
    as_json = "--json" in sys.argv
    try:
        app(prog_name="agiwo")
    except CommandEnds as exc:
        _report(exc, as_json)
        status = exc.status
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # Whoever read our output has enough; what Python flushes at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except Exception as exc:
        if os.environ.get("AGIWO_TRACEBACK"):
            raise
        tell(f"agiwo: {type(exc).__name__}: {exc} (set AGIWO_TRACEBACK=1 to see where)")
        status = FAILED
    else:
        return
    sys.exit(status)


def _report(exc: CommandEnds, as_json: bool) -> None:
    if exc.message:
        if as_json:
            give(exc.document if exc.document is not None else {"error": exc.message})
        else:
            tell(exc.message)


@app.command(rich_help_panel=SERVICE, epilog="Example: agiwo serve --embedded")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: 127.0.0.1).")] = None,
    port: Port = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Run a Postgres of its own in the data folder.")] = False,
    data_dir: DataDir = None,
    workflows: Annotated[Path | None, typer.Option("--workflows", help="Folder of definitions to publish at start.")] = None,
    config: Config = None,
    tools: ToolModules = None,
    tools_dir: ToolsDir = None,
    insecure_no_auth: Annotated[
        bool, typer.Option("--insecure-no-auth", help="Listen beyond loopback though anybody there may then do anything.")
    ] = False,
) -> None:
    """Run the service: API, pages and engine in one process. Needs AGIWO_DATABASE_URL or --embedded."""
    call(
        "serving", "serve", config=config, embedded=embedded, insecure_no_auth=insecure_no_auth, host=host, port=port, data_dir=data_dir,
        workflows_dir=workflows, tools=tuple(tools) if tools else None, tools_dir=tools_dir,
    )  # fmt: skip


@app.command(rich_help_panel=SERVICE, epilog="Example: agiwo dev workflows --tools my_tools.py")
def dev(
    folder: Annotated[Path | None, typer.Argument(help="Folder of definitions (default: workflows, else the present folder).")] = None,
    port: Port = None,
    data_dir: DataDir = None,
    config: Config = None,
    tools: ToolModules = None,
    tools_dir: ToolsDir = None,
) -> None:
    """Run the service on a database of its own, and take definitions and tools anew whenever their files change."""
    call("dev.watching", "dev", folder, config, port, data_dir, tuple(tools) if tools else None, tools_dir)


@app.command("dev-service", hidden=True)
def dev_service(
    folder: Path,
    messages: Annotated[int, typer.Option("--messages")],
    port: Port = None,
    data_dir: DataDir = None,
    config: Config = None,
    tools: ToolModules = None,
    tools_dir: ToolsDir = None,
    drain: Annotated[float | None, typer.Option("--drain")] = None,
    log_level: Annotated[str | None, typer.Option("--log-level")] = None,
) -> None:
    """The service that `agiwo dev` starts, and starts anew."""
    call("dev.child", "serve_child", folder, config, port, data_dir, tuple(tools) if tools else None, tools_dir, messages, drain, log_level)


@app.command(rich_help_panel=SERVICE, epilog="Example: agiwo demo --yes")
def demo(
    yes: Annotated[bool, typer.Option("--yes", help="Decide the approval through the API, check everything, and end.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the sales table (default: a new one, printed).")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the service (default: a free one).")] = None,
    data_dir: DataDir = None,
    workflows: Annotated[Path | None, typer.Option("--workflows", help="Folder of definitions (default: workflows).")] = None,
    as_json: Json = False,
) -> None:
    """Run the weekly report end to end on this machine: database, mail server, model, approval, mail."""
    call("demo", "demo", yes=yes, seed=seed, port=port, data_dir=data_dir, workflows=workflows, as_json=as_json)


@app.command(rich_help_panel=DEFINITIONS, epilog="Example: agiwo validate greet.yaml")
def validate(
    files: Annotated[list[Path], typer.Argument(help="Definitions; - is standard input.")],
    tools: ToolModules = None,
    tools_dir: ToolsDir = None,
    as_json: Json = False,
) -> None:
    """Check definitions without a service: every mistake with file, line and column."""
    call("offline", "validate", files, tuple(tools or ()), tools_dir, as_json)


@app.command(rich_help_panel=DEFINITIONS, epilog="Example: agiwo schema > agiwo.schema.json")
def schema(as_json: Json = False) -> None:
    """Print the JSON Schema of a definition, for editors; needs no service."""
    call("definitions", "schema", as_json)


@app.command(rich_help_panel=DEFINITIONS, epilog="Example: agiwo diff greet 1.0 1.1")
def diff(
    workflow: Workflow,
    old: Annotated[str, typer.Argument(help="The version to compare from.")],
    new: Annotated[str, typer.Argument(help="The version to compare to.")],
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show what two versions of a workflow differ in, step by step."""
    call("definitions", "diff", server, key, workflow, old, new, as_json)


@app.command(rich_help_panel=DEFINITIONS, epilog='Example: agiwo preview greet.yaml --input \'{"name": "Ada"}\'')
def preview(
    what: Annotated[str, typer.Argument(help="A file with a definition (- is standard input), or the id of a workflow.")],
    input: Annotated[str | None, typer.Option("--input", "-i", help="JSON, @FILE or @- for standard input.")] = None,
    results: Annotated[str | None, typer.Option("--results", help="Outputs by step: JSON, @FILE or @-; others are made up.")] = None,
    decisions: Annotated[str | None, typer.Option("--decisions", help="approve or reject by step: JSON, @FILE or @-.")] = None,
    version: Annotated[str | None, typer.Option(help="Version of a workflow (default: the one that a trigger takes).")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Follow a definition with nothing called: prompts, parameters, conditions, approvals."""
    call("definitions", "preview", server, key, what, input, results, decisions, version, as_json)


@app.command(rich_help_panel=DEFINITIONS, epilog="Example: agiwo publish greet.yaml")
def publish(
    files: Annotated[list[Path], typer.Argument(help="Definitions; - is standard input.")],
    draft: Annotated[bool, typer.Option("--draft", help="Keep them as drafts, mistakes and all; nothing can be started.")] = False,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Publish definitions; the same content again changes nothing."""
    call("online", "publish", server, key, files, draft, as_json)


@app.command(rich_help_panel=INSTANCES, epilog='Example: agiwo trigger greet --input \'{"name": "Ada"}\' --wait 10')
def trigger(
    workflow: Workflow,
    input: Annotated[str | None, typer.Option("--input", "-i", help="JSON, @FILE or @- for standard input.")] = None,
    version: Annotated[str | None, typer.Option(help="Version (default: the one that is marked, else the highest).")] = None,
    idempotency: Annotated[str | None, typer.Option("--key", help="Idempotency key: a repetition starts nothing.")] = None,
    correlation_key: Annotated[str | None, typer.Option(help="What signals may find it by, such as order-9.")] = None,
    wait: Annotated[float | None, typer.Option("--wait", help="Seconds to wait for the end, or for a question to people.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Start an instance of a workflow."""
    call("online", "trigger", server, key, workflow, input, version, idempotency, correlation_key, wait, as_json)


@app.command("tools", rich_help_panel=DEFINITIONS, epilog="Example: agiwo tools debug.echo")
def tools_command(
    name: Annotated[str | None, typer.Argument(help="A tool's name, to see its contract; without it all are listed.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the tools that definitions may call, or show one with its parameters."""
    call("online", "tools", server, key, name, as_json)


@app.command(rich_help_panel=INSTANCES, epilog="Example: agiwo show 0191d3b0-0000-7000-8000-000000000000")
def show(
    instance: Instance,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show an instance with its steps and what it waits for."""
    call("online", "show", server, key, instance, as_json)


@app.command(rich_help_panel=INSTANCES, epilog="Example: agiwo watch 0191d3b0-0000-7000-8000-000000000000")
def watch(
    instance: Instance,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Follow an instance live until it ends; a line for each event."""
    call("online", "watch", server, key, instance, as_json)


@app.command(rich_help_panel=PEOPLE, epilog="Example: agiwo approve 0191d3b0-0000-7000-8000-000000000000 --comment fine")
def approve(
    id: Matter,
    comment: Comment = None,
    digest: Digest = None,
    output: Annotated[str | None, typer.Option("--output", help="The changed output: JSON, @FILE or @-.")] = None,
    values: Annotated[str | None, typer.Option("--values", help="The form's values: JSON, @FILE or @-.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Approve what an instance waits for."""
    call("online", "decide", server, key, "approve", id, comment, digest, output, values, as_json)


@app.command(
    rich_help_panel=INSTANCES, epilog="Example: agiwo signal 0191d3b0-0000-7000-8000-000000000000 paid --payload '{\"amount\": 5}'"
)
def signal(
    instance: Instance,
    event: Annotated[str, typer.Argument(help="Name of the event, as a step waits for it.")],
    payload: Annotated[str | None, typer.Option("--payload", help="What it carries: JSON, @FILE or @-.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Id of the signal: a repetition changes nothing.")] = None,
    reason: Reason = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Send a signal to an instance; it is kept until a step wants it."""
    call("online", "signal", server, key, instance, event, payload, id, reason, as_json)


@app.command(rich_help_panel=PEOPLE, epilog="Example: agiwo reject 0191d3b0-0000-7000-8000-000000000000 --comment 'too much'")
def reject(
    id: Matter,
    comment: Comment = None,
    digest: Digest = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Reject what an instance waits for."""
    call("online", "decide", server, key, "reject", id, comment, digest, None, None, as_json)


@db.command(epilog="Example: agiwo db upgrade")
def upgrade(config: Config = None, as_json: Json = False) -> None:
    """Bring the database at AGIWO_DATABASE_URL to this release's schema; serve does so by itself."""
    call("offline", "upgrade", config, as_json)


@keys.command("create", epilog="Example: agiwo keys create ci --role operator --expires-in 90d")
def create_key(
    name: Annotated[str, typer.Argument(help="Its name; its principal is key:NAME.")],
    role: Annotated[list[str], typer.Option("--role", help="viewer, payload_viewer, author, operator, approver, admin, or one of yours.")],
    expires_in: ExpiresIn = None,
    reason: Reason = None,
    offline: Offline = False,
    tenant: Tenant = None,
    config: Config = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Make a key. Its text is printed once and kept nowhere."""
    call(
        "keys", "create", server, key, name, role, expires_in, reason, offline=offline, config=config, tenant=tenant, as_json=as_json
    )  # fmt: skip


@keys.command("list", epilog="Example: agiwo keys list")
def list_keys(
    offline: Offline = False,
    tenant: Tenant = None,
    config: Config = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the keys with what they may do and when they were used."""
    call("keys", "listed", server, key, offline=offline, config=config, tenant=tenant, as_json=as_json)


@keys.command("revoke", epilog="Example: agiwo keys revoke 0191d3b0-0000-7000-8000-000000000000")
def revoke_key(
    id: KeyId,
    reason: Reason = None,
    offline: Offline = False,
    tenant: Tenant = None,
    config: Config = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Take a key back; every node refuses it within seconds."""
    call("keys", "revoke", server, key, id, reason, offline=offline, config=config, tenant=tenant, as_json=as_json)


@keys.command("rotate", epilog="Example: agiwo keys rotate 0191d3b0-0000-7000-8000-000000000000 --overlap 1d")
def rotate_key(
    id: KeyId,
    overlap: Annotated[str | None, typer.Option("--overlap", help="How long the old key still works (default: 1d).")] = None,
    expires_in: ExpiresIn = None,
    reason: Reason = None,
    offline: Offline = False,
    tenant: Tenant = None,
    config: Config = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Replace a key by a new one of the same name and roles."""
    call(
        "keys", "rotate", server, key, id, overlap, expires_in, reason, offline=offline, config=config, tenant=tenant, as_json=as_json
    )  # fmt: skip
