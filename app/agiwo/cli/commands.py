"""The commands with their options, and nothing else: what a command does is loaded when it is called.

So `agiwo --help` and the short commands start at once; a command's own file may import what it likes.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from agiwo.cli.screen import FAILED, CommandEnds, give, tell

app = typer.Typer(
    name="agiwo",
    help="Durable workflows whose steps call tools, models and people.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
db = typer.Typer(help="The database of the service.", no_args_is_help=True)
app.add_typer(db, name="db")
keys = typer.Typer(help="API keys: who may call the service.", no_args_is_help=True)
app.add_typer(keys, name="keys")

Server = Annotated[str, typer.Option("--server", envvar="AGIWO_SERVER", help="Where the service is.", show_default=True)]
Key = Annotated[str | None, typer.Option("--api-key", envvar="AGIWO_API_KEY", help="The API key.", show_envvar=True)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Config = Annotated[Path | None, typer.Option("--config", envvar="AGIWO_CONFIG", help="YAML file with connections, model profiles, keys.")]
ToolModules = Annotated[list[str] | None, typer.Option("--tools", help="Python module whose tools to register; may be repeated.")]
ToolsDir = Annotated[Path | None, typer.Option("--tools-dir", help="File or folder of tools declared in YAML.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the embedded database (default: .agiwo).")]
Comment = Annotated[str | None, typer.Option("--comment", help="What to tell those who come after.")]
Digest = Annotated[str | None, typer.Option("--digest", help="Decide only if the matter is still this one.")]
Offline = Annotated[bool, typer.Option("--offline", help="Work on the database at AGIWO_DATABASE_URL, for the very first key.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="With --offline: whose keys (default: the configured tenant).")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; it goes into the audit log.")]
KeyId = Annotated[str, typer.Argument(help="Id of the key, as `agiwo keys list` shows it.")]
ExpiresIn = Annotated[str | None, typer.Option("--expires-in", help="How long it works, like 90d.")]
DEFAULT_SERVER = "http://127.0.0.1:8700"


def main() -> None:
    """Run the command line and exit with its status; no stack trace ever reaches the terminal unless AGIWO_TRACEBACK is set."""
    as_json = "--json" in sys.argv
    try:
        app()
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


def _call(module: str, name: str, *args: Any, **options: Any) -> None:
    done = getattr(importlib.import_module(f"agiwo.cli.{module}"), name)(*args, **options)
    if inspect.iscoroutine(done):
        asyncio.run(done)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (default: 8700).")] = None,
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
    _call(
        "serving", "serve", config=config, embedded=embedded, insecure_no_auth=insecure_no_auth, host=host, port=port, data_dir=data_dir,
        workflows_dir=workflows, tools=tuple(tools) if tools else None, tools_dir=tools_dir,
    )  # fmt: skip


@app.command()
def demo(
    yes: Annotated[bool, typer.Option("--yes", help="Decide the approval through the API, check everything, and end.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the sales table (default: a new one, printed).")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the service (default: a free one).")] = None,
    data_dir: DataDir = None,
    workflows: Annotated[Path | None, typer.Option("--workflows", help="Folder of definitions (default: workflows).")] = None,
    as_json: Json = False,
) -> None:
    """Run the weekly report end to end on this machine: database, mail server, model, approval, mail."""
    _call("demo", "demo", yes=yes, seed=seed, port=port, data_dir=data_dir, workflows=workflows, as_json=as_json)


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Definitions; - is standard input.")],
    tools: ToolModules = None,
    tools_dir: ToolsDir = None,
    as_json: Json = False,
) -> None:
    """Check definitions without a service: every mistake with file, line and column."""
    _call("offline", "validate", files, tuple(tools or ()), tools_dir, as_json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a definition, for editors; needs no service."""
    _call("definitions", "schema")


@app.command()
def diff(
    workflow: Annotated[str, typer.Argument(help="Id of the workflow.")],
    old: Annotated[str, typer.Argument(help="The version to compare from.")],
    new: Annotated[str, typer.Argument(help="The version to compare to.")],
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show what two versions of a workflow differ in, step by step."""
    _call("definitions", "diff", server, key, workflow, old, new, as_json)


@app.command()
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
    _call("definitions", "preview", server, key, what, input, results, decisions, version, as_json)


@app.command()
def publish(
    files: Annotated[list[Path], typer.Argument(help="Definitions; - is standard input.")],
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Publish definitions; the same content again changes nothing."""
    _call("online", "publish", server, key, files, as_json)


@app.command()
def trigger(
    workflow: Annotated[str, typer.Argument(help="Id of the workflow.")],
    input: Annotated[str | None, typer.Option("--input", "-i", help="JSON, @FILE or @- for standard input.")] = None,
    version: Annotated[str | None, typer.Option(help="Version (default: the one that is marked, else the highest).")] = None,
    idempotency: Annotated[str | None, typer.Option("--key", help="Idempotency key: a repetition starts nothing.")] = None,
    wait: Annotated[float | None, typer.Option("--wait", help="Seconds to wait for the end, or for a question to people.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Start an instance of a workflow."""
    _call("online", "trigger", server, key, workflow, input, version, idempotency, wait, as_json)


@app.command("tools")
def tools_command(
    name: Annotated[str | None, typer.Argument(help="A tool's name, to see its contract; without it all are listed.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the tools that definitions may call, or show one with its parameters."""
    _call("online", "tools", server, key, name, as_json)


@app.command()
def show(
    instance: Annotated[str, typer.Argument(help="Id of the instance.")],
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show an instance with its steps and what it waits for."""
    _call("online", "show", server, key, instance, as_json)


@app.command()
def watch(
    instance: Annotated[str, typer.Argument(help="Id of the instance.")],
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Follow an instance live until it ends; a line for each event."""
    _call("online", "watch", server, key, instance, as_json)


@app.command()
def approve(
    id: Annotated[str, typer.Argument(help="Id of the approval, or of an instance that waits for one.")],
    comment: Comment = None,
    digest: Digest = None,
    output: Annotated[str | None, typer.Option("--output", help="The changed output: JSON, @FILE or @-.")] = None,
    values: Annotated[str | None, typer.Option("--values", help="The form's values: JSON, @FILE or @-.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Approve what an instance waits for."""
    _call("online", "decide", server, key, "approve", id, comment, digest, output, values, as_json)


@app.command()
def signal(
    instance: Annotated[str, typer.Argument(help="Id of the instance.")],
    event: Annotated[str, typer.Argument(help="Name of the event, as a step waits for it.")],
    payload: Annotated[str | None, typer.Option("--payload", help="What it carries: JSON, @FILE or @-.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Id of the signal: a repetition changes nothing.")] = None,
    reason: Reason = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Send a signal to an instance; it is kept until a step wants it."""
    _call("online", "signal", server, key, instance, event, payload, id, reason, as_json)


@app.command()
def resume(
    instance: Annotated[str, typer.Argument(help="Id of the instance.")],
    reason: Reason = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Let an instance go on from a step at which it was told to stop."""
    _call("online", "resume", server, key, instance, reason, as_json)


@app.command()
def reject(
    id: Annotated[str, typer.Argument(help="Id of the approval, or of an instance that waits for one.")],
    comment: Comment = None,
    digest: Digest = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Reject what an instance waits for."""
    _call("online", "decide", server, key, "reject", id, comment, digest, None, None, as_json)


@db.command()
def upgrade(config: Config = None, as_json: Json = False) -> None:
    """Bring the database at AGIWO_DATABASE_URL to this release's schema; serve does so by itself."""
    _call("offline", "upgrade", config, as_json)


@keys.command("create")
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
    _call(
        "keys", "create", server, key, name, role, expires_in, reason, offline=offline, config=config, tenant=tenant, as_json=as_json
    )  # fmt: skip


@keys.command("list")
def list_keys(
    offline: Offline = False,
    tenant: Tenant = None,
    config: Config = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the keys with what they may do and when they were used."""
    _call("keys", "listed", server, key, offline=offline, config=config, tenant=tenant, as_json=as_json)


@keys.command("revoke")
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
    _call("keys", "revoke", server, key, id, reason, offline=offline, config=config, tenant=tenant, as_json=as_json)


@keys.command("rotate")
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
    _call(
        "keys", "rotate", server, key, id, overlap, expires_in, reason, offline=offline, config=config, tenant=tenant, as_json=as_json
    )  # fmt: skip
