"""What came over the wire, made fit to be kept: storable, masked, and of a bounded size.

Only for the record that people read; an output is never made from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from agiwo.values import JSON, MAX_DEPTH, MAX_DIGITS, encode

MAX_KEPT = 64 * 1024
_UNKEEPABLE = {0: "\N{REPLACEMENT CHARACTER}", **dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")}


def kept(value: JSON, mask: Callable[[str], str]) -> JSON:
    """`value` with every text masked and all that no store can hold replaced by a sign that says so.

    Longer than 64 KB as JSON, it becomes `{"cut": its first part as text, "bytes": its whole length}`; masking comes before cutting, so
    that no half of a secret stays.
    """
    clean = _clean(value, mask, 0)
    text = clean if isinstance(clean, str) else encode(clean)
    size = len(text.encode())
    if size <= MAX_KEPT:
        return clean
    return {"cut": text.encode()[:MAX_KEPT].decode("utf-8", "ignore"), "bytes": size}


def _clean(value: JSON, mask: Callable[[str], str], depth: int) -> JSON:
    if isinstance(value, str):
        return mask(value).translate(_UNKEEPABLE)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 10**MAX_DIGITS else f"an integer of more than {MAX_DIGITS} digits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= MAX_DEPTH - 10:
        return "nested too deep to keep"
    if isinstance(value, list | tuple):
        return [_clean(item, mask, depth + 1) for item in value]
    return {_clean(key, mask, depth): _clean(item, mask, depth + 1) for key, item in value.items()}
