"""What the commands share: their options and arguments, and how that which they do is loaded when they are called.

Nothing here imports what a command does, so that `agiwo --help` and a shell that completes words do not wait for it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT_SERVER = "http://127.0.0.1:8700"

SERVICE, DEFINITIONS, INSTANCES, PEOPLE, OPERATION = "Service", "Definitions", "Instances", "People", "Operation"


def offered(name: str) -> Callable[[typer.Context, str], list[tuple[str, str]]]:
    """What a shell offers in the place of an id: the words of this name in `agiwo.cli.completion`, of the service that the line names."""

    def words(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = getattr(importlib.import_module("agiwo.cli.completion"), name)(
            context.params.get("server") or DEFAULT_SERVER, incomplete
        )
        return found

    return words


Server = Annotated[str, typer.Option("--server", envvar="AGIWO_SERVER", help="Where the service is.", show_default=True)]
Key = Annotated[str | None, typer.Option("--api-key", envvar="AGIWO_API_KEY", help="The API key.", show_envvar=True)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Config = Annotated[Path | None, typer.Option("--config", envvar="AGIWO_CONFIG", help="YAML file with connections, model profiles, keys.")]
ToolModules = Annotated[list[str] | None, typer.Option("--tools", help="Python module whose tools to register; may be repeated.")]
ToolsDir = Annotated[Path | None, typer.Option("--tools-dir", help="File or folder of tools declared in YAML.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on (default: 8700).")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the embedded database (default: .agiwo).")]
Comment = Annotated[str | None, typer.Option("--comment", help="What to tell those who come after.")]
Digest = Annotated[str | None, typer.Option("--digest", help="Decide only if the matter is still this one.")]
Offline = Annotated[bool, typer.Option("--offline", help="Work on the database at AGIWO_DATABASE_URL, for the very first key.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="With --offline: whose keys (default: the configured tenant).")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; it goes into the audit log.")]
Instance = Annotated[str, typer.Argument(help="Id of the instance.", autocompletion=offered("instance_ids"))]
Workflow = Annotated[str, typer.Argument(help="Id of the workflow.", autocompletion=offered("workflow_ids"))]
Matter = Annotated[
    str, typer.Argument(help="Id of the approval, or of an instance that waits for one.", autocompletion=offered("approval_ids"))
]
KeyId = Annotated[str, typer.Argument(help="Id of the key, as `agiwo keys list` shows it.")]
ExpiresIn = Annotated[str | None, typer.Option("--expires-in", help="How long it works, like 90d.")]


def call(module: str, name: str, *args: Any, **options: Any) -> None:
    """Do what stands in `agiwo.cli.MODULE` under this name."""
    done = getattr(importlib.import_module(f"agiwo.cli.{module}"), name)(*args, **options)
    if inspect.iscoroutine(done):
        asyncio.run(done)
