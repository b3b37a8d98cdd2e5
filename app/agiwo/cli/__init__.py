"""The command line: `agiwo COMMAND`, for people in a terminal and, with --json, for programs.

It calls the service's public API or starts the service; it must not reach into an instance by another way.
"""

from __future__ import annotations

from agiwo.cli.commands import main

__all__ = ["main"]
