"""Tools without code: what an operator declares in YAML becomes tools like any others, HTTP calls, commands and OpenAPI operations.

A declaration is checked when it is read, with the place of every mistake; at a call only data is filled in, and data is never a template.
"""

from agiwo.tools.declared.reading import MAX_FILES, Declarations, declared_tools

__all__ = ["MAX_FILES", "Declarations", "declared_tools"]
