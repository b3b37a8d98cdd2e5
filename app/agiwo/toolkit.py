"""The face for people who write tools: `from agiwo.toolkit import tool, ToolExecutionError`.

It holds nothing of its own and must not grow beyond what a tool's author needs.
"""

from __future__ import annotations

from agiwo.definition.contract import Effect
from agiwo.errors import NetworkError, PermissionDeniedError, StepError, ToolExecutionError, ValidationError
from agiwo.tools.context import CallbackUrls, ToolContext
from agiwo.tools.registry import ToolRegistry
from agiwo.tools.tool import Probe, Tool, tool

__all__ = [
    "CallbackUrls",
    "Effect",
    "NetworkError",
    "PermissionDeniedError",
    "Probe",
    "StepError",
    "Tool",
    "ToolContext",
    "ToolExecutionError",
    "ToolRegistry",
    "ValidationError",
    "tool",
]
