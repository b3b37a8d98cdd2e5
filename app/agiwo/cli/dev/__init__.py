"""`agiwo dev`: the service on a database of its own, with definitions and tools taken anew whenever their files change.

One process watches tools and starts the service in another; that one watches the definitions.
"""

from __future__ import annotations

from agiwo.cli.dev.child import serve_child
from agiwo.cli.dev.watching import dev

__all__ = ["dev", "serve_child"]
