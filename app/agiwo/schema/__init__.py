"""JSON Schema (2020-12) as the product uses it: compiled once, lossless conversions, every mismatch with its place.

It must not reach out (no remote reference), must not change what it is given, and knows nothing of steps or tools.
"""

from __future__ import annotations

from agiwo.schema.compiled import Schema, check_schema
from agiwo.schema.fit import compatible

__all__ = ["Schema", "check_schema", "compatible"]
