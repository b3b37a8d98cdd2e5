"""Agiwo: durable workflows whose steps call tools, models and people.

`agiwo.Agiwo` is the engine inside a program of one's own; it is loaded at first use, so that `import agiwo` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agiwo.wiring.library import Agiwo

__all__ = ["Agiwo"]


def __getattr__(name: str) -> Any:
    if name == "Agiwo":
        return importlib.import_module("agiwo.wiring.library").Agiwo
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
