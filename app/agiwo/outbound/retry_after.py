"""The wait that an answer asks for in its headers; what makes no sense asks for none.

It must not wait or cut a wait short: that is for whoever retries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the other side asks us to wait: `retry-after-ms`, else `Retry-After` as seconds or HTTP date; None if it asks for none.

    `now` is in seconds since 1970; the answer's own `Date` wins over it, so that a wrong clock here does no harm.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or value is None:
        return seconds
    due = _date(value)
    if due is None:
        return None
    sent = _date(headers.get("date", ""))
    return max(0.0, due - (now if sent is None else sent))


def _seconds(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
