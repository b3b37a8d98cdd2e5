"""Definitions: text to a checked, compiled workflow that the machine can run.

Pure: reads no file, knows no tool's code and no clock.
"""

from agiwo.definition.checking import Checked, check, compile_workflow
from agiwo.definition.compiled import Workflow
from agiwo.definition.contract import Effect, ToolContract
from agiwo.definition.difference import Difference, difference
from agiwo.definition.drawing import graph_svg
from agiwo.definition.durations import seconds
from agiwo.definition.graph import graph_json, graph_mermaid
from agiwo.definition.json_schema import json_schema
from agiwo.definition.loading import Loaded, content_hash, load, load_mapping
from agiwo.definition.versions import labelled, version_key

__all__ = [
    "Checked",
    "Effect",
    "Loaded",
    "ToolContract",
    "Workflow",
    "Difference",
    "check",
    "difference",
    "json_schema",
    "compile_workflow",
    "content_hash",
    "graph_json",
    "graph_mermaid",
    "graph_svg",
    "labelled",
    "load",
    "load_mapping",
    "seconds",
    "version_key",
]
